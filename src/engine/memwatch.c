#include "engine/memwatch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/memwalk.h"

#define WALK_US    200000           /* from one walk to the next, or more when they take long: */
#define SHARE      20               /* at most one part in so many of a processor */
#define WALK_MAX   (5 * SECOND_US)  /* and never more than this */
#define SILENCE_US (30 * SECOND_US) /* then it hangs */
#define AGAIN_US   (SECOND_US / 5)  /* until one that ended is started anew */
#define REPORT_FD  3

/* One line of the table that both see. The engine writes it, the serial last. */
struct row {
	_Atomic uint64_t serial; /* 0: free */
	_Atomic pid_t pid;
	_Atomic uint64_t memory, disk;
};

struct table {
	_Atomic uint64_t total;
	_Atomic int64_t walked; /* CLOCK_MONOTONIC, microseconds: when it was last seen to go on */
	_Atomic int used;       /* rows from here on were never set */
	struct row rows[];
};

struct report {
	uint64_t serial, used;
};

struct memwatch {
	struct loop *loop;
	struct table *table;
	int slots;
	pid_t pid; /* 0: none at the moment */
	int pipe;
	struct watch reports;
	struct timer again;
	void (*over)(void *ctx, uint64_t serial, uint64_t used);
	void *ctx;
};

static size_t table_size(int slots)
{
	return sizeof(struct table) + (size_t)slots * sizeof(struct row);
}

/* ---- the watcher's side ---- */

/* Take over what the engine has written since. A row that changes meanwhile is taken the next time.
 */
static void update(struct memwalk_sandbox *s, struct row *r)
{
	uint64_t serial = atomic_load(&r->serial);
	if (serial == s->serial)
		return;
	*s = (struct memwalk_sandbox){
		.serial = serial,
		.pid = atomic_load(&r->pid),
		.memory = atomic_load(&r->memory),
		.disk = atomic_load(&r->disk),
	};
	if (atomic_load(&r->serial) != serial)
		*s = (struct memwalk_sandbox){ 0 };
}

/* A walk may take long where a thousand processes keep all processors busy. */
static void say_alive(void *ctx)
{
	struct table *t = ctx;
	atomic_store(&t->walked, clock_mono_us());
}

static void walk(struct memwalk *w, struct table *t, struct memwalk_sandbox *s)
{
	uint64_t total = 0;
	int n = atomic_load(&t->used);
	for (int i = 0; i < n; i++)
		update(&s[i], &t->rows[i]);
	if (memwalk_look(w, s, n) < 0)
		_exit(1);
	for (int i = 0; i < n; i++) {
		if (!s[i].serial)
			continue;
		uint64_t used = memwalk_used(&s[i]);
		struct report r = { s[i].serial, used };
		total += used;
		/* A full pipe is no loss: the next walk says it again. */
		if (memwalk_over(&s[i]) && write(REPORT_FD, &r, sizeof r) < 0 && errno != EAGAIN)
			_exit(1);
	}
	atomic_store(&t->total, total);
	say_alive(t);
}

static void __attribute__((noreturn)) watch_memory(struct table *t, int slots, int report)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "sandgate-memory");
	/* Nothing of the engine's: not its sockets, not its signals. */
	if (dup2(report, REPORT_FD) < 0)
		_exit(1);
	close_range(REPORT_FD + 1, ~0u, 0);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	/* A terminal tells all of its processes to end; this one ends with the engine. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	struct memwalk *w;
	struct memwalk_sandbox *s = calloc((size_t)slots, sizeof *s);
	if (!s || memwalk_new(&w, say_alive, t) < 0)
		_exit(1);
	for (;;) {
		/* Not by the wall's clock: on a busy machine it would look less often, too. */
		int64_t begin = clock_cpu_us();
		walk(w, t, s);
		int64_t pause = (clock_cpu_us() - begin) * (SHARE - 1);
		if (pause < WALK_US)
			pause = WALK_US;
		if (pause > WALK_MAX)
			pause = WALK_MAX;
		nanosleep(&(struct timespec){ .tv_sec = pause / SECOND_US,
					      .tv_nsec = pause % SECOND_US * 1000 },
			  NULL);
	}
}

/* ---- the engine's side ---- */

static void on_report(void *ctx, uint32_t events)
{
	struct memwatch *w = ctx;
	struct report r;
	(void)events;
	while (w->pipe >= 0) {
		ssize_t n = read(w->pipe, &r, sizeof r);
		if (n == (ssize_t)sizeof r) {
			w->over(w->ctx, r.serial, r.used);
			continue;
		}
		if (n >= 0 || errno != EAGAIN)
			watch_set(&w->reports, 0); /* it is ending; its reaping comes next */
		return;
	}
}

static int start(struct memwatch *w)
{
	int pair[2];
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	pid_t engine = getpid();
	atomic_store(&w->table->walked, clock_mono_us());
	w->pid = fork();
	if (w->pid == 0) {
		if (getppid() != engine)
			_exit(1);
		watch_memory(w->table, w->slots, pair[1]);
	}
	close(pair[1]);
	w->pipe = pair[0];
	if (w->pid > 0 && watch_add(&w->reports, w->loop, w->pipe, EPOLLIN, on_report, w) == 0)
		return 0;
	int saved = errno;
	close_fd(&w->pipe);
	if (w->pid > 0)
		kill(w->pid, SIGKILL);
	w->pid = w->pid > 0 ? w->pid : 0;
	errno = saved;
	return -1;
}

static void on_again(void *ctx)
{
	struct memwatch *w = ctx;
	if (start(w) < 0 && !w->pid)
		timer_at(&w->again, w->loop, clock_mono_us() + AGAIN_US, on_again, w);
}

int memwatch_new(struct memwatch **out, struct loop *l, int slots,
		 void (*over)(void *ctx, uint64_t serial, uint64_t used), void *ctx,
		 struct err *err)
{
	struct memwatch *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(err, ERR_INTERNAL, "no memory");
	*w = (struct memwatch){ .loop = l, .slots = slots, .pipe = -1, .over = over, .ctx = ctx };
	w->table = mmap(NULL, table_size(slots), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (w->table == MAP_FAILED) {
		free(w);
		return err_errno(err, "memory of the watcher");
	}
	if (start(w) < 0) {
		err_errno(err, "start the watcher of memory");
		memwatch_free(w);
		return -1;
	}
	*out = w;
	return 0;
}

void memwatch_free(struct memwatch *w)
{
	if (!w)
		return;
	timer_stop(&w->again);
	watch_del(&w->reports);
	close_fd(&w->pipe);
	if (w->pid > 0)
		kill(w->pid, SIGKILL);
	munmap(w->table, table_size(w->slots));
	free(w);
}

void memwatch_set(struct memwatch *w, int slot, const struct memwatch_target *t)
{
	struct row *r = &w->table->rows[slot];
	atomic_store(&r->serial, 0);
	atomic_store(&r->pid, t->pid);
	atomic_store(&r->memory, t->memory);
	atomic_store(&r->disk, t->disk);
	atomic_store(&r->serial, t->serial);
	if (slot >= atomic_load(&w->table->used))
		atomic_store(&w->table->used, slot + 1);
}

void memwatch_clear(struct memwatch *w, int slot)
{
	atomic_store(&w->table->rows[slot].serial, 0);
}

uint64_t memwatch_total(const struct memwatch *w)
{
	return atomic_load(&w->table->total);
}

bool memwatch_reaped(struct memwatch *w, pid_t pid)
{
	if (!w || pid != w->pid)
		return false;
	w->pid = 0;
	watch_del(&w->reports);
	close_fd(&w->pipe);
	timer_at(&w->again, w->loop, clock_mono_us() + AGAIN_US, on_again, w);
	return true;
}

bool memwatch_check(struct memwatch *w)
{
	if (!w->pid || clock_mono_us() - atomic_load(&w->table->walked) < SILENCE_US)
		return true;
	kill(w->pid, SIGKILL);
	return false;
}
