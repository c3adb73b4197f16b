#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/packet.h"

#define STRINGS_MAX 4096

struct child {
	struct child *next;
	pid_t pid;
	uint32_t id;
};

static struct child *children;

static void limit(int what, uint64_t value)
{
	struct rlimit now, r = { value, value };
	if (getrlimit(what, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < value)
		r.rlim_cur = r.rlim_max = now.rlim_max;
	setrlimit(what, &r);
}

static void set_limits(const struct limits *l)
{
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_NOFILE, 8192);
	limit(RLIMIT_MEMLOCK, 8u << 20);
	limit(RLIMIT_MSGQUEUE, 819200);
	limit(RLIMIT_SIGPENDING, 4096);
	limit(RLIMIT_FSIZE, l->file_size);
	limit(RLIMIT_NPROC, l->nproc);
	limit(RLIMIT_DATA, l->data);
}

/* Nothing that runs for a client has a capability, not even as root: the bounding set is emptied,
 * so that no exec can give one back. */
static int drop_capabilities(void)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap) < 0 && errno != EPERM)
			return -1;
	prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
					 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED);
	return 0;
}

static int become(bool root, bool two_users)
{
	uid_t uid = root ? 0 : AGENT_UID;
	gid_t gid = uid;
	if (two_users) {
		if (drop_capabilities() < 0)
			return -1;
		if (setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0 ||
		    setresuid(uid, uid, uid) < 0)
			return -1;
	}
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0 } };
	return (int)syscall(SYS_capset, &head, none);
}

static void __attribute__((noreturn))
run(const struct agent_msg *msg, const char *cwd, char **argv, char **env, const int *fds,
    size_t nfds, const struct limits *limits)
{
	/* Out of the way first: a received descriptor may itself be 0 to 3. */
	int high[PACKET_FDS_MAX];
	for (size_t i = 0; i < nfds; i++)
		high[i] = fcntl(fds[i], F_DUPFD, 16);
	for (size_t i = 0; i < nfds; i++)
		dup2(high[i], (int)i);
	syscall(SYS_close_range, (unsigned)nfds, ~0u, 0);
	setsid();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	const char *why = NULL;
	if (become((msg->flags & AGENT_AS_ROOT) != 0, limits->two_users) < 0)
		why = "change of user";
	else if (chdir(cwd) < 0)
		why = cwd;
	int code = 126;
	if (!why) {
		set_limits(limits);
		execvpe(argv[0], argv, env);
		code = errno == ENOENT ? 127 : 126;
		why = argv[0];
	}
	/* Nothing that could allocate: the limit on memory is in force already. */
	const char *text = strerrordesc_np(errno);
	struct iovec line[] = { { (void *)why, strlen(why) },
				{ ": ", 2 },
				{ (void *)text, text ? strlen(text) : 0 },
				{ "\n", 1 } };
	if (writev(STDERR_FILENO, line, 4) < 0)
		code = 126;
	_exit(code);
}

/* Split the payload into cwd, argv and env; the arrays end in NULL. */
static int parse(const struct agent_msg *msg, const char *payload, size_t n, const char **cwd,
		 char **argv, char **env)
{
	size_t pos = 0;
	int argc = 0, envc = 0;
	*cwd = agent_string(payload, n, &pos);
	if (!*cwd || msg->value < 1 || msg->value > STRINGS_MAX)
		return -EINVAL;
	while (argc < msg->value) {
		argv[argc] = (char *)agent_string(payload, n, &pos);
		if (!argv[argc++])
			return -EINVAL;
	}
	while (envc < STRINGS_MAX && (env[envc] = (char *)agent_string(payload, n, &pos)))
		envc++;
	argv[argc] = env[envc] = NULL;
	return 0;
}

int spawn(const struct agent_msg *msg, const char *payload, size_t n, const int *fds, size_t nfds,
	  const struct limits *limits)
{
	static char *argv[STRINGS_MAX + 1], *env[STRINGS_MAX + 1];
	const char *cwd;
	struct stat st;
	int rc = parse(msg, payload, n, &cwd, argv, env);
	if (rc < 0)
		return rc;
	if (nfds < 3)
		return -EINVAL;
	if (stat(cwd, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	/* execvpe searches the PATH of this process: make it the one that the program will have. */
	for (char **e = env; *e; e++)
		if (!strncmp(*e, "PATH=", 5))
			setenv("PATH", *e + 5, 1);
	struct child *c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	pid_t pid = fork();
	if (pid == 0)
		run(msg, cwd, argv, env, fds, nfds, limits);
	if (pid < 0) {
		rc = -errno;
		free(c);
		return rc;
	}
	*c = (struct child){ .next = children, .pid = pid, .id = msg->id };
	children = c;
	return pid;
}

pid_t spawn_pid(uint32_t id)
{
	for (struct child *c = children; c; c = c->next)
		if (c->id == id)
			return c->pid;
	return 0;
}

uint32_t spawn_reaped(pid_t pid)
{
	for (struct child **at = &children; *at; at = &(*at)->next) {
		struct child *c = *at;
		if (c->pid == pid) {
			uint32_t id = c->id;
			*at = c->next;
			free(c);
			return id;
		}
	}
	return 0;
}
