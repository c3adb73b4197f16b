#include "engine/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PERIOD_US 100000 /* of the quota on processors */
#define STAT_ROOM 16384  /* the longest file that is read here */
#define FULL_SLACK                                                                                 \
	(4ull << 20) /* memory is taken in pieces: so near to its limit a group is full */

static int write_at(int dir, const char *name, const char *text)
{
	_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

static int write_number(int dir, const char *name, uint64_t n)
{
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)n);
	return write_at(dir, name, text);
}

/* Some kernels are built or started without it. */
static int write_if_there(int dir, const char *name, const char *text)
{
	return write_at(dir, name, text) < 0 && errno != ENOENT && errno != EOPNOTSUPP ? -1 : 0;
}

/* ---- where what is ---- */

static const struct cgroup_top *top_for(const struct cgroup *g, enum cgroup_use use)
{
	int at = g->tops ? g->tops->by[use] : -1;
	return at < 0 ? NULL : &g->tops->top[at];
}

static int dir_for(const struct cgroup *g, enum cgroup_use use)
{
	return g->dir[g->tops->by[use]];
}

static void folder(const struct cgroup *g, int i, char out[CGROUP_PATH + CGROUP_NAME + 1])
{
	snprintf(out, CGROUP_PATH + CGROUP_NAME + 1, "%s/%s", g->tops->top[i].path, g->name);
}

/* ---- limits ---- */

static int limit_memory(const struct cgroup *g, uint64_t bytes)
{
	int dir = dir_for(g, CGROUP_MEMORY);
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
	if (!top_for(g, CGROUP_MEMORY)->v2)
		/* The sum of memory and swap can only be limited after memory. */
		return write_at(dir, "memory.limit_in_bytes", text) < 0 ||
				       write_if_there(dir, "memory.swappiness", "0") < 0
			       ? -1
			       : write_if_there(dir, "memory.memsw.limit_in_bytes", text);
	/* Out of memory, the kernel kills all of it at once and not one process of its choice. */
	return write_at(dir, "memory.max", text) < 0 ||
			       write_if_there(dir, "memory.swap.max", "0") < 0 ||
			       write_at(dir, "memory.oom.group", "1") < 0
		       ? -1
		       : 0;
}

static int limit_cpu(const struct cgroup *g, int cpus)
{
	int dir = dir_for(g, CGROUP_CPU);
	char text[48];
	if (top_for(g, CGROUP_CPU)->v2) {
		snprintf(text, sizeof text, "%d %d", cpus * PERIOD_US, PERIOD_US);
		return write_at(dir, "cpu.max", text);
	}
	if (write_number(dir, "cpu.cfs_period_us", PERIOD_US) < 0)
		return -1;
	/* More than a group above has is refused: then that one holds. */
	return write_number(dir, "cpu.cfs_quota_us", (uint64_t)cpus * PERIOD_US) < 0 &&
			       errno != EINVAL
		       ? -1
		       : 0;
}

static int set_limits(const struct cgroup *g, const struct cgroup_limits *l, struct err *err)
{
	if (top_for(g, CGROUP_MEMORY) && limit_memory(g, l->memory) < 0)
		return err_errno(err, "limit of memory");
	if (top_for(g, CGROUP_PIDS) &&
	    write_number(dir_for(g, CGROUP_PIDS), "pids.max", (uint64_t)l->pids) < 0)
		return err_errno(err, "limit of processes");
	if (top_for(g, CGROUP_CPU) && limit_cpu(g, l->cpus) < 0)
		return err_errno(err, "limit of processors");
	return 0;
}

/* ---- out of memory ---- */

/* Version 1 writes to an eventfd that it is told of; of version 2 a file changes. */
static int watch_oom(struct cgroup *g)
{
	const struct cgroup_top *top = top_for(g, CGROUP_MEMORY);
	char text[32];
	if (!top)
		return 0;
	int dir = dir_for(g, CGROUP_MEMORY);
	if (top->v2) {
		g->oom = openat(dir, "memory.events", O_RDONLY | O_CLOEXEC);
		if (g->oom >= 0)
			cgroup_oom(g); /* what is read once is no news */
		return g->oom < 0 ? -1 : 0;
	}
	_close_ int control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	if (control < 0)
		return -1;
	g->oom = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->oom < 0)
		return -1;
	snprintf(text, sizeof text, "%d %d", g->oom, control);
	return write_at(dir, "cgroup.event_control", text);
}

/* The number behind a name at the begin of a line; 0 when there is none. */
static uint64_t value_of(const char *text, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = text; p; p = (p = strchr(p, '\n')) ? p + 1 : NULL)
		if (!strncmp(p, name, n) && p[n] == ' ')
			return strtoull(p + n, NULL, 10);
	return 0;
}

static int read_text(int fd, char out[STAT_ROOM])
{
	ssize_t n = pread(fd, out, STAT_ROOM - 1, 0);
	out[n < 0 ? 0 : n] = '\0';
	return n < 0 ? -1 : 0;
}

static uint64_t read_count(int dir, const char *name)
{
	char text[STAT_ROOM];
	_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	return fd < 0 || read_text(fd, text) < 0 ? 0 : strtoull(text, NULL, 10);
}

uint32_t cgroup_oom_events(const struct cgroup *g)
{
	const struct cgroup_top *top = top_for(g, CGROUP_MEMORY);
	return top && top->v2 ? EPOLLPRI : EPOLLIN;
}

enum cgroup_oom cgroup_oom(const struct cgroup *g)
{
	const struct cgroup_top *top = top_for(g, CGROUP_MEMORY);
	char text[STAT_ROOM];
	uint64_t count;
	if (!top || g->oom < 0)
		return CGROUP_OOM_NO;
	if (top->v2) {
		if (read_text(g->oom, text) < 0 || !value_of(text, "oom_kill"))
			return CGROUP_OOM_NO;
		return value_of(text, "oom") ? CGROUP_OOM_OWN_LIMIT : CGROUP_OOM_ABOVE;
	}
	while (read(g->oom, &count, sizeof count) > 0)
		;
	int dir = dir_for(g, CGROUP_MEMORY);
	_close_ int control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	if (control < 0 || read_text(control, text) < 0 || !value_of(text, "oom_kill"))
		return CGROUP_OOM_NO;
	/* Newer kernels do not count failures any more. */
	uint64_t limit = read_count(dir, "memory.limit_in_bytes");
	return read_count(dir, "memory.max_usage_in_bytes") + FULL_SLACK >= limit
		       ? CGROUP_OOM_OWN_LIMIT
		       : CGROUP_OOM_ABOVE;
}

/* What a group and those below it hold, or -1. */
static int64_t read_held(const struct cgroup_top *top, const char *below)
{
	char path[CGROUP_PATH + 32], text[STAT_ROOM];
	snprintf(path, sizeof path, "%s%s/memory.stat", top->path, below);
	_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read_text(fd, text) < 0)
		return -1;
	return (int64_t)(value_of(text, top->v2 ? "anon" : "total_rss") +
			 value_of(text, top->v2 ? "shmem" : "total_shmem"));
}

int64_t cgroup_memory_used(const struct cgroup_tops *t)
{
	if (t->by[CGROUP_MEMORY] < 0)
		return -1;
	const struct cgroup_top *top = &t->top[t->by[CGROUP_MEMORY]];
	int64_t all = read_held(top, ""), engine = read_held(top, "/" CGROUP_LEAF);
	if (all < 0 || engine < 0)
		return -1;
	return all > engine ? all - engine : 0;
}

/* Version 1 tells it for the whole way up. In version 2 each group on the way is asked, up to the
 * root, which has no such file. */
uint64_t cgroup_memory_ceiling(const struct cgroup_tops *t)
{
	char path[CGROUP_PATH + 16], text[STAT_ROOM];
	uint64_t least = UINT64_MAX;
	if (t->by[CGROUP_MEMORY] < 0)
		return least;
	const struct cgroup_top *top = &t->top[t->by[CGROUP_MEMORY]];
	for (size_t n = strlen(top->path); n; n--) {
		if (top->path[n] != '/' && top->path[n] != '\0')
			continue;
		snprintf(path, sizeof path, "%.*s/%s", (int)n, top->path,
			 top->v2 ? "memory.max" : "memory.stat");
		_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read_text(fd, text) < 0)
			break;
		uint64_t most = top->v2 ? strtoull(text, NULL, 10)
					: value_of(text, "hierarchical_memory_limit");
		if (most && most < least) /* "max" is no number */
			least = most;
		if (!top->v2)
			break;
	}
	return least;
}

/* ---- making and freeing ---- */

int cgroup_make(struct cgroup *out, const struct cgroup_tops *tops, const char *name,
		const struct cgroup_limits *limits, struct err *err)
{
	struct cgroup g = { .tops = tops, .oom = -1 };
	char path[CGROUP_PATH + CGROUP_NAME + 1];
	*out = (struct cgroup){ 0 };
	if (!tops->n)
		return 0;
	snprintf(g.name, sizeof g.name, "%s", name);
	for (int i = 0; i < tops->n; i++)
		g.dir[i] = -1;
	int rc = 0;
	for (int i = 0; rc == 0 && i < tops->n; i++) {
		folder(&g, i, path);
		if (mkdir(path, 0755) < 0 ||
		    (g.dir[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
			rc = err_errno(err, "control group");
	}
	if (rc == 0)
		rc = set_limits(&g, limits, err);
	if (rc == 0 && watch_oom(&g) < 0)
		rc = err_errno(err, "word of the end of memory");
	if (rc < 0)
		cgroup_free(&g);
	else
		*out = g;
	return rc;
}

void cgroup_free(struct cgroup *g)
{
	char path[CGROUP_PATH + CGROUP_NAME + 1];
	if (!g->tops)
		return;
	close_fd(&g->oom);
	for (int i = 0; i < g->tops->n; i++) {
		close_fd(&g->dir[i]);
		folder(g, i, path);
		rmdir(path);
	}
	*g = (struct cgroup){ 0 };
}

/* ---- entering ---- */

int cgroup_birthplace(const struct cgroup *g)
{
	for (int i = 0; g->tops && i < g->tops->n; i++)
		if (g->tops->top[i].v2)
			return g->dir[i];
	return -1;
}

int cgroup_join(const struct cgroup *g)
{
	for (int i = 0; g->tops && i < g->tops->n; i++)
		if (!g->tops->top[i].v2 && write_at(g->dir[i], "tasks", "0") < 0)
			return -1;
	return 0;
}

size_t cgroup_parts(const struct cgroup *g, int dirs[CGROUP_TOPS])
{
	size_t n = 0;
	int v2 = cgroup_birthplace(g);
	if (v2 >= 0)
		dirs[n++] = v2;
	for (int i = 0; g->tops && i < g->tops->n; i++)
		if (!g->tops->top[i].v2)
			dirs[n++] = g->dir[i];
	return n;
}

/* ---- all of it at once ---- */

bool cgroup_can_freeze(const struct cgroup *g)
{
	return top_for(g, CGROUP_FREEZER) != NULL;
}

int cgroup_freeze(const struct cgroup *g, bool frozen)
{
	const struct cgroup_top *top = top_for(g, CGROUP_FREEZER);
	if (!top) {
		errno = ENOTSUP;
		return -1;
	}
	int dir = dir_for(g, CGROUP_FREEZER);
	return top->v2 ? write_at(dir, "cgroup.freeze", frozen ? "1" : "0")
		       : write_at(dir, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

void cgroup_kill(const struct cgroup *g)
{
	const struct cgroup_top *freezer = top_for(g, CGROUP_FREEZER);
	int v2 = cgroup_birthplace(g);
	if (v2 >= 0)
		write_at(v2, "cgroup.kill", "1");
	if (freezer && !freezer->v2)
		cgroup_freeze(g, false);
}
