/* The clients that follow a process: what each is told, and that none is told more than it takes.
 */
#include "engine/proc_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/clock.h"

#define DEADLINE "context deadline exceeded"

struct sub {
	struct sub *next;
	struct proc *proc;
	struct req *req;
	struct timer keepalive;
	int64_t interval; /* microseconds */
	struct timer deadline;
};

static void free_sub(struct sub *u)
{
	for (struct sub **at = &u->proc->subs; *at; at = &(*at)->next) {
		if (*at == u) {
			*at = u->next;
			break;
		}
	}
	timer_stop(&u->keepalive);
	timer_stop(&u->deadline);
	free(u);
}

static bool backed_up(const struct proc *p)
{
	for (const struct sub *u = p->subs; u; u = u->next)
		if (req_backlog(u->req) >= REQ_BACKLOG)
			return true;
	return false;
}

void subs_set_reading(struct proc *p)
{
	uint32_t events = backed_up(p) ? 0 : EPOLLIN;
	for (int i = 0; i < PIPES; i++)
		watch_set(&p->pipes[i].watch, events);
}

static void on_sub_gone(void *ctx)
{
	struct sub *u = ctx;
	struct proc *p = u->proc;
	free_sub(u);
	/* Nobody is listening any more: what it prints is read and dropped, and it runs on. */
	subs_set_reading(p);
}

static void on_sub_drained(void *ctx)
{
	struct sub *u = ctx;
	subs_set_reading(u->proc);
}

static const struct req_owner sub_owner = { .gone = on_sub_gone, .drained = on_sub_drained };

static void on_keepalive(void *ctx)
{
	static const char event[] = "{\"event\":{\"keepalive\":{}}}";
	struct sub *u = ctx;
	timer_at(&u->keepalive, u->proc->s->engine->loop, clock_mono_us() + u->interval,
		 on_keepalive, u);
	connect_message(u->req, event, sizeof event - 1);
}

/* The time of one who follows is up; the process runs on. */
static void on_deadline(void *ctx)
{
	struct sub *u = ctx;
	struct req *r = u->req;
	struct proc *p = u->proc;
	free_sub(u);
	connect_fail(r, CONNECT_DEADLINE_EXCEEDED, DEADLINE);
	subs_set_reading(p);
}

void subs_send(struct proc *p, const char *json, size_t n)
{
	for (struct sub *u = p->subs; u; u = u->next) {
		connect_message(u->req, json, n);
		timer_at(&u->keepalive, p->s->engine->loop, clock_mono_us() + u->interval,
			 on_keepalive, u);
	}
}

void subs_end(struct proc *p, bool late)
{
	while (p->subs) {
		struct req *r = p->subs->req;
		free_sub(p->subs);
		if (late)
			connect_fail(r, CONNECT_DEADLINE_EXCEEDED, DEADLINE);
		else
			connect_end(r);
	}
}

const char *proc_signal_name(int sig)
{
	static char name[64];
	snprintf(name, sizeof name, "%s", strsignal(sig));
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	return name;
}

static size_t end_event(const struct proc *p, char *out, size_t cap)
{
	int n, code = WEXITSTATUS(p->status);
	if (WIFSIGNALED(p->status)) {
		const char *name = proc_signal_name(WTERMSIG(p->status));
		n = snprintf(out, cap,
			     "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: %s\","
			     "\"error\":\"signal: %s\"}}}",
			     name, name);
	} else if (code) {
		n = snprintf(out, cap,
			     "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":true,"
			     "\"status\":\"exit status %d\",\"error\":\"exit status %d\"}}}",
			     code, code, code);
	} else {
		n = snprintf(
			out, cap,
			"{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
	}
	return n < 0 ? 0 : (size_t)n;
}

void subs_send_end(struct proc *p)
{
	char event[256];
	subs_send(p, event, end_event(p, event, sizeof event));
}

void subs_cut(struct proc *p)
{
	while (p->subs) {
		struct req *r = p->subs->req;
		free_sub(p->subs);
		req_cut(r);
	}
}

void proc_subscribe(struct proc *p, struct req *r, int keepalive_secs, int64_t timeout_ms)
{
	struct sub *u = calloc(1, sizeof *u);
	char event[256];
	if (!u) {
		connect_fail(r, CONNECT_RESOURCE_EXHAUSTED, "no memory");
		return;
	}
	*u = (struct sub){ .proc = p, .req = r, .interval = keepalive_secs * SECOND_US };
	connect_begin(r);
	int n = snprintf(event, sizeof event, "{\"event\":{\"start\":{\"pid\":%d}}}", p->pid);
	connect_message(r, event, (size_t)n);
	if (p->finished) {
		connect_message(r, event, end_event(p, event, sizeof event));
		connect_end(r);
		free(u);
		return;
	}
	u->next = p->subs;
	p->subs = u;
	req_own(r, &sub_owner, u);
	timer_at(&u->keepalive, p->s->engine->loop, clock_mono_us() + u->interval, on_keepalive, u);
	if (timeout_ms > 0)
		timer_at(&u->deadline, p->s->engine->loop, clock_mono_us() + timeout_ms * 1000,
			 on_deadline, u);
}
