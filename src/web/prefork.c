#include "web/prefork.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "web/sockets.h"
#include "web/worker.h"

#define TICK_MS     1000
#define SHRINK_SECS 10              /* idle this long before workers are let go */
#define YOUNG_US    SECOND_US       /* a worker that dies younger than this is trouble */
#define BACKOFF_MAX (5 * SECOND_US) /* and another is started this late at the most */
#define TEND_US     (60 * SECOND_US)
#define END_US      (2 * SECOND_US) /* from SIGTERM to SIGKILL, for a worker that is to end */
#define STATUS_US   (5 * SECOND_US)

struct master {
	const struct prefork_config *c;
	struct board *board;
	int listen[POOLS];
	int signals;
	unsigned generation;
	struct {
		int64_t not_before; /* no worker is started earlier */
		int64_t backoff;
	} start[POOLS];
	int idle_secs;   /* the exec pool has had more than it needs */
	int64_t tend_at; /* when to call the app's tend next */
	bool draining, ending;
	int64_t kill_at;
	struct notify notify;
	int64_t status_at; /* when to tell the service manager next what the workers do */
};

/* ---- workers ---- */

static int alive(struct master *m, enum pool pool)
{
	return m->c->size[pool] - board_count(m->board, pool, SLOT_FREE);
}

static struct slot *free_slot(struct master *m, enum pool pool)
{
	for (int i = 0; i < board_size(m->board); i++) {
		struct slot *s = board_slot(m->board, i);
		if (s->pool == pool && atomic_load(&s->state) == SLOT_FREE)
			return s;
	}
	return NULL;
}

static void start_worker(struct master *m, enum pool pool)
{
	struct slot *s = free_slot(m, pool);
	if (!s || m->ending || clock_mono_us() < m->start[pool].not_before)
		return;
	atomic_store(&s->key, 0);
	board_clear_wake(s);
	atomic_store(&s->state, SLOT_IDLE);
	s->started = clock_mono_us();
	s->generation = m->generation;
	pid_t master = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != master)
			_exit(1);
		close(m->signals);
		notify_close(&m->notify);
		close(m->listen[pool == POOL_QUICK ? POOL_EXEC : POOL_QUICK]);
		worker_run(m->listen[pool], m->c->app, m->board, s);
	}
	if (pid < 0) {
		log_line(LOG_ERROR, "op=fork error=\"%s\"", strerror(errno));
		atomic_store(&s->state, SLOT_FREE);
		m->start[pool].not_before = clock_mono_us() + SECOND_US;
		return;
	}
	s->pid = pid;
}

static void keep_enough(struct master *m)
{
	while (alive(m, POOL_QUICK) < m->c->size[POOL_QUICK]) {
		int before = alive(m, POOL_QUICK);
		start_worker(m, POOL_QUICK);
		if (alive(m, POOL_QUICK) == before)
			break;
	}
	for (int i = alive(m, POOL_EXEC); i < m->c->exec_start; i++)
		start_worker(m, POOL_EXEC);
}

/* The last idle worker has been taken: as many again, up to the limit. */
static void grow(struct master *m)
{
	int n = alive(m, POOL_EXEC);
	if (m->draining || board_count(m->board, POOL_EXEC, SLOT_IDLE))
		return;
	for (int i = 0; i < n && alive(m, POOL_EXEC) < m->c->size[POOL_EXEC]; i++)
		start_worker(m, POOL_EXEC);
	m->idle_secs = 0;
}

/* A quarter of the surplus goes each second, once it has lasted. Whoever is just taking a
 * connection finishes it. */
static void shrink(struct master *m)
{
	int all = alive(m, POOL_EXEC), idle = board_count(m->board, POOL_EXEC, SLOT_IDLE);
	int surplus = idle - all / 2;
	if (all - surplus < m->c->exec_start)
		surplus = all - m->c->exec_start;
	m->idle_secs = surplus > 0 ? m->idle_secs + 1 : 0;
	if (m->idle_secs < SHRINK_SECS)
		return;
	int leave = (surplus + 3) / 4;
	for (int i = board_size(m->board) - 1; i >= 0 && leave > 0; i--) {
		struct slot *s = board_slot(m->board, i);
		if (s->pool == POOL_EXEC && atomic_load(&s->state) == SLOT_IDLE) {
			kill(s->pid, SIGTERM);
			leave--;
		}
	}
}

static void signal_workers(struct master *m, int sig, unsigned older_than)
{
	for (int i = 0; i < board_size(m->board); i++) {
		struct slot *s = board_slot(m->board, i);
		if (atomic_load(&s->state) != SLOT_FREE && s->generation < older_than)
			kill(s->pid, sig);
	}
}

/* A worker that fails as soon as it stands would be started again without end. */
static void note_death(struct master *m, struct slot *s, int status)
{
	enum pool pool = s->pool;
	bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	if (WIFSIGNALED(status) && !m->ending)
		log_line(LOG_ERROR, "op=worker pid=%d error=\"ended by signal %d\"", s->pid,
			 WTERMSIG(status));
	if (failed)
		m->tend_at = 0;
	if (!failed || clock_mono_us() - s->started > YOUNG_US) {
		m->start[pool].backoff = 0;
		return;
	}
	int64_t next = m->start[pool].backoff ? 2 * m->start[pool].backoff : SECOND_US / 10;
	m->start[pool].backoff = next < BACKOFF_MAX ? next : BACKOFF_MAX;
	m->start[pool].not_before = clock_mono_us() + m->start[pool].backoff;
}

static void reap(struct master *m)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < board_size(m->board); i++) {
			struct slot *s = board_slot(m->board, i);
			if (atomic_load(&s->state) == SLOT_FREE || s->pid != pid)
				continue;
			note_death(m, s, status);
			atomic_store(&s->key, 0);
			atomic_store(&s->lingers, false);
			atomic_store(&s->state, SLOT_FREE);
			s->pid = 0;
		}
	}
}

/* ---- the end ---- */

static void begin_drain(struct master *m)
{
	if (m->draining)
		return;
	m->draining = true;
	board_drain(m->board, clock_mono_us() + m->c->drain_secs * SECOND_US);
	log_line(LOG_INFO, "op=drain secs=%d", m->c->drain_secs);
	/* Twice the time from SIGTERM to SIGKILL, so that the manager is never the one to kill. */
	notify_say(&m->notify, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld",
		   m->c->drain_secs * SECOND_US + 2 * END_US);
}

/* Idle workers go on serving while others finish, so that new calls hear why they are refused. */
static void check_drain(struct master *m)
{
	int64_t now = clock_mono_us(), deadline = 0;
	board_draining(m->board, &deadline);
	if (!m->ending && (now >= deadline || board_count(m->board, POOL_EXEC, SLOT_BUSY) == 0)) {
		m->ending = true;
		m->kill_at = now + END_US;
		signal_workers(m, SIGTERM, m->generation + 1);
	}
	if (m->ending && now >= m->kill_at)
		signal_workers(m, SIGKILL, m->generation + 1);
}

static void reload(struct master *m)
{
	struct err err = { 0 };
	notify_reloading(&m->notify);
	if (!m->c->app->reload || m->c->app->reload(m->c->app->ctx, &err) < 0) {
		log_line(LOG_ERROR, "op=reload error=\"%s\"", err.text);
	} else {
		m->generation++;
		signal_workers(m, SIGTERM, m->generation);
		log_line(LOG_INFO, "op=reload generation=%u", m->generation);
	}
	notify_say(&m->notify, "READY=1");
}

static void on_signal(struct master *m)
{
	struct signalfd_siginfo si;
	while (read(m->signals, &si, sizeof si) == sizeof si) {
		if (si.ssi_signo == SIGCHLD)
			reap(m);
		else if (si.ssi_signo == SIGHUP && !m->draining)
			reload(m);
		else if (si.ssi_signo != SIGHUP)
			begin_drain(m);
	}
}

static void tend(struct master *m)
{
	if (!m->c->app->tend || clock_mono_us() < m->tend_at)
		return;
	m->tend_at = clock_mono_us() + TEND_US;
	m->c->app->tend(m->c->app->ctx);
}

static void tell_status(struct master *m)
{
	if (clock_mono_us() < m->status_at)
		return;
	m->status_at = clock_mono_us() + STATUS_US;
	notify_status(&m->notify, "%squick workers: %d, %d busy; exec workers: %d, %d busy",
		      m->draining ? "draining; " : "", alive(m, POOL_QUICK),
		      board_count(m->board, POOL_QUICK, SLOT_BUSY), alive(m, POOL_EXEC),
		      board_count(m->board, POOL_EXEC, SLOT_BUSY));
}

/* How long to wait for an event. That there is a next turn is what the watchdog is told. */
static int pause_ms(struct master *m)
{
	int ms = m->draining || m->start[0].backoff || m->start[1].backoff ? 50 : TICK_MS;
	int sign = notify_alive(&m->notify);
	return sign >= 0 && sign < ms ? sign : ms;
}

static bool finished(struct master *m)
{
	return m->ending && alive(m, POOL_QUICK) == 0 && alive(m, POOL_EXEC) == 0;
}

static void loop(struct master *m)
{
	struct pollfd p[] = { { .fd = m->signals, .events = POLLIN },
			      { .fd = board_hungry(m->board), .events = POLLIN } };
	int64_t tick = clock_mono_us();
	while (!finished(m)) {
		uint64_t count;
		poll(p, 2, pause_ms(m));
		if (p[0].revents)
			on_signal(m);
		if (p[1].revents && read(p[1].fd, &count, sizeof count) < 0)
			log_line(LOG_WARN, "op=grow error=\"%s\"", strerror(errno));
		if (!m->ending)
			keep_enough(m);
		/* Not only when one takes the last idle slot: a new one may find all of them busy.
		 */
		grow(m);
		tend(m);
		tell_status(m);
		if (m->draining)
			check_drain(m);
		else if (clock_mono_us() - tick >= SECOND_US) {
			tick = clock_mono_us();
			shrink(m);
		}
	}
}

static int open_sockets(struct master *m, struct err *err)
{
	static const char *const names[POOLS] = { [POOL_QUICK] = "quick", [POOL_EXEC] = "exec" };
	for (int i = 0; i < POOLS; i++) {
		m->listen[i] = m->c->socket[i] ? socket_listen(m->c->socket[i], m->c->group, err)
					       : socket_inherited(names[i], err);
		if (m->listen[i] < 0)
			return -1;
	}
	sockets_forget();
	return 0;
}

static int set_up(struct master *m, struct err *err)
{
	sigset_t set;
	if (open_sockets(m, err) < 0 || board_new(&m->board, m->c->size, err) < 0)
		return -1;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	m->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return m->signals < 0 ? err_errno(err, "signalfd") : 0;
}

/* What was made until now leaves holes in the heap. A worker that put something into them would
 * have a copy of each page around, hundreds of them of each; so they are filled for good. */
static void fill_holes(void)
{
	const char *end = sbrk(0), *hole;
	for (size_t n = 64u << 10; n >= 16; n -= n > 1024 ? 1024 : 16) {
		while ((hole = malloc(n)) && hole < end)
			;
		free((char *)hole); /* it is of the memory behind */
	}
}

int prefork_run(const struct prefork_config *config, struct err *err)
{
	struct master m = { .c = config, .listen = { -1, -1 }, .signals = -1 };
	notify_open(&m.notify);
	int rc = set_up(&m, err);
	if (rc == 0) {
		fill_holes();
		keep_enough(&m);
		if (config->ready)
			config->ready(config->app->ctx);
		notify_say(&m.notify, "READY=1");
		loop(&m);
	}
	for (int i = 0; i < POOLS; i++) {
		if (m.listen[i] >= 0 && config->socket[i])
			unlink(config->socket[i]);
		close_fd(&m.listen[i]);
	}
	close_fd(&m.signals);
	notify_close(&m.notify);
	board_free(m.board);
	return rc;
}
