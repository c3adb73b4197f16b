#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/terminal.h"
#include "base/cleanup.h"
#include "base/packet.h"

#define STRINGS_MAX 4096

struct child {
	struct child *next;
	pid_t pid;
	uint32_t id;
};

static struct child *children;

/* Descriptors 0 to nfds - 1 become fds; all others are closed. */
static void place(const int *fds, size_t nfds)
{
	/* Out of the way first: a received descriptor may itself be 0 to 3. */
	int high[PACKET_FDS_MAX];
	for (size_t i = 0; i < nfds; i++)
		high[i] = fcntl(fds[i], F_DUPFD, 16);
	for (size_t i = 0; i < nfds; i++)
		dup2(high[i], (int)i);
	syscall(SYS_close_range, (unsigned)nfds, ~0u, 0);
}

static void __attribute__((noreturn))
run(const struct agent_msg *msg, const char *cwd, char **argv, char **env, const int *fds,
    size_t nfds, const struct limits *limits)
{
	place(fds, nfds);
	setsid();
	if (msg->flags & AGENT_PTY)
		terminal_control();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	const char *why = NULL;
	if (confine_become(msg->flags & AGENT_AS_ROOT ? 0 : AGENT_UID, limits->two_users) < 0)
		why = "change of user";
	else if (chdir(cwd) < 0)
		why = cwd;
	int code = 126;
	if (!why) {
		confine_limits(limits);
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

static int open_terminal(const struct agent_msg *msg, const struct limits *limits, int *ours,
			 int *theirs)
{
	uid_t uid = msg->flags & AGENT_AS_ROOT ? 0 : AGENT_UID;
	return terminal_open(msg->target, limits->two_users ? uid : (uid_t)-1, ours, theirs);
}

int spawn(const struct agent_msg *msg, const char *payload, size_t n, const int *fds, size_t nfds,
	  const struct limits *limits, int *master)
{
	static char *argv[STRINGS_MAX + 1], *env[STRINGS_MAX + 1];
	const char *cwd;
	struct stat st;
	int rc = parse(msg, payload, n, &cwd, argv, env);
	if (rc < 0)
		return rc;
	if (!(msg->flags & AGENT_PTY) && nfds < 3)
		return -EINVAL;
	if (stat(cwd, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	/* execvpe searches the PATH of this process: make it the one that the program will have. */
	for (char **e = env; *e; e++)
		if (!strncmp(*e, "PATH=", 5))
			setenv("PATH", *e + 5, 1);
	_close_ int ours = -1, theirs = -1;
	if (msg->flags & AGENT_PTY)
		rc = open_terminal(msg, limits, &ours, &theirs);
	if (rc < 0)
		return rc;
	const int terminal[] = { theirs, theirs, theirs };
	struct child *c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	pid_t pid = fork();
	if (pid == 0)
		run(msg, cwd, argv, env, theirs < 0 ? fds : terminal, theirs < 0 ? nfds : 3,
		    limits);
	if (pid < 0) {
		rc = -errno;
		free(c);
		return rc;
	}
	*c = (struct child){ .next = children, .pid = pid, .id = msg->id };
	children = c;
	*master = steal_fd(&ours);
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
