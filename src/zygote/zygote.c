/* sandgate-zygote.so: what the zygote needs of C. kernel.py loads it, asks it for work, forks, and
 * has the child brought into its sandbox. It is a library and no program because a Python that has
 * all its modules loaded can only be copied by fork.
 *
 * The child is at first a process with all rights of the engine's, inside the sandbox's pid
 * namespace already. Nothing inside may look into it then, nor, where sandboxes have ids of their
 * own, signal it: its user is nobody there, it is not dumpable but for one moment, and it has
 * capabilities that they have not. Before it gives those up it holds no descriptor but its own
 * three and the null device. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/confine.h"
#include "base/packet.h"
#include "wire/agentmsg.h"
#include "wire/zygotemsg.h"

#define NAMESPACES                                                                                 \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

#define STAND_MS 60000 /* a sandbox that does not stand by then has been given up */

/* What Python calls; see zygote() in kernel.py. */
#pragma GCC visibility push(default)
int zygote_open(void);
int zygote_next(void);
int zygote_fork(void);
void zygote_forked(int pid);
int zygote_join(void);
const char *zygote_enter(size_t *n);
#pragma GCC visibility pop

static struct sock_fprog rules, unknown;
static int ended = -1; /* signalfd: a child has ended */

/* Children that are not reaped. */
static struct child {
	pid_t pid;
	bool told; /* its end: the engine lets it go by ZYGOTE_REAP */
} * children;
static size_t nchildren, capacity;

/* The order that is carried out. */
static char packet[PACKET_MAX];
static size_t packet_len;
static struct zygote_msg order;
static int fds[PACKET_FDS_MAX];
static size_t nfds;

static int say(enum zygote_op op, uint32_t id, int pid, int value)
{
	const struct zygote_msg msg = { .op = op, .id = id, .pid = pid, .value = value };
	return packet_send(ZYGOTE_SOCKET, &msg, sizeof msg, NULL, 0, NULL, 0);
}

static int receive(void)
{
	ssize_t n = packet_recv(ZYGOTE_SOCKET, packet, sizeof packet, fds, &nfds);
	if (n < (ssize_t)sizeof order)
		return -1;
	memcpy(&order, packet, sizeof order);
	packet_len = (size_t)n;
	return 0;
}

static struct sock_fprog program(const char *p, size_t n)
{
	struct sock_fprog f = { .len = (unsigned short)(n / sizeof(struct sock_filter)) };
	f.filter = malloc(n);
	if (f.filter)
		memcpy(f.filter, p, n);
	return f;
}

int zygote_open(void)
{
	const char *body = packet + sizeof order;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	ended = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (ended < 0 || receive() < 0 || order.op != ZYGOTE_FILTERS || order.value < 0 ||
	    (size_t)order.value > packet_len - sizeof order)
		return -1;
	rules = program(body, (size_t)order.value);
	unknown = program(body + order.value, packet_len - sizeof order - (size_t)order.value);
	prctl(PR_SET_DUMPABLE, 0);
	return rules.filter && unknown.filter ? say(ZYGOTE_READY, 0, 0, 0) : -1;
}

/* ---- children ---- */

static int remember(pid_t pid)
{
	if (nchildren == capacity) {
		size_t more = capacity ? 2 * capacity : 64;
		struct child *all = reallocarray(children, more, sizeof *all);
		if (!all)
			return -1;
		children = all;
		capacity = more;
	}
	children[nchildren++] = (struct child){ .pid = pid };
	return 0;
}

/* Tell of those that have ended, but leave them: as long as the engine may still signal one, its
 * number must not become another's. */
static int tell_ended(void)
{
	struct signalfd_siginfo si;
	while (read(ended, &si, sizeof si) == sizeof si)
		;
	for (size_t i = 0; i < nchildren; i++) {
		struct child *c = &children[i];
		siginfo_t info = { 0 };
		if (c->told ||
		    waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
		    !info.si_pid)
			continue;
		c->told = true;
		if (say(ZYGOTE_EXITED, 0, c->pid,
			info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status) < 0)
			return -1;
	}
	return 0;
}

static void reap(pid_t pid)
{
	for (size_t i = 0; i < nchildren; i++) {
		if (children[i].pid != pid || !children[i].told)
			continue;
		waitpid(pid, NULL, 0);
		children[i] = children[--nchildren];
		return;
	}
}

/* Forget it: the variables of one sandbox are nothing for the forks into others. */
static void close_order(void)
{
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
	nfds = 0;
	explicit_bzero(packet, packet_len);
}

/* 0: it is time for zygote_fork, whose child will be in the sandbox's pid namespace. -1: the engine
 * is gone. */
int zygote_next(void)
{
	struct pollfd p[] = { { .fd = ZYGOTE_SOCKET, .events = POLLIN },
			      { .fd = ended, .events = POLLIN } };
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return -1;
		if (p[1].revents && tell_ended() < 0)
			return -1;
		if (!p[0].revents)
			continue;
		if (receive() < 0)
			return -1;
		if (order.op == ZYGOTE_REAP)
			reap(order.pid);
		if (order.op == ZYGOTE_FORK && nfds >= ZYGOTE_GROUPS &&
		    setns(fds[ZYGOTE_SANDBOX], CLONE_NEWPID) == 0)
			return 0;
		if (order.op == ZYGOTE_FORK && say(ZYGOTE_FORKED, order.id, 0, -ESRCH) < 0)
			return -1;
		close_order();
	}
}

/* fork(2), but the child is born into the sandbox's group of version 2: to move there later takes
 * 10 ms. glibc has its thread's id in memory, at an address that it has given to the kernel; the
 * child's must be written there. The pid, 0 in the child, or a negative errno. */
int zygote_fork(void)
{
	int *tid = NULL;
	bool v2 = order.value == 1 && nfds > ZYGOTE_GROUPS;
	struct clone_args args = {
		.flags = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | (v2 ? CLONE_INTO_CGROUP : 0),
		.exit_signal = SIGCHLD,
		.cgroup = v2 ? (uint64_t)fds[ZYGOTE_GROUPS] : 0,
	};
	if (prctl(PR_GET_TID_ADDRESS, &tid) < 0)
		return -errno;
	args.child_tid = (uint64_t)(uintptr_t)tid;
	long pid = syscall(SYS_clone3, &args, sizeof args);
	return pid < 0 ? -errno : (int)pid;
}

/* In the parent: pid, or a negative errno when there is no child. */
void zygote_forked(int pid)
{
	close_order();
	if (pid > 0 && remember(pid) < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		pid = -ENOMEM;
	}
	/* There is no way back from the sandbox's pid namespace (that takes rights over the
	 * machine's own), and no need: nothing is forked here before the next order names another
	 * one. */
	if (say(ZYGOTE_FORKED, order.id, pid > 0 ? pid : 0, pid > 0 ? 0 : pid) < 0)
		_exit(1);
}

/* ---- into the sandbox ---- */

/* The groups of version 1; in that of version 2 it is already. */
static int join_groups(void)
{
	for (size_t i = ZYGOTE_GROUPS + (order.value == 1); i < nfds; i++) {
		_close_ int tasks = openat(fds[i], "tasks", O_WRONLY | O_CLOEXEC);
		if (tasks < 0 || write(tasks, "0", 1) != 1)
			return -1;
	}
	return 0;
}

/* When the machine runs out of memory, a sandbox goes before anything else does. To write this
 * about oneself one must be dumpable; inside nobody can make use of it, since this is still the
 * engine's user and its namespace. */
static int offer_to_oom_killer(void)
{
	prctl(PR_SET_DUMPABLE, 1);
	_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int rc = fd >= 0 && write(fd, "900", 3) == 3 ? 0 : -1;
	prctl(PR_SET_DUMPABLE, 0);
	return rc;
}

/* 0 is the null device, then output, errors, control; nothing else stays open. */
static int place_fds(void)
{
	const int from[] = { open("/dev/null", O_RDWR), fds[ZYGOTE_OUT], fds[ZYGOTE_ERR],
			     fds[ZYGOTE_CONTROL] };
	int high[4];
	for (int i = 0; i < 4; i++)
		if ((high[i] = fcntl(from[i], F_DUPFD, 64)) < 0)
			return -1;
	for (int i = 0; i < 4; i++)
		if (dup2(high[i], i) < 0)
			return -1;
	return close_range(4, ~0u, 0);
}

static int filter(const struct sock_fprog *f)
{
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, f);
}

/* Whether the sandbox stands within so many milliseconds. */
static bool stands(int ms)
{
	struct pollfd gate = { .fd = fds[ZYGOTE_GATE], .events = POLLIN };
	return poll(&gate, 1, ms) == 1 && gate.revents == POLLIN;
}

/* In the child, before anything else: what it uses from here on is the sandbox's. 0, 1 when the
 * sandbox is still being built, -1 when it must not go on. */
int zygote_join(void)
{
	/* Nobody knows of it when the zygote dies before it has told. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	explicit_bzero(children, nchildren * sizeof *children);
	return join_groups() < 0 || offer_to_oom_killer() < 0 ? -1 : !stands(0);
}

static int enter(const char *cwd)
{
	const struct limits limits = { .two_users = order.two_users != 0,
				       .data = order.data,
				       .file_size = order.file_size,
				       .nproc = order.nproc };
	if (!stands(STAND_MS) || setns(fds[ZYGOTE_SANDBOX], NAMESPACES) < 0 || place_fds() < 0 ||
	    setsid() < 0)
		return -1;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	if (confine_become(AGENT_UID, limits.two_users) < 0 || chdir(cwd) < 0)
		return -1;
	confine_limits(&limits);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter(&rules) < 0 ||
	    filter(&unknown) < 0)
		return -1;
	prctl(PR_SET_PDEATHSIG, 0); /* kernels outlive the zygote */
	/* As any program that is executed: it may look at itself in /proc. */
	return prctl(PR_SET_DUMPABLE, 1);
}

/* In the child, once it has joined. The variables of its environment, one NUL-terminated string
 * behind the other, *n bytes; NULL when it must not go on. */
const char *zygote_enter(size_t *n)
{
	const char *strings = packet + sizeof order;
	size_t pos = 0, size = packet_len - sizeof order;
	const char *cwd = agent_string(strings, size, &pos);
	if (!cwd || enter(cwd) < 0)
		return NULL;
	*n = size - pos;
	return strings + pos;
}
