/* The real engine of this build, started on a free port with its state in a temporary folder, and
 * gone without a trace at the end. Its log is printed when it does not come up. */
#ifndef TESTS_LIVE_ENGINE_H
#define TESTS_LIVE_ENGINE_H

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>
#include <ftw.h>

#define LIVE_KEY "e2b_0000000000000000000000000000000000000000"

struct live_engine {
	pid_t pid;
	char dir[128], log[160], url[64];
};

static inline void live_exec(const struct live_engine *e)
{
	char self[PATH_MAX], program[PATH_MAX + 32], state[192];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0)
		_exit(126);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(program, sizeof program, "%s/../sandgate-engine", self);
	snprintf(state, sizeof state, "%s/state", e->dir);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	int log = open(e->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(log, 2);
	dup2(log, 1);
	setenv("SANDGATE_ENGINE_API_KEYS", LIVE_KEY, 1);
	execl(program, program, "--listen", "127.0.0.1:0", "--state", state, "--no-internet", NULL);
	_exit(127);
}

/* The log so far, in a static buffer. */
static inline const char *live_log(const struct live_engine *e)
{
	static char text[64 << 10];
	FILE *f = fopen(e->log, "re");
	size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	return text;
}

static inline int live_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void live_stop(struct live_engine *e)
{
	if (e->pid > 0) {
		kill(e->pid, SIGTERM);
		for (int i = 0; i < 300 && waitpid(e->pid, NULL, WNOHANG) == 0; i++) {
			usleep(100 * 1000);
			if (i == 299) {
				kill(e->pid, SIGKILL);
				waitpid(e->pid, NULL, 0);
			}
		}
	}
	nftw(e->dir, live_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* 0, or -1 with the log on stderr and everything removed. */
static inline int live_start(struct live_engine *e)
{
	const char *tmp = getenv("TMPDIR");
	memset(e, 0, sizeof *e);
	snprintf(e->dir, sizeof e->dir, "%.80s/sandgate-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	/* The engine drops its uid when root starts it, and must still be able to enter. */
	if (!mkdtemp(e->dir) || chmod(e->dir, 0755) < 0)
		return -1;
	snprintf(e->log, sizeof e->log, "%s/log", e->dir);
	e->pid = fork();
	if (e->pid == 0)
		live_exec(e);
	for (int i = 0; i < 600 && waitpid(e->pid, NULL, WNOHANG) == 0; i++) {
		const char *at = strstr(live_log(e), "ready on http://");
		if (at && strchr(at, ';')) {
			at += strlen("ready on ");
			snprintf(e->url, sizeof e->url, "%.*s", (int)strcspn(at, ";"), at);
			return 0;
		}
		usleep(100 * 1000);
	}
	fprintf(stderr, "the engine did not come up: %s\n", live_log(e));
	live_stop(e);
	return -1;
}

#endif
