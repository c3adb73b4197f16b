/* sandgate-engine: a local E2B. Start-up in order: options; what must be read before privileges go
 * (keys, templates, the agent's program); the listening socket; the split into keeper and engine;
 * one probe sandbox that shows that isolation works here; then the ready line and the loop. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/multicast.h"
#include "engine/node.h"
#include "engine/pool.h"
#include "engine/sandbox.h"
#include "engine/surface.h"
#include "engine/zygote.h"

#define BACKLOG     1024
#define SAMPLE_SECS 5

/* What only main needs. */
struct program {
	struct engine engine;
	struct watch signals;
	int signal_fd;
	struct timer sampling;
	struct notify notify; /* the engine's to use: the keeper knows nothing of how it goes */
	struct timer alive;
	int listen_fd, port;
	int exit_code;
	const char *zygote_why; /* why there is none */
	bool addresses;         /* the machine's own are known */
};

static int fail(int code, const struct err *err)
{
	fprintf(stderr, "sandgate-engine: %s\n", err->text);
	return code;
}

static int open_listener(struct program *p, const struct options *o, struct err *err)
{
	char port[8];
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE,
				  .ai_socktype = SOCK_STREAM },
			*ai;
	int one = 1;
	snprintf(port, sizeof port, "%d", o->listen_port);
	if (getaddrinfo(o->listen_host, port, &hints, &ai) != 0)
		return err_set(err, ERR_INVALID, "--listen: '%s' is no address", o->listen_host);
	_close_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	int rc = fd < 0 ? -1 : bind(fd, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(ai);
	if (rc < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(err, "listen on %s:%s", o->listen_host, port);
	struct sockaddr_storage at;
	socklen_t len = sizeof at;
	getsockname(fd, (struct sockaddr *)&at, &len);
	p->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
						 : ((struct sockaddr_in *)&at)->sin_port);
	p->listen_fd = steal_fd(&fd);
	return 0;
}

/* A file of ours, beside this program or where an installation puts it. */
static int load(const char *name, struct err *err)
{
	static const char *const places[] = { "", "../libexec/sandgate/" };
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n < 0)
		return err_errno(err, "/proc/self/exe");
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		snprintf(path, sizeof path, "%s/%s%s", self, places[i], name);
		if (access(path, R_OK) == 0)
			return launch_load(path, err);
	}
	return err_set(err, ERR_NOT_FOUND,
		       "%s is neither beside this program nor in ../libexec/sandgate", name);
}

/* Three descriptors a sandbox, three a process, one a client: take what the system gives. */
static void raise_limits(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* ---- the loop's own events ---- */

static void begin_stop(struct program *p)
{
	if (p->engine.stopping)
		return;
	p->engine.stopping = true;
	log_line(LOG_INFO, "op=stop");
	notify_say(&p->notify, "STOPPING=1");
	if (p->engine.http)
		http_stop_listening(p->engine.http);
	sandbox_end_all(&p->engine);
}

static void on_signal(void *ctx, uint32_t events)
{
	struct program *p = ctx;
	struct signalfd_siginfo si;
	int status;
	pid_t pid;
	(void)events;
	while (read(p->signal_fd, &si, sizeof si) == sizeof si) {
		if (si.ssi_signo != SIGCHLD) {
			begin_stop(p);
			continue;
		}
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (!zygote_reaped(p->engine.zygote, pid) &&
			    !memory_reaped(&p->engine, pid))
				sandbox_reaped(&p->engine, pid);
	}
}

static void ignore_sample(void *ctx, const struct usage_sample *u)
{
	(void)ctx;
	(void)u;
}

static void on_sampling(void *ctx)
{
	struct program *p = ctx;
	int n = 0;
	for (struct sandbox *s = p->engine.sandboxes; s; s = s->next, n++)
		if (s->state == SANDBOX_RUNNING)
			sandbox_measure(s, ignore_sample, NULL);
	memory_check(&p->engine);
	/* One that comes later is closed to the sandboxes that are made from then on. */
	if (net_host_read(&p->engine.host) < 0)
		log_line(LOG_WARN, "op=net error=\"the machine's addresses cannot be listed\"");
	if (memory_full(&p->engine, NULL))
		pool_drain(p->engine.pool);
	notify_status(&p->notify, "sandboxes: %d", n);
	timer_at(&p->sampling, p->engine.loop, clock_mono_us() + SAMPLE_SECS * SECOND_US,
		 on_sampling, p);
}

static void on_alive(void *ctx)
{
	struct program *p = ctx;
	int ms = notify_alive(&p->notify);
	if (ms >= 0)
		timer_at(&p->alive, p->engine.loop, clock_mono_us() + ms * 1000LL, on_alive, p);
}

static int watch_signals(struct program *p, struct err *err)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p->signal_fd < 0 ||
	    watch_add(&p->signals, p->engine.loop, p->signal_fd, EPOLLIN, on_signal, p) < 0)
		return err_errno(err, "signalfd");
	return 0;
}

/* ---- ready ---- */

static void add_layer(struct buf *list, const char *fmt, const char *a)
{
	if (list->len)
		buf_adds(list, ", ");
	buf_adds(list, fmt);
	if (a)
		buf_addf(list, " (%s)", a);
}

/* What control groups hold, and by which version; memory is held without them, too. */
static void add_limits(struct buf *on, struct buf *off, const struct cgroup_tops *t)
{
	static const char *const names[CGROUP_USES] = {
		[CGROUP_MEMORY] = "memory limit",
		[CGROUP_PIDS] = "process limit",
		[CGROUP_CPU] = "cpu limit",
		[CGROUP_FREEZER] = "freezer",
	};
	for (int use = 0; use < CGROUP_USES; use++) {
		if (t->by[use] >= 0)
			add_layer(on, names[use],
				  t->top[t->by[use]].v2 ? "cgroup v2" : "cgroup v1");
		else if (use == CGROUP_MEMORY)
			add_layer(on, names[use], "watcher");
		else
			add_layer(off, names[use], t->why[use]);
	}
	static const char unmapped[] = "limit on unmapped memory";
	if (t->by[CGROUP_MEMORY] >= 0)
		add_layer(on, unmapped, NULL);
	else
		add_layer(off, unmapped, "the watcher does not see it");
}

/* One line that says what protects this machine, and what does not. */
static void say_ready(const struct program *p)
{
	static const char *const always[] = { "user namespace",   "pid namespace",
					      "mount namespace",  "network namespace",
					      "ipc namespace",    "uts namespace",
					      "cgroup namespace", "seccomp",
					      "rlimits" };
	const struct engine *e = &p->engine;
	struct buf on = BUF(2048), off = BUF(2048);
	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		add_layer(&on, always[i], NULL);
	if (e->ground.two_users)
		add_layer(&on, "root and user", NULL);
	else
		add_layer(&off, "root and user",
			  "no range in /etc/subuid or no newuidmap: only user");
	add_limits(&on, &off, &e->ground.tops);
	if (e->internet)
		add_layer(&on, "internet", NULL);
	else
		add_layer(&off, "internet",
			  !e->opt->internet        ? "switched off"
			  : !e->ground.tun         ? "/dev/net/tun cannot be opened"
			  : !multicast_can_close() ? "no xfrm in the kernel to close multicast"
			  : !p->addresses
				  ? "the machine's addresses cannot be listed, or are too many"
				  : "no " NET_SLIRP);
	if (zygote_is_ready(e->zygote))
		add_layer(&on, "zygote", NULL);
	else
		add_layer(&off, "zygote", p->zygote_why);
	bool v6 = strchr(e->opt->listen_host, ':') != NULL;
	fprintf(stderr, "sandgate-engine: ready on http://%s%s%s:%d; active: %s; inactive: %s\n",
		v6 ? "[" : "", e->opt->listen_host, v6 ? "]" : "", p->port, on.p,
		off.len ? off.p : "none");
	buf_free(&on);
	buf_free(&off);
}

/* Without a zygote kernels are slow to come, but they come. */
static void serve_now(void *ctx, const char *zygote_why)
{
	struct program *p = ctx;
	struct err err;
	if (p->engine.stopping)
		return;
	if (zygote_why)
		p->zygote_why = zygote_why;
	if (http_new(&p->engine.http, p->engine.loop, p->listen_fd, edge_route, &p->engine, &err) <
	    0) {
		p->exit_code = fail(1, &err);
		begin_stop(p);
		return;
	}
	p->engine.pool = pool_new(&p->engine);
	say_ready(p);
	notify_say(&p->notify, "READY=1");
	on_sampling(p);
	on_alive(p);
}

/* The probe has shown whether sandboxes can be made here: serve, or say why not. */
static void on_probed(void *ctx, struct sandbox *s, const struct err *why)
{
	struct program *p = ctx;
	struct err err;
	if (!s) {
		if (!p->engine.stopping)
			fprintf(stderr, "sandgate-engine: no sandbox can be made here: %s\n",
				why->text);
		p->exit_code = 1;
		begin_stop(p);
		return;
	}
	sandbox_end(s);
	p->zygote_why = "switched off";
	if (!p->engine.opt->zygote)
		serve_now(p, NULL);
	else if (zygote_new(&p->engine.zygote, &p->engine, serve_now, p, &err) < 0)
		serve_now(p, err.text);
}

static int start(struct program *p, struct err *err)
{
	struct engine *e = &p->engine;
	struct sandbox_config probe = { .timeout = 60, .secure = true, .probe = true };
	e->node = node_find();
	p->addresses = net_host_read(&e->host) == 0;
	e->internet = e->opt->internet && e->ground.tun && access(NET_SLIRP, X_OK) == 0 &&
		      multicast_can_close() && p->addresses;
	e->slots = calloc((size_t)e->ground.slots, 1);
	if (!e->slots)
		return err_set(err, ERR_INTERNAL, "no memory");
	if (seccomp_compile(&e->filter, err) < 0 || loop_new(&e->loop, err) < 0 ||
	    watch_signals(p, err) < 0 || memory_new(e, err) < 0)
		return -1;
	if (template_find(e->templates, "base", &probe.template, err) < 0)
		return -1;
	return sandbox_create(e, &probe, on_probed, p, err);
}

/* All that is read as the user who started us. -1, or an exit status. */
static int prepare(struct program *p, struct options *o, int argc, char **argv)
{
	struct err err;
	if (options_parse(o, argc, argv, &err) < 0)
		return fail(2, &err);
	if (o->help) {
		fputs(options_help, stdout);
		return 0;
	}
	if (o->wheelhouse && access(o->wheelhouse, R_OK | X_OK) < 0) {
		err_errno(&err, "--wheelhouse %s", o->wheelhouse);
		return fail(2, &err);
	}
	if (templates_load(&p->engine.templates, o->templates, &err) < 0)
		return fail(2, &err);
	if (open_listener(p, o, &err) < 0)
		return fail(err.code == ERR_INVALID ? 2 : 1, &err);
	p->engine.agent_exe = load("sandgate-agent", &err);
	if (p->engine.agent_exe >= 0)
		p->engine.zygote_lib = load("sandgate-zygote.so", &err);
	return p->engine.zygote_lib < 0 ? fail(1, &err) : -1;
}

static int serve(struct program *p)
{
	struct err err;
	if (keeper_split(p->engine.opt, &p->engine.ground, &err) < 0)
		return fail(1, &err);
	raise_limits();
	if (start(p, &err) < 0)
		return fail(1, &err);
	loop_run(p->engine.loop);
	return p->exit_code;
}

static void clean_up(struct program *p)
{
	if (p->engine.http)
		http_free(p->engine.http);
	else
		close_fd(&p->listen_fd);
	zygote_free(p->engine.zygote);
	pool_free(p->engine.pool);
	timer_stop(&p->sampling);
	timer_stop(&p->alive);
	notify_close(&p->notify);
	watch_del(&p->signals);
	close_fd(&p->signal_fd);
	close_fd(&p->engine.agent_exe);
	close_fd(&p->engine.zygote_lib);
	memory_free(&p->engine);
	loop_free(p->engine.loop);
	templates_free(p->engine.templates);
	free(p->engine.slots);
	logs_kept_free(&p->engine.logs);
	free(p->engine.filter.rules.filter);
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct program p = { .engine = { .opt = &o, .agent_exe = -1, .zygote_lib = -1 },
			     .signal_fd = -1,
			     .listen_fd = -1 };
	notify_open(&p.notify);
	int code = prepare(&p, &o, argc, argv);
	if (code < 0)
		code = serve(&p);
	clean_up(&p);
	options_free(&o);
	return code;
}
