#include "engine/netchange.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/netroute.h"

#define DEADLINE_SECS 10

struct netchange {
	struct sandbox *s;
	int child;  /* a descriptor of the process: its pid may be another's by now */
	int report; /* one byte comes out of it when all is done */
	struct watch watch;
	struct timer timer;
	void (*done)(void *ctx, enum netchange_end end);
	void *ctx;
};

static void finish(struct netchange *c, enum netchange_end end)
{
	c->s->netchange = NULL;
	timer_stop(&c->timer);
	watch_del(&c->watch);
	if (end != NETCHANGE_DONE)
		syscall(SYS_pidfd_send_signal, c->child, SIGKILL, NULL, 0);
	close(c->child);
	close(c->report);
	c->done(c->ctx, end);
	free(c);
}

static void on_report(void *ctx, uint32_t events)
{
	struct netchange *c = ctx;
	char byte;
	(void)events;
	bool done = read(c->report, &byte, 1) == 1;
	if (!done)
		log_line(LOG_ERROR, "op=network sandbox=%s error=\"the routes were not changed\"",
			 c->s->id);
	finish(c, done ? NETCHANGE_DONE : NETCHANGE_FAILED);
}

static void on_late(void *ctx)
{
	struct netchange *c = ctx;
	log_line(LOG_ERROR, "op=network sandbox=%s error=\"the routes took more than %d s\"",
		 c->s->id, DEADLINE_SECS);
	finish(c, NETCHANGE_FAILED);
}

/* Clients' connections must not stay open here that the engine closes. */
static void close_others(int one, int two)
{
	unsigned low = (unsigned)(one < two ? one : two), high = (unsigned)(one < two ? two : one);
	if (low > 3)
		close_range(3, low - 1, 0);
	if (high > low + 1)
		close_range(low + 1, high - 1, 0);
	close_range(high + 1, ~0u, 0);
}

/* In the child. The agent's namespaces are those of the sandbox; the engine made them, and so may
 * act as root there. */
static void __attribute__((noreturn)) run(int agent, int report, const struct netrules *rules)
{
	struct err err;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close_others(agent, report);
	if (setns(agent, CLONE_NEWUSER | CLONE_NEWNET) < 0 || netroute_replace(rules, &err) < 0)
		_exit(1);
	_exit(write(report, "", 1) == 1 ? 0 : 1);
}

static int start_child(struct netchange *c, const struct netrules *rules, struct err *err)
{
	int out[2];
	_close_ int agent = (int)syscall(SYS_pidfd_open, c->s->pid, 0);
	if (agent < 0)
		return err_errno(err, "pidfd_open");
	if (pipe2(out, O_CLOEXEC) < 0)
		return err_errno(err, "pipe");
	_close_ int theirs = out[1], ours = out[0];
	pid_t pid = fork();
	if (pid == 0)
		run(agent, theirs, rules);
	if (pid < 0)
		return err_errno(err, "fork");
	/* It cannot be reaped before the loop runs again, so the pid is still its own. */
	c->child = (int)syscall(SYS_pidfd_open, pid, 0);
	if (c->child < 0) {
		kill(pid, SIGKILL);
		return err_errno(err, "pidfd_open");
	}
	c->report = steal_fd(&ours);
	return 0;
}

int netchange_start(struct sandbox *s, const struct netrules *rules,
		    void (*done)(void *, enum netchange_end), void *ctx, struct err *err)
{
	struct netchange *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(err, ERR_INTERNAL, "no memory");
	*c = (struct netchange){ .s = s, .done = done, .ctx = ctx };
	if (start_child(c, rules, err) < 0) {
		free(c);
		return -1;
	}
	if (watch_add(&c->watch, s->engine->loop, c->report, EPOLLIN, on_report, c) < 0) {
		syscall(SYS_pidfd_send_signal, c->child, SIGKILL, NULL, 0);
		close(c->child);
		close(c->report);
		free(c);
		return err_errno(err, "epoll_ctl");
	}
	timer_at(&c->timer, s->engine->loop, clock_mono_us() + DEADLINE_SECS * SECOND_US, on_late,
		 c);
	s->netchange = c;
	return 0;
}

void netchange_end(struct sandbox *s)
{
	if (s->netchange)
		finish(s->netchange, NETCHANGE_GONE);
}
