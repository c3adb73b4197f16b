#include "engine/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/packet.h"
#include "engine/launch.h"
#include "engine/sandbox.h"

#define DISK        (64u << 20) /* of its own root: what libraries write when they are imported */
#define START_US    (60 * SECOND_US)
#define AGAIN_US    SECOND_US /* the pause before another start, doubled each time */
#define AGAIN_MAX   (60 * SECOND_US)
#define ORDERED_MAX 4
#define ORDER_US    (10 * SECOND_US) /* for the answer to one; then it hangs */

/* Its life: waiting (neither id nor pid), ordered (id), there (pid), ended (pid still, until the
 * zygote is told that it may be reaped). */
struct forked {
	struct forked *next;
	struct zygote *z;
	uint32_t id;
	pid_t pid;
	bool ended;
	int fds[ZYGOTE_GROUPS]; /* while waiting */
	struct buf strings;
	struct sandbox *s;
	const struct forked_events *events; /* NULL when nobody is interested any more */
	void *ctx;
};

struct zygote {
	struct engine *e;
	pid_t pid; /* 0 while there is none */
	int sock;
	struct watch watch;
	bool ready;
	uint32_t last_id;
	struct forked *all, **last; /* oldest first */
	int ordered;
	struct timer timer; /* until it is given up, or started again */
	int64_t pause;      /* before the next start */
	void (*on_ready)(void *ctx, const char *why);
	void *ctx;
};

/* ---- the processes it has made ---- */

static void drop_order(struct forked *f)
{
	for (int i = 0; i < ZYGOTE_GROUPS; i++)
		close_fd(&f->fds[i]);
	buf_free(&f->strings);
}

static void free_forked(struct forked *f)
{
	struct zygote *z = f->z;
	for (struct forked **at = &z->all; *at; at = &(*at)->next) {
		if (*at != f)
			continue;
		*at = f->next;
		if (!f->next)
			z->last = at;
		break;
	}
	drop_order(f);
	free(f);
}

/* Its number means nothing from here on. */
static void end_forked(struct forked *f, bool made)
{
	const struct forked_events *events = f->events;
	void *ctx = f->ctx;
	free_forked(f);
	if (events)
		(made ? events->ended : events->failed)(ctx);
}

static struct forked *find(const struct zygote *z, pid_t pid)
{
	for (struct forked *f = z->all; f; f = f->next)
		if (f->pid == pid)
			return f;
	return NULL;
}

void forked_signal(struct forked *f, int sig)
{
	/* Before it has entered its sandbox it has no group of its own. */
	if (f && f->pid && kill(-f->pid, sig) < 0)
		kill(f->pid, sig);
}

void forked_free(struct forked *f)
{
	if (!f)
		return;
	f->events = NULL;
	f->s = NULL;
	if (!f->id && !f->pid)
		free_forked(f);
	else
		forked_signal(f, SIGKILL);
}

static int order(struct zygote *z, struct forked *f)
{
	const struct limits limits = sandbox_limits(f->s);
	const struct zygote_msg msg = { .op = ZYGOTE_FORK,
					.id = z->last_id + 1 ? z->last_id + 1 : 1,
					.value = cgroup_birthplace(&f->s->group) >= 0,
					.two_users = limits.two_users,
					.nproc = (uint32_t)limits.nproc,
					.data = limits.data,
					.file_size = limits.file_size };
	int fds[ZYGOTE_GROUPS + CGROUP_TOPS];
	_Static_assert(sizeof fds / sizeof *fds <= PACKET_FDS_MAX, "they fit one packet");
	memcpy(fds, f->fds, sizeof f->fds);
	size_t n = ZYGOTE_GROUPS + cgroup_parts(&f->s->group, fds + ZYGOTE_GROUPS);
	if (packet_send(z->sock, &msg, sizeof msg, f->strings.p, f->strings.len, fds, n) < 0)
		return -1;
	z->last_id = f->id = msg.id;
	drop_order(f);
	return 0;
}

static int let_reap(const struct zygote *z, const struct forked *f)
{
	const struct zygote_msg msg = { .op = ZYGOTE_REAP, .pid = f->pid };
	return packet_send(z->sock, &msg, sizeof msg, NULL, 0, NULL, 0);
}

/* The next that the zygote has to be told of. Few orders at a time: others need its socket, too. */
static struct forked *unsaid(const struct zygote *z)
{
	for (struct forked *f = z->all; f; f = f->next)
		if (f->ended || (!f->id && !f->pid && z->ordered < ORDERED_MAX))
			return f;
	return NULL;
}

static void lose(struct zygote *z);

static void on_late(void *ctx)
{
	lose(ctx);
}

/* As long as it owes an answer. */
static void set_deadline(struct zygote *z)
{
	if (z->ordered)
		timer_at(&z->timer, z->e->loop, clock_mono_us() + ORDER_US, on_late, z);
	else
		timer_stop(&z->timer);
}

/* 0, or -1 with errno: then it is still to be said. */
static int say(struct zygote *z, struct forked *f)
{
	if (f->ended) {
		if (let_reap(z, f) < 0)
			return -1;
		free_forked(f);
		return 0;
	}
	if (order(z, f) < 0)
		return -1;
	if (++z->ordered == 1)
		set_deadline(z);
	return 0;
}

/* Say what there is to say, and the rest when the socket has room again. When hundreds end at once
 * it has none; an end that the zygote never hears of would stay a zombie, and keep its sandbox. */
static void say_all(struct zygote *z)
{
	struct forked *f;
	while ((f = unsaid(z)) && say(z, f) == 0)
		;
	watch_set(&z->watch, f ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void on_room(struct zygote *z)
{
	struct forked *f = unsaid(z);
	/* With room there is no reason to refuse a packet, but for the descriptors in it. */
	if (f && say(z, f) < 0 && errno != EAGAIN && !f->ended)
		end_forked(f, false);
	say_all(z);
}

static void on_forked(struct zygote *z, const struct zygote_msg *msg)
{
	struct forked *f = z->all;
	while (f && f->id != msg->id)
		f = f->next;
	if (!f)
		return;
	z->ordered--;
	set_deadline(z);
	f->id = 0;
	f->pid = msg->pid;
	if (!f->pid)
		end_forked(f, false); /* or it would be taken for one that waits */
	else if (f->events)
		f->events->made(f->ctx);
	else
		kill(f->pid, SIGKILL);
	say_all(z);
}

static void on_exited(struct zygote *z, pid_t pid)
{
	struct forked *f = find(z, pid);
	if (!f || f->ended)
		return;
	const struct forked_events *events = f->events;
	f->events = NULL;
	f->ended = true;
	if (events)
		events->ended(f->ctx);
	say_all(z);
}

/* ---- the zygote itself ---- */

static void start(void *ctx);

/* Whether it died or does not speak our language. Kernels that it has made are ours to reap now. */
static void lose(struct zygote *z)
{
	struct forked *next;
	bool first = z->on_ready != NULL, was_ready = z->ready;
	z->ready = false;
	watch_del(&z->watch);
	close_fd(&z->sock);
	if (z->pid > 0)
		kill(z->pid, SIGKILL);
	for (struct forked *f = z->all; f; f = next) {
		next = f->next;
		if (!f->pid)
			end_forked(f, false);
	}
	z->ordered = 0;
	log_line(LOG_ERROR, "op=zygote error=\"%s\"", was_ready ? "it ended" : "it does not start");
	z->pause = was_ready ? AGAIN_US : z->pause * 2 > AGAIN_MAX ? AGAIN_MAX : z->pause * 2;
	if (!z->e->stopping)
		timer_at(&z->timer, z->e->loop, clock_mono_us() + z->pause, start, z);
	if (first) {
		void (*tell)(void *, const char *) = z->on_ready;
		z->on_ready = NULL;
		tell(z->ctx, "it does not start; see the log");
	}
}

static void on_ready(struct zygote *z)
{
	void (*tell)(void *, const char *) = z->on_ready;
	z->ready = true;
	z->on_ready = NULL;
	timer_stop(&z->timer);
	if (tell)
		tell(z->ctx, NULL);
}

static void on_socket(void *ctx, uint32_t events)
{
	struct zygote *z = ctx;
	struct zygote_msg msg;
	int fds[PACKET_FDS_MAX];
	size_t nfds;
	if (events & EPOLLOUT)
		on_room(z);
	ssize_t n = packet_recv(z->sock, &msg, sizeof msg, fds, &nfds);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
	if (n != sizeof msg)
		lose(z);
	else if (msg.op == ZYGOTE_READY)
		on_ready(z);
	else if (msg.op == ZYGOTE_FORKED)
		on_forked(z, &msg);
	else if (msg.op == ZYGOTE_EXITED)
		on_exited(z, msg.pid);
}

/* In the child. Its root is like a sandbox's, so that every path that a library keeps is right in
 * the forks; but its /proc is the machine's, whose pid namespace it has to be in. */
static void __attribute__((noreturn)) become(const struct engine *e, int sock)
{
	char *const argv[] = { "/usr/bin/python3", ROOTFS_DRIVER, NULL };
	char *const env[] = { "PATH=" ROOTFS_PATH, "HOME=" AGENT_HOME, "LANG=C.UTF-8", NULL };
	const struct rootfs root = { .disk = DISK,
				     .two_users = false,
				     .driver = kernel_driver,
				     .charts = kernel_charts,
				     .driver_js = kernel_javascript,
				     .shared_proc = true };
	struct err err;
	if (launch_place_fds(sock, e->zygote_lib) < 0)
		_exit(1);
	launch_reset_signals();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	/* A fork is seen in its sandbox's /proc before it enters, with what belongs to these. */
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ||
	    rootfs_enter(&root, &err) < 0)
		_exit(1);
	fcntl(ZYGOTE_LIBRARY, F_SETFD, 0);
	execve(argv[0], argv, env);
	_exit(1);
}

static int send_filters(const struct zygote *z)
{
	const struct sock_fprog *rules = &z->e->filter.rules, *unknown = &z->e->filter.unknown;
	struct buf body = BUF(PACKET_MAX);
	const struct zygote_msg msg = { .op = ZYGOTE_FILTERS,
					.value = (int)(rules->len * sizeof *rules->filter) };
	buf_add(&body, (const char *)rules->filter, rules->len * sizeof *rules->filter);
	int rc = buf_add(&body, (const char *)unknown->filter,
			 unknown->len * sizeof *unknown->filter);
	if (rc == 0)
		rc = packet_send(z->sock, &msg, sizeof msg, body.p, body.len, NULL, 0);
	buf_free(&body);
	return rc;
}

static void start(void *ctx)
{
	struct zygote *z = ctx;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		timer_at(&z->timer, z->e->loop, clock_mono_us() + z->pause, start, z);
		return;
	}
	z->sock = pair[0];
	z->pid = fork();
	if (z->pid == 0)
		become(z->e, pair[1]);
	close(pair[1]);
	timer_at(&z->timer, z->e->loop, clock_mono_us() + START_US, on_late, z);
	if (z->pid < 0 || fcntl(z->sock, F_SETFL, O_NONBLOCK) < 0 || send_filters(z) < 0 ||
	    watch_add(&z->watch, z->e->loop, z->sock, EPOLLIN, on_socket, z) < 0)
		lose(z);
}

bool zygote_reaped(struct zygote *z, pid_t pid)
{
	if (z && z->pid == pid) {
		z->pid = 0;
		if (z->sock >= 0) /* a fork that has not left it yet may hold the other end */
			lose(z);
		return true;
	}
	struct forked *f = z ? find(z, pid) : NULL;
	if (f)
		end_forked(f, true);
	return f != NULL;
}

int zygote_new(struct zygote **out, struct engine *e, void (*ready)(void *, const char *),
	       void *ctx, struct err *err)
{
	struct zygote *z = calloc(1, sizeof *z);
	if (!z)
		return err_set(err, ERR_INTERNAL, "no memory");
	*z = (struct zygote){
		.e = e, .sock = -1, .pause = AGAIN_US, .on_ready = ready, .ctx = ctx
	};
	z->last = &z->all;
	/* What it has made is ours when it dies. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	*out = z;
	start(z);
	return 0;
}

void zygote_free(struct zygote *z)
{
	if (!z)
		return;
	timer_stop(&z->timer);
	watch_del(&z->watch);
	close_fd(&z->sock);
	if (z->pid > 0)
		kill(z->pid, SIGKILL);
	while (z->all)
		free_forked(z->all);
	free(z);
}

bool zygote_is_ready(const struct zygote *z)
{
	return z && z->ready;
}

struct forked *zygote_fork(struct zygote *z, struct sandbox *s, const struct buf *strings,
			   const int fds[3], const struct forked_events *events, void *ctx)
{
	struct forked *f = zygote_is_ready(z) ? calloc(1, sizeof *f) : NULL;
	if (!f)
		return NULL;
	*f = (struct forked){ .z = z,
			      .fds = { [ZYGOTE_SANDBOX] = (int)syscall(SYS_pidfd_open, s->pid, 0),
				       [ZYGOTE_GATE] = fcntl(s->gate, F_DUPFD_CLOEXEC, 3) },
			      .strings = BUF(PACKET_MAX - sizeof(struct zygote_msg)),
			      .s = s,
			      .events = events,
			      .ctx = ctx };
	bool ok = buf_add(&f->strings, strings->p, strings->len) == 0;
	for (int i = 0; i < 3; i++)
		f->fds[ZYGOTE_CONTROL + i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
	for (int i = 0; i < ZYGOTE_GROUPS; i++)
		ok &= f->fds[i] >= 0;
	if (!ok) {
		drop_order(f);
		free(f);
		return NULL;
	}
	*z->last = f;
	z->last = &f->next;
	say_all(z);
	return f;
}
