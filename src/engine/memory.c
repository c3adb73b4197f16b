#include "engine/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/memwatch.h"
#include "engine/rootfs.h"
#include "engine/sandbox.h"

#define MB        (1ull << 20)
#define LOOK_US   (SECOND_US / 10) /* between two looks at what all use */
#define FLOOR_MIN (256 * MB)       /* of memory that the machine must have left */
#define AGAIN_US  25000            /* after the word that memory ran out */
#define TRIES     40

/* For the agent, and what the kernel needs for tasks and page tables. */
#define SPARE (64 * MB)

struct memory {
	struct memwatch *watcher; /* NULL where groups limit memory */
	uint64_t most;            /* bytes that all sandboxes may use */
	uint64_t floor;           /* bytes that the machine must have left */
	int64_t looked;           /* CLOCK_MONOTONIC, microseconds */
	uint64_t used, left;      /* as seen then */
};

/* ---- one sandbox ---- */

void memory_limits(const struct template *t, struct cgroup_limits *out)
{
	uint64_t memory = (uint64_t)t->memory_mb * MB, disk = (uint64_t)t->disk_mb * MB;
	/* The disk is in memory and charged to the group, and so are its inodes. A full disk must
	 * not end the sandbox. */
	*out = (struct cgroup_limits){
		.memory = memory + disk + rootfs_inodes(disk) * 1024 + SPARE,
		/* What a user may have, and some for the agent to start help with. */
		.pids = LAUNCH_NPROC + 128,
		.cpus = t->cpu,
	};
}

static void note_end(struct sandbox *s, enum cgroup_oom what)
{
	const struct template *t = s->config.template;
	if (what == CGROUP_OOM_OWN_LIMIT)
		snprintf(s->end_reason, sizeof s->end_reason,
			 "out of memory: the sandbox used more than its %d MiB of memory and %d "
			 "MiB of disk, and was ended",
			 t->memory_mb, t->disk_mb);
	else
		snprintf(s->end_reason, sizeof s->end_reason,
			 "out of memory: the machine had no more, and the sandbox was ended");
	log_line(LOG_WARN, "op=oom sandbox=%s memory_mb=%d disk_mb=%d cause=%s", s->id,
		 t->memory_mb, t->disk_mb, what == CGROUP_OOM_OWN_LIMIT ? "limit" : "machine");
}

static void on_oom_again(void *ctx)
{
	struct sandbox *s = ctx;
	struct memory_watch *w = &s->memory;
	enum cgroup_oom what = cgroup_oom(&s->group);
	if (what != CGROUP_OOM_NO) {
		note_end(s, what);
		sandbox_end(s);
	} else if (++w->tries < TRIES) {
		timer_at(&w->again, s->engine->loop, clock_mono_us() + AGAIN_US, on_oom_again, s);
	}
}

static void on_oom(void *ctx, uint32_t events)
{
	struct sandbox *s = ctx;
	(void)events;
	s->memory.tries = 0;
	on_oom_again(s);
}

static void on_over(void *ctx, uint64_t serial, uint64_t used)
{
	struct engine *e = ctx;
	struct sandbox *s = e->sandboxes;
	(void)used;
	while (s && s->serial != serial)
		s = s->next;
	if (!s) /* those of the pool run nothing that could grow */
		return;
	note_end(s, CGROUP_OOM_OWN_LIMIT);
	sandbox_end(s);
}

int memory_watch(struct sandbox *s, struct err *err)
{
	struct engine *e = s->engine;
	const struct template *t = s->config.template;
	if (e->memory->watcher) {
		const struct memwatch_target target = {
			.serial = s->serial,
			.pid = s->pid,
			.memory = (uint64_t)t->memory_mb * MB + SPARE,
			.disk = (uint64_t)t->disk_mb * MB,
		};
		memwatch_set(e->memory->watcher, s->slot, &target);
		s->memory.watched = true;
		return 0;
	}
	if (watch_add(&s->memory.oom, e->loop, s->group.oom, cgroup_oom_events(&s->group), on_oom,
		      s) < 0)
		return err_errno(err, "watch the control group");
	return 0;
}

void memory_unwatch(struct sandbox *s)
{
	enum cgroup_oom what = s->end_reason[0] ? CGROUP_OOM_NO : cgroup_oom(&s->group);
	if (what != CGROUP_OOM_NO)
		note_end(s, what);
	watch_del(&s->memory.oom);
	timer_stop(&s->memory.again);
	if (s->memory.watched)
		memwatch_clear(s->engine->memory->watcher, s->slot);
	s->memory.watched = false;
}

/* ---- all of them ---- */

static uint64_t read_available(void)
{
	char line[128];
	unsigned long long kb = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	while (f && !kb && fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %llu kB", &kb) != 1)
			kb = 0;
	if (f)
		fclose(f);
	return kb << 10;
}

static void look(struct engine *e)
{
	struct memory *m = e->memory;
	int64_t now = clock_mono_us();
	if (m->looked && now - m->looked < LOOK_US)
		return;
	int64_t used = m->watcher ? (int64_t)memwatch_total(m->watcher)
				  : cgroup_memory_used(&e->ground.tops);
	m->looked = now;
	m->left = read_available();
	if (used >= 0)
		m->used = (uint64_t)used;
}

bool memory_full(struct engine *e, struct err *why)
{
	const struct memory *m = e->memory;
	look(e);
	if (m->used > m->most)
		err_set(why, ERR_UNAVAILABLE,
			"Failed to place sandbox: the sandboxes use %llu of %llu MiB",
			(unsigned long long)(m->used / MB), (unsigned long long)(m->most / MB));
	else if (m->left < m->floor)
		err_set(why, ERR_UNAVAILABLE,
			"Failed to place sandbox: the machine has only %llu MiB of memory left",
			(unsigned long long)(m->left / MB));
	else
		return false;
	return true;
}

bool memory_short(struct engine *e)
{
	const struct memory *m = e->memory;
	look(e);
	return m->used > m->most - m->most / 8 || m->left < m->floor + m->floor / 8;
}

int memory_new(struct engine *e, struct err *err)
{
	struct memory *m = calloc(1, sizeof *m);
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t ceiling = cgroup_memory_ceiling(&e->ground.tops);
	if (!m)
		return err_set(err, ERR_INTERNAL, "no memory");
	if (ceiling < ram)
		ram = ceiling;
	m->most = e->opt->max_memory_mb ? (uint64_t)e->opt->max_memory_mb * MB : ram / 2;
	m->floor = ram / 20 > FLOOR_MIN ? ram / 20 : FLOOR_MIN;
	e->memory = m;
	if (e->ground.tops.by[CGROUP_MEMORY] >= 0)
		return 0;
	return memwatch_new(&m->watcher, e->loop, e->ground.slots, on_over, e, err);
}

void memory_free(struct engine *e)
{
	if (!e->memory)
		return;
	memwatch_free(e->memory->watcher);
	free(e->memory);
	e->memory = NULL;
}

bool memory_reaped(struct engine *e, pid_t pid)
{
	if (!e->memory || !memwatch_reaped(e->memory->watcher, pid))
		return false;
	log_line(LOG_ERROR, "op=memory error=\"the watcher ended and is started anew\"");
	return true;
}

void memory_check(struct engine *e)
{
	if (e->memory->watcher && !memwatch_check(e->memory->watcher))
		log_line(LOG_ERROR, "op=memory error=\"the watcher hangs and is killed\"");
}
