/* sandgate-agent: pid 1 of a sandbox. It starts processes, touches files and reaps, for the engine
 * at the other end of descriptor 3; when that is closed it exits, and with it everything inside.
 *
 * Usage: init TWO_USERS DATA_BYTES FILE_BYTES NPROC (given by the engine's launcher, never by a
 * person). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/compose.h"
#include "agent/connect.h"
#include "agent/files.h"
#include "agent/metadata.h"
#include "agent/spawn.h"
#include "agent/usage.h"
#include "agent/watch.h"
#include "base/cleanup.h"
#include "base/packet.h"
#include "wire/path.h"

#define ENGINE   3
#define LIST_MAX (64u << 20) /* bytes of one directory listing */

#define WALKERS_MAX 64

static struct limits limits;

static void reply(uint32_t id, int value, const void *payload, size_t n, int fd)
{
	struct agent_msg msg = { .op = AGENT_REPLY, .id = id, .value = value };
	if (packet_send(ENGINE, &msg, sizeof msg, payload, n, &fd, fd >= 0 ? 1 : 0) < 0)
		_exit(1); /* the engine is gone, or this stream is broken beyond repair */
}

static struct owner owner_of(const struct agent_msg *msg)
{
	uid_t uid = msg->flags & AGENT_AS_ROOT ? 0 : AGENT_UID;
	return limits.two_users ? (struct owner){ uid, uid }
				: (struct owner){ (uid_t)-1, (gid_t)-1 };
}

static void reply_entry(uint32_t id, int rc, const char *path)
{
	struct buf json = BUF(PACKET_MAX / 2);
	if (rc == 0)
		rc = file_entry(path, &json);
	reply(id, rc, json.p, rc < 0 ? 0 : json.len, -1);
	buf_free(&json);
}

static int list_to_memory(const char *path, int depth, int *fd)
{
	struct buf json = BUF(LIST_MAX);
	_close_ int mem = -1;
	int rc = file_list(path, depth, &json);
	if (rc == 0) {
		mem = memfd_create("list", MFD_CLOEXEC);
		if (mem < 0)
			rc = -errno;
	}
	for (size_t at = 0; rc == 0 && at < json.len;) {
		ssize_t n = write(mem, json.p + at, json.len - at);
		if (n < 0)
			rc = -errno;
		else
			at += (size_t)n;
	}
	buf_free(&json);
	if (rc == 0)
		*fd = steal_fd(&mem);
	return rc;
}

/* Walks of a tree and copies can take long: they run in a child, which answers by itself. One that
 * dies before has its answer given when it is reaped. */
static struct walker {
	pid_t pid; /* 0: free */
	uint32_t id;
} walkers[WALKERS_MAX];

static struct walker *find_walker(pid_t pid)
{
	for (size_t i = 0; i < WALKERS_MAX; i++)
		if (walkers[i].pid == pid)
			return &walkers[i];
	return NULL;
}

static void compose_files(const struct agent_msg *msg, const char *payload, size_t n)
{
	char failed[1 + PATH_TEXT];
	int rc = compose(payload, n, owner_of(msg), failed);
	reply(msg->id, rc, failed, rc < 0 ? strlen(failed) + 1 : 0, -1);
}

static void walk(const struct agent_msg *msg, const char *payload, size_t n)
{
	size_t pos = 0;
	const char *path = agent_string(payload, n, &pos);
	struct walker *w = find_walker(0);
	pid_t pid = w ? fork() : -1;
	if (pid < 0) {
		reply(msg->id, w ? -errno : -EBUSY, NULL, 0, -1);
		return;
	}
	if (pid > 0) {
		*w = (struct walker){ pid, msg->id };
		return;
	}
	if (msg->op == AGENT_COMPOSE) {
		compose_files(msg, payload, n);
		_exit(0);
	}
	int fd = -1;
	int rc = -EINVAL;
	if (path)
		rc = msg->op == AGENT_LIST ? list_to_memory(path, msg->value, &fd)
					   : file_remove(path);
	reply(msg->id, rc, NULL, 0, fd);
	_exit(0);
}

static void open_to_read(const struct agent_msg *msg, const char *path)
{
	_close_ int fd = -1;
	int rc = file_open_read(path, &fd);
	reply(msg->id, rc, NULL, 0, fd);
}

static void open_to_write(const struct agent_msg *msg, const char *path, const char *pairs,
			  size_t n)
{
	_close_ int fd = -1;
	char bad[PATH_TEXT] = "";
	int rc = file_open_write(path, owner_of(msg), &fd, bad);
	if (rc == 0)
		rc = metadata_set(fd, path, pairs, n);
	reply(msg->id, rc, bad, strlen(bad) + 1, rc < 0 ? -1 : fd);
}

static void start(const struct agent_msg *msg, const char *payload, size_t n, const int *fds,
		  size_t nfds)
{
	_close_ int master = -1;
	int rc = spawn(msg, payload, n, fds, nfds, &limits, &master);
	reply(msg->id, rc, NULL, 0, master);
}

static void open_port(const struct agent_msg *msg)
{
	_close_ int fd = -1;
	int rc = connect_port(msg->value, &fd);
	reply(msg->id, rc, NULL, 0, fd);
}

static void send_signal(const struct agent_msg *msg)
{
	pid_t pid = spawn_pid(msg->target);
	int rc = 0;
	if (!pid)
		rc = -ESRCH;
	else if (kill(msg->flags & AGENT_GROUP ? -pid : pid, msg->value) < 0)
		rc = -errno;
	reply(msg->id, rc, NULL, 0, -1);
}

static void report_usage(uint32_t id)
{
	struct agent_usage u;
	usage_read(&u);
	reply(id, 0, &u, sizeof u, -1);
}

static void reply_watch(uint32_t id, int value, const void *payload, size_t n)
{
	reply(id, value, payload, n, -1);
}

static void on_message(const struct agent_msg *msg, const char *payload, size_t n, const int *fds,
		       size_t nfds)
{
	size_t pos = 0;
	const char *path = agent_string(payload, n, &pos);
	size_t behind = pos;
	const char *second = agent_string(payload, n, &pos);
	if (!path)
		path = "";
	switch (msg->op) {
	case AGENT_SPAWN:
		start(msg, payload, n, fds, nfds);
		break;
	case AGENT_SIGNAL:
		send_signal(msg);
		break;
	case AGENT_STOP:
	case AGENT_CONT:
		kill(-1, msg->op == AGENT_STOP ? SIGSTOP : SIGCONT);
		reply(msg->id, 0, NULL, 0, -1);
		break;
	case AGENT_OPEN_READ:
		open_to_read(msg, path);
		break;
	case AGENT_OPEN_WRITE:
		open_to_write(msg, path, payload + behind, n - behind);
		break;
	case AGENT_STAT:
		reply_entry(msg->id, 0, path);
		break;
	case AGENT_MKDIR:
		reply_entry(msg->id, file_mkdir(path, owner_of(msg)), path);
		break;
	case AGENT_MOVE:
		reply_entry(msg->id, second ? file_move(path, second, owner_of(msg)) : -EINVAL,
			    second);
		break;
	case AGENT_LIST:
	case AGENT_REMOVE:
	case AGENT_COMPOSE:
		walk(msg, payload, n);
		break;
	case AGENT_USAGE:
		report_usage(msg->id);
		break;
	case AGENT_WATCH:
		reply(msg->id, watch_begin(msg->id, path, msg->flags), NULL, 0, -1);
		break;
	case AGENT_CHANGES:
		watch_changes(msg->target, msg->id, msg->flags & AGENT_WAIT, reply_watch);
		break;
	case AGENT_UNWATCH:
		watch_end(msg->target, reply_watch);
		reply(msg->id, 0, NULL, 0, -1);
		break;
	case AGENT_CONNECT:
		open_port(msg);
		break;
	default:
		reply(msg->id, -ENOSYS, NULL, 0, -1);
	}
}

static void receive(void)
{
	static char packet[PACKET_MAX];
	int fds[PACKET_FDS_MAX];
	size_t nfds;
	ssize_t n = packet_recv(ENGINE, packet, sizeof packet, fds, &nfds);
	if (n < (ssize_t)sizeof(struct agent_msg))
		_exit(n == 0 ? 0 : 1);
	struct agent_msg msg;
	memcpy(&msg, packet, sizeof msg);
	on_message(&msg, packet + sizeof msg, (size_t)n - sizeof msg, fds, nfds);
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
}

/* As pid 1 the agent inherits every orphan inside: reap them all, report those it was asked to
 * start. */
static void reap(int sigfd)
{
	struct signalfd_siginfo si;
	int status;
	pid_t pid;
	if (read(sigfd, &si, sizeof si) < 0)
		return;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct walker *w = find_walker(pid);
		if (w) {
			w->pid = 0;
			if (status)
				reply(w->id, -EIO, NULL, 0, -1);
			continue;
		}
		uint32_t id = spawn_reaped(pid);
		struct agent_msg msg = { .op = AGENT_EXITED, .id = id, .value = status };
		if (id && packet_send(ENGINE, &msg, sizeof msg, NULL, 0, NULL, 0) < 0)
			_exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	limits = (struct limits){
		.two_users = argv[1][0] == '1',
		.data = strtoull(argv[2], NULL, 10),
		.file_size = strtoull(argv[3], NULL, 10),
		.nproc = strtoull(argv[4], NULL, 10),
	};
	prctl(PR_SET_DUMPABLE,
	      0); /* no process inside may look into this one, not even of the same uid */
	/* Of what is sent from inside the first process hears only what it catches: nothing, also
	 * where a sanitizer would. */
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigset_t chld;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	struct pollfd p[3] = { { .fd = ENGINE, .events = POLLIN },
			       { .fd = signalfd(-1, &chld, SFD_CLOEXEC), .events = POLLIN },
			       { .events = POLLIN } };
	fcntl(ENGINE, F_SETFD, FD_CLOEXEC);
	struct agent_msg ready = { .op = AGENT_READY };
	if (p[1].fd < 0 || packet_send(ENGINE, &ready, sizeof ready, NULL, 0, NULL, 0) < 0)
		return 1;
	for (;;) {
		p[2].fd = watch_fd();
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return 1;
		if (p[1].revents)
			reap(p[1].fd);
		if (p[2].revents)
			watch_pump(reply_watch);
		if (p[0].revents)
			receive();
	}
}
