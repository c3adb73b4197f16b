#include "engine/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/idmap.h"

#define IDS        65536 /* how many host ids the engine's namespace has when started as root */
#define STAGE      "/mnt"
#define STOP_SECS  20 /* after SIGTERM the engine has this long before the keeper kills it */
#define TRACE_LINE (CGROUP_PATH + 32)
#define LOCK_US    (2 * SECOND_US) /* for the lock of one that was killed just now */

/* ---- the state folder ---- */

static void lock_path(char *out, size_t cap, const char *dir)
{
	snprintf(out, cap, "%s/lock", dir);
}

/* One engine a folder; the lock dies with the keeper, however it ends. An engine that ends removes
 * the file, so the one we locked may be another than the one that is there now: then it is tried
 * again. One that was killed may take a moment to be gone. */
static int lock_state(const char *dir, int *held, struct err *err)
{
	char path[4096];
	struct stat ours, there;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_errno(err, "--state %s", dir);
	lock_path(path, sizeof path, dir);
	for (int64_t until = clock_mono_us() + LOCK_US; clock_mono_us() < until;) {
		_close_ int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (lock < 0)
			return err_errno(err, "--state %s: lock", dir);
		if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
			usleep(20000);
			continue;
		}
		if (fstat(lock, &ours) == 0 && stat(path, &there) == 0 &&
		    ours.st_ino == there.st_ino) {
			*held = steal_fd(&lock);
			return 0;
		}
	}
	return err_set(err, ERR_CONFLICT, "--state %s is in use by another engine", dir);
}

static void trace_path(char *out, size_t cap, const char *dir)
{
	snprintf(out, cap, "%s/cgroup", dir);
}

/* After a crash the only thing that outlives the processes is the control groups. */
static void clean_traces(const char *dir)
{
	char path[4096], line[TRACE_LINE];
	struct cgroup_tops left = { 0 };
	trace_path(path, sizeof path, dir);
	FILE *f = fopen(path, "re");
	if (!f)
		return;
	while (left.n < CGROUP_TOPS && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		if (cgroup_top_parse(&left.top[left.n], line) == 0)
			left.n++;
	}
	fclose(f);
	cgroup_tops_remove(&left);
	unlink(path);
}

static int leave_trace(const char *dir, const struct cgroup_tops *tops)
{
	char path[4096], line[TRACE_LINE];
	int rc = 0;
	trace_path(path, sizeof path, dir);
	FILE *f = fopen(path, "we");
	if (!f)
		return -1;
	for (int i = 0; rc == 0 && i < tops->n; i++) {
		cgroup_top_print(&tops->top[i], line, sizeof line);
		rc = fprintf(f, "%s\n", line) < 0 ? -1 : 0;
	}
	return fclose(f) < 0 ? -1 : rc;
}

static void make_cgroups(const struct options *o, struct ground *g)
{
	uid_t uid = geteuid() == 0 ? o->uid_base : geteuid();
	if (!o->cgroups) {
		cgroup_tops_none(&g->tops, "switched off");
		return;
	}
	/* The trace first: a group that nobody knows of could never be removed. */
	cgroup_tops_find(&g->tops, "/proc/self/cgroup", "/proc/self/mountinfo");
	if (leave_trace(o->state, &g->tops) < 0)
		cgroup_tops_none(&g->tops, "nothing can be written to the state folder");
	else
		cgroup_tops_make(&g->tops, uid);
}

/* ---- id maps ---- */

/* The first range that /etc/subuid or /etc/subgid gives this user. */
static int find_range(const char *file, unsigned *start, unsigned *count)
{
	struct passwd *pw = getpwuid(getuid());
	char line[256], name[128], number[16];
	int rc = -1;
	snprintf(number, sizeof number, "%u", getuid());
	FILE *f = fopen(file, "re");
	while (f && rc < 0 && fgets(line, sizeof line, f))
		if (sscanf(line, "%127[^:]:%u:%u", name, start, count) == 3 && *count >= 2 &&
		    (!strcmp(name, number) || (pw && !strcmp(name, pw->pw_name))))
			rc = 0;
	if (f)
		fclose(f);
	return rc;
}

/* newuidmap is setuid root: the only way for an ordinary user to ids of his range. */
static int run_newmap(const char *program, pid_t target, unsigned own, unsigned start,
		      unsigned count)
{
	char a[4][16];
	const unsigned values[] = { (unsigned)target, own, start, count };
	for (int i = 0; i < 4; i++)
		snprintf(a[i], sizeof a[i], "%u", values[i]);
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 2);
		execlp(program, program, a[0], "0", a[1], "1", "1", a[2], a[3], (char *)NULL);
		_exit(127);
	}
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int map_ids(pid_t pid, const struct options *o, struct ground *g)
{
	char text[64];
	unsigned us = 0, uc = 0, gs = 0, gc = 0;
	if (geteuid() == 0) {
		snprintf(text, sizeof text, "0 %u %u", o->uid_base, IDS);
		g->two_users = true;
		g->slots = IDS / 2 - 1;
		return idmap_write(pid, "uid_map", text) < 0 ? -1
							     : idmap_write(pid, "gid_map", text);
	}
	if (find_range("/etc/subuid", &us, &uc) == 0 && find_range("/etc/subgid", &gs, &gc) == 0 &&
	    run_newmap("newuidmap", pid, getuid(), us, uc) == 0) {
		g->two_users = true;
		g->slots = (int)((uc < gc ? uc : gc) / 2);
		return run_newmap("newgidmap", pid, getgid(), gs, gc);
	}
	g->two_users = false;
	g->slots = IDS;
	snprintf(text, sizeof text, "0 %u 1", getuid());
	if (idmap_write(pid, "uid_map", text) < 0)
		return -1;
	snprintf(text, sizeof text, "0 %u 1", getgid());
	return idmap_write(pid, "setgroups", "deny") < 0 ? -1 : idmap_write(pid, "gid_map", text);
}

/* ---- the engine's side ---- */

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "sandgate-engine: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* A private mount namespace: the wheels at a fixed place, whatever folders on the way to them are
 * closed, and a tun device that may be opened. It vanishes with the last process in it. */
static void stage_mounts(const struct options *o, struct ground *g)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		die("mount namespace");
	_close_ int wheels =
		o->wheelhouse ? open(o->wheelhouse, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (o->wheelhouse && wheels < 0)
		die(o->wheelhouse);
	if (mount("stage", STAGE, "tmpfs", MS_NOSUID, "mode=0755,size=64k") < 0)
		die("mount " STAGE);
	if (wheels >= 0) {
		char from[64];
		snprintf(from, sizeof from, "/proc/self/fd/%d", wheels);
		if (mkdir(KEEPER_WHEELS, 0755) < 0 ||
		    mount(from, KEEPER_WHEELS, NULL, MS_BIND | MS_REC, NULL) < 0)
			die("mount the wheelhouse");
	}
	struct stat st;
	bool open_to_all = stat("/dev/net/tun", &st) == 0 && (st.st_mode & 0006) == 0006;
	if (!open_to_all && geteuid() == 0) {
		mode_t mask = umask(0);
		open_to_all = mknod(STAGE "/tun", S_IFCHR | 0666, makedev(10, 200)) == 0 &&
			      mount(STAGE "/tun", "/dev/net/tun", NULL, MS_BIND, NULL) == 0;
		umask(mask);
	}
	_close_ int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	g->tun = open_to_all && tun >= 0;
}

/* Hand over to the other side and wait for its word; whoever breaks off ends us too. */
static void meet(int sock, const void *out, size_t nout, void *in, size_t nin)
{
	if (nout && send(sock, out, nout, MSG_NOSIGNAL) != (ssize_t)nout)
		_exit(1);
	if (nin && recv(sock, in, nin, MSG_WAITALL) != (ssize_t)nin)
		_exit(1);
}

static void become_engine(const struct options *o, struct ground *g, int sock, pid_t keeper)
{
	bool root = geteuid() == 0;
	bool tun = false;
	if (root) {
		stage_mounts(o, g);
		tun = g->tun;
	}
	if (unshare(CLONE_NEWUSER) < 0)
		die("user namespace (is kernel.unprivileged_userns_clone off?)");
	meet(sock, "u", 1, g, sizeof *g);
	if ((g->two_users && setgroups(0, NULL) < 0) || setresgid(0, 0, 0) < 0 ||
	    setresuid(0, 0, 0) < 0)
		die("change of user");
	if (!root) {
		stage_mounts(o, g);
		tun = g->tun;
	}
	g->tun = tun;
	/* Needed for the id maps of the sandboxes that will be forked from here. */
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	meet(sock, "d", 1, NULL, 0);
	if (getppid() != keeper)
		_exit(1);
}

/* ---- the keeper's side ---- */

static void __attribute__((noreturn)) finish(const struct options *o, struct ground *g, int status)
{
	char path[4096];
	cgroup_tops_remove(&g->tops);
	trace_path(path, sizeof path, o->state);
	unlink(path);
	lock_path(path, sizeof path, o->state);
	unlink(path);
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	fprintf(stderr, "sandgate-engine: the engine was ended by signal %d\n", WTERMSIG(status));
	_exit(1);
}

static void __attribute__((noreturn))
keep(const struct options *o, struct ground *g, pid_t engine, int lock, const sigset_t *signals)
{
	bool stopping = false;
	/* Nothing of the engine's: a socket that listens here would take calls that nobody answers.
	 */
	if (dup2(lock, 3) == 3)
		close_range(4, ~0u, 0);
	for (;;) {
		const struct timespec limit = { .tv_sec = STOP_SECS };
		int status, sig = stopping ? sigtimedwait(signals, NULL, &limit)
					   : sigwaitinfo(signals, NULL);
		if (sig == SIGCHLD) {
			if (waitpid(engine, &status, WNOHANG) == engine)
				finish(o, g, status);
		} else if (sig > 0) {
			kill(engine, SIGTERM);
			stopping = true;
		} else if (stopping && errno == EAGAIN) {
			kill(engine, SIGKILL);
		}
	}
}

int keeper_split(const struct options *o, struct ground *g, struct err *err)
{
	int pair[2];
	sigset_t signals, before;
	*g = (struct ground){ 0 };
	int lock;
	if (lock_state(o->state, &lock, err) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, "socketpair");
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, &before);
	clean_traces(o->state);
	make_cgroups(o, g);
	pid_t keeper = getpid(), engine = fork();
	if (engine < 0)
		return err_errno(err, "fork");
	if (engine == 0) {
		close(pair[0]);
		sigprocmask(SIG_SETMASK, &before, NULL);
		become_engine(o, g, pair[1], keeper);
		close(pair[1]);
		return 0;
	}
	close(pair[1]);
	char word;
	bool ok = recv(pair[0], &word, 1, 0) == 1;
	if (ok && map_ids(engine, o, g) < 0) {
		fprintf(stderr, "sandgate-engine: the id maps could not be written: %s\n",
			strerror(errno));
		ok = false;
	}
	if (ok && cgroup_tops_enter(&g->tops, engine) < 0) {
		char why[96];
		snprintf(why, sizeof why, "the engine cannot enter: %s", strerror(errno));
		cgroup_tops_remove(&g->tops);
		cgroup_tops_none(&g->tops, why);
	}
	if (ok)
		ok = send(pair[0], g, sizeof *g, MSG_NOSIGNAL) == sizeof *g &&
		     recv(pair[0], &word, 1, 0) == 1;
	close(pair[0]);
	if (!ok)
		kill(engine, SIGKILL);
	keep(o, g, engine, lock, &signals);
}
