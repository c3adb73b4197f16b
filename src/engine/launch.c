#include "engine/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/packet.h"
#include "engine/idmap.h"
#include "wire/agentmsg.h"

#define AGENT_SOCKET 3
#define AGENT_EXE    4

/* What the agent keeps as root inside: to act on files for everyone, to start processes as anyone,
 * and to take these very capabilities from them. */
static const int kept[] = { CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
			    CAP_KILL,  CAP_SETGID,       CAP_SETUID, CAP_SETPCAP };

static int drop_bounding(bool two_users)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		bool keep = false;
		for (size_t i = 0; two_users && i < sizeof kept / sizeof *kept; i++)
			keep |= kept[i] == cap;
		if (!keep && prctl(PR_CAPBSET_DROP, cap) < 0)
			return -1;
	}
	return 0;
}

int launch_place_fds(int sock, int program)
{
	int high_sock = fcntl(sock, F_DUPFD_CLOEXEC, 16),
	    high_exe = fcntl(program, F_DUPFD_CLOEXEC, 16);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (high_sock < 0 || high_exe < 0 || null < 0)
		return -1;
	for (int fd = 0; fd < 3; fd++)
		if (dup2(null, fd) < 0)
			return -1;
	if (dup2(high_sock, AGENT_SOCKET) < 0 || dup2(high_exe, AGENT_EXE) < 0 ||
	    fcntl(AGENT_EXE, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return close_range(AGENT_EXE + 1, ~0u, 0);
}

void launch_reset_signals(void)
{
	sigset_t none;
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int build(const struct launch *l, struct err *err)
{
	uid_t uid = l->root.two_users ? 0 : AGENT_UID;
	if (l->root.two_users && setgroups(0, NULL) < 0)
		return err_errno(err, "setgroups");
	if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_errno(err, "change of user");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The change of ids closed /proc/PID/ns to everyone; slirp4netns needs it from now on. */
	prctl(PR_SET_DUMPABLE, 1);
	const struct agent_msg placed = { .op = AGENT_PLACED };
	packet_send(AGENT_SOCKET, &placed, sizeof placed, NULL, 0, NULL, 0);
	setsid();
	/* When the machine runs out of memory, a sandbox goes before anything else does. */
	_close_ int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (oom >= 0 && write(oom, "900", 3) < 0)
		return err_errno(err, "oom_score_adj");
	/* Only here: the group that this process is in now becomes the root of what it can see. */
	if (unshare(CLONE_NEWCGROUP) < 0)
		return err_errno(err, "cgroup namespace");
	if (sethostname("e2b.local", 9) < 0)
		return err_errno(err, "host name");
	if (net_setup(l->unreachable, err) < 0 || rootfs_enter(&l->root, err) < 0)
		return -1;
	if (drop_bounding(l->root.two_users) < 0)
		return err_errno(err, "capabilities");
	if (!l->root.two_users)
		confine_secure(); /* the agent, then without rights, could not */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(err, "no_new_privs");
	if (seccomp_apply(l->filter) < 0)
		return err_errno(err, "seccomp");
	return 0;
}

static void __attribute__((noreturn)) child(const struct launch *l, int sock)
{
	struct agent_msg go, failed = { .op = AGENT_FAILED };
	struct err err = { 0 };
	char numbers[3][24];
	int fds[PACKET_FDS_MAX];
	size_t nfds;
	launch_reset_signals();
	/* First of all: whatever it uses from here on is the sandbox's. */
	if (cgroup_join(l->group) < 0)
		err_errno(&err, "enter the control group");
	if (launch_place_fds(sock, l->agent) < 0)
		_exit(1);
	if (packet_recv(AGENT_SOCKET, &go, sizeof go, fds, &nfds) != sizeof go)
		_exit(1);
	if (!err.code && build(l, &err) == 0) {
		const uint64_t values[] = { l->limits.data, l->limits.file_size, l->limits.nproc };
		for (int i = 0; i < 3; i++)
			snprintf(numbers[i], sizeof numbers[i], "%llu",
				 (unsigned long long)values[i]);
		char *argv[] = { "init",     l->root.two_users ? "1" : "0",
				 numbers[0], numbers[1],
				 numbers[2], NULL };
		char *env[] = { NULL };
		syscall(SYS_execveat, AGENT_EXE, "", argv, env, AT_EMPTY_PATH);
		err_errno(&err, "execute the agent");
	}
	packet_send(AGENT_SOCKET, &failed, sizeof failed, err.text, strlen(err.text) + 1, NULL, 0);
	_exit(1);
}

/* root and user get two ids of this sandbox's own; one host id cannot stand for both. */
static int map_ids(const struct launch *l, pid_t pid)
{
	char text[64];
	if (l->root.two_users)
		snprintf(text, sizeof text, "0 %d 1\n%d %d 1\n", 1 + 2 * l->slot, AGENT_UID,
			 2 + 2 * l->slot);
	else
		snprintf(text, sizeof text, "%d 0 1\n", AGENT_UID);
	if (!l->root.two_users && idmap_write(pid, "setgroups", "deny") < 0)
		return -1;
	return idmap_write(pid, "uid_map", text) < 0 ? -1 : idmap_write(pid, "gid_map", text);
}

int launch(const struct launch *l, pid_t *pid, int *sock, struct err *err)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, "socketpair");
	_close_ int ours = pair[0], theirs = pair[1];
	int size = 2 * PACKET_MAX;
	setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	int birthplace = cgroup_birthplace(l->group);
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
			 CLONE_NEWUTS | (birthplace >= 0 ? CLONE_INTO_CGROUP : 0),
		.exit_signal = SIGCHLD,
		.cgroup = birthplace >= 0 ? (uint64_t)birthplace : 0,
	};
	pid_t p = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (p < 0)
		return err_errno(err, "clone");
	if (p == 0)
		child(l, theirs);
	*pid = p;
	struct agent_msg go = { .op = AGENT_GO };
	if (map_ids(l, p) < 0 || fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ||
	    packet_send(ours, &go, sizeof go, NULL, 0, NULL, 0) < 0) {
		err_errno(err, "id maps");
		kill(p, SIGKILL);
		return -1;
	}
	*sock = steal_fd(&ours);
	return 0;
}

int launch_load(const char *path, struct err *err)
{
	_close_ int in = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (in < 0 || fstat(in, &st) < 0)
		return err_errno(err, "%s", path);
	_close_ int mem = memfd_create("init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (mem < 0)
		return err_errno(err, "memfd_create");
	for (off_t at = 0; at < st.st_size;)
		if (sendfile(mem, in, &at, (size_t)(st.st_size - at)) <= 0)
			return err_errno(err, "load %s", path);
	fchmod(mem, 0555);
	if (fcntl(mem, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_errno(err, "seal %s", path);
	return steal_fd(&mem);
}
