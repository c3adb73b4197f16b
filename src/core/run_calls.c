#include <malloc.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/deadman.h"
#include "core/running.h"
#include "e2b/run.h"
#include "store/leases.h"

#define QUEUE_SECS    3600  /* waiting for its turn in the context */
#define PORT_WAIT_MS  10000 /* for an interpreter that does not listen yet */
#define PORT_NAP_MS   250   /* between two looks at it */
#define GRACE_SECS    30 /* after the limit the provider ends a command that we no longer watch */
#define LOOK_US       SECOND_US
#define EXPIRING_SECS 60 /* before the end of its sandbox's lifetime those who follow are told */

/* ---- watching ---- */

/* Closing its stream does not end a command, so one that has just been asked for is waited for
 * until there is a pid to kill. */
static int give_up(struct running *r, enum run_end why)
{
	r->why = why;
	r->given_up = true;
	r->given_up_at = clock_real_us();
	r->wait.nfds = 0; /* what they had to say has been heard */
	return r->starting ? 0 : -1;
}

/* What the end of a sandbox is to the code that ran in it. */
static enum run_end end_of(enum end_reason reason)
{
	switch (reason) {
	case END_EXPIRED_IDLE:
	case END_EXPIRED_LIFETIME:
		return RUN_EXPIRED;
	case END_KILLED_BY_PROVIDER:
	case END_UNKNOWN:
		return RUN_LOST;
	default:
		return RUN_STOPPED;
	}
}

/* Those who follow hear of it while they can still save something. */
static void warn(struct running *r, int64_t lifetime_at)
{
	char json[64];
	const int64_t left = (lifetime_at - clock_real_us()) / SECOND_US;
	if (r->warned || left > EXPIRING_SECS || left < 0)
		return;
	r->warned = true;
	snprintf(json, sizeof json, "{\"expires_in_secs\":%lld}", (long long)left);
	record_note(&r->record, EVENT_EXPIRING, json);
}

bool running_sandbox_ended(struct running *r, enum run_end *end)
{
	struct sandbox_fate now;
	struct err err;
	if (sandbox_fate(r->c->store, r->req->row->id, &now, &err) < 0)
		return false; /* a busy database is no reason to end a run */
	warn(r, now.lifetime_at);
	if (now.status == SANDBOX_STOPPING || now.status == SANDBOX_ENDED)
		*end = end_of(now.end_reason);
	else if (clock_real_us() >= now.lifetime_at)
		*end = RUN_EXPIRED;
	else
		return false;
	return true;
}

int running_needs(const struct running *r)
{
	int64_t left = r->began ? (running_limit(r) - clock_mono_us()) / SECOND_US + 1
				: r->req->limit_secs;
	return (int)left + PROBE_SECS;
}

const struct run_audience *running_audience(const struct running *r)
{
	return r->client_fd >= 0 ? r->req->audience : NULL;
}

/* It is watched for room, too, so that ready may mean that. */
static bool is_gone(int client_fd)
{
	struct pollfd p = { .fd = client_fd, .events = POLLIN | POLLRDHUP };
	return poll(&p, 1, 0) > 0;
}

static void watch_fds(struct running *r)
{
	int n = 0;
	if (r->client_fd >= 0)
		r->wait.fds[n++] = r->client_fd;
	if (r->req->wake_fd >= 0)
		r->wait.fds[n++] = r->req->wake_fd;
	r->wait.nfds = n;
	r->wait.events[0] = r->wait.events[1] = POLLIN;
}

static int on_leaving(struct running *r)
{
	if (!r->req->detached)
		return give_up(r, RUN_LEFT);
	r->client_fd = -1;
	watch_fds(r);
	if (r->req->audience)
		r->req->audience->left(r->req->audience->ctx);
	return 0;
}

/* Whether its sandbox has come to its end, or somebody wants that of the execution. */
static bool must_end(struct running *r, enum run_end *end)
{
	struct err ignored;
	bool cancelled = false;
	if (running_sandbox_ended(r, end))
		return true;
	*end = RUN_CANCELLED;
	return execution_is_cancelled(r->c->store, r->out->id, &cancelled, &ignored) == 0 &&
	       cancelled;
}

/* They wait in other processes, for the execution by its id. */
static void wake_followers(struct running *r)
{
	if (r->told == r->record.seq)
		return;
	r->told = r->record.seq;
	r->c->wake(r->c->ctx, r->out->id);
}

/* Output waits in the record for more to come, unless somebody is listening. */
static int before_wait(void *ctx)
{
	struct running *r = ctx;
	const struct run_audience *a = running_audience(r);
	int ms;
	if (a) {
		record_flush(&r->record);
		ms = a->send(a->ctx);
		r->wait.events[0] = a->events(a->ctx);
	} else {
		ms = record_due(&r->record, clock_mono_us());
	}
	wake_followers(r);
	if (!r->held || (a && a->full(a->ctx)))
		return ms;
	r->held = false;
	return 0;
}

static int on_tick(void *ctx, unsigned ready)
{
	struct running *r = ctx;
	int64_t now = clock_mono_us();
	struct err ignored;
	enum run_end end;
	const bool has_client = r->client_fd >= 0;
	if (r->given_up)
		return r->starting ? 0 : -1;
	const bool woken = (ready & (has_client ? 2u : 1u)) != 0;
	if (has_client && (ready & 1) && is_gone(r->client_fd) && on_leaving(r) < 0)
		return -1;
	if (r->given_up)
		return 0;
	if (woken && r->req->woken)
		r->req->woken(r->req->ctx);
	if (now - r->renewed >= LEASE_RENEW_US) {
		r->renewed = now;
		lease_renew(r->c->store, r->out->id, r->req->row->id, &ignored);
		deadman_renew(r->c, r->req->row, running_needs(r), &ignored);
	}
	if (!woken && now - r->looked < LOOK_US)
		return 0;
	/* It takes longer than a moment. Hundreds may do so at once, and none needs for its waiting
	 * what its beginning needed. */
	const bool settles_down = r->looked == r->watched && !woken;
	if (settles_down)
		store_rest(r->c->store);
	r->looked = now;
	const bool ended = must_end(r, &end);
	if (settles_down)
		malloc_trim(0);
	return ended ? give_up(r, end) : 0;
}

/* Watch without a call of the provider. */
static int nap(struct running *r, int ms, struct err *err)
{
	struct pollfd fds[2];
	unsigned ready = 0;
	for (int i = 0; i < r->wait.nfds; i++)
		fds[i] = (struct pollfd){ .fd = r->wait.fds[i], .events = POLLIN };
	if (poll(fds, (nfds_t)r->wait.nfds, ms) > 0)
		for (int i = 0; i < r->wait.nfds; i++)
			ready |= fds[i].revents ? 1u << i : 0;
	return on_tick(r, ready) < 0 ? err_set(err, ERR_ABANDONED, "given up by the caller") : 0;
}

void running_watch(struct running *r)
{
	r->client_fd = r->req->client_fd;
	r->wait = (struct e2b_wait){ .tick = on_tick, .before = before_wait, .ctx = r };
	watch_fds(r);
	r->renewed = r->looked = r->watched = clock_mono_us();
}

int64_t running_limit(const struct running *r)
{
	return r->began + r->req->limit_secs * SECOND_US;
}

static void note_start(struct running *r)
{
	char json[256];
	const enum end_reason lost = r->req->lost_reason;
	snprintf(json, sizeof json,
		 "{\"execution_id\":\"%s\",\"generation\":%lld,\"state_lost\":%s%s%s%s}",
		 r->out->id, (long long)r->req->row->generation, lost ? "true" : "false",
		 lost ? ",\"reason\":\"" : "", end_reason_name(lost), lost ? "\"" : "");
	record_note(&r->record, EVENT_STARTED, json);
}

static void start_clock(struct running *r)
{
	if (r->began)
		return;
	r->began = clock_mono_us();
	note_start(r);
	r->wait.deadline_mono_us = running_limit(r);
	/* Two that come at once may have their turns the other way round than their rows say. */
	struct err ignored;
	if (r->queued || r->began - r->asked_at >= SECOND_US) {
		execution_started(r->c->store, r->out->id, &ignored);
		r->renewed = 0; /* its time counts from now: let the next tick see to it */
	}
}

/* ---- calls ---- */

/* The provider answers at once that it has the code, also where that has to wait for its turn. */
static void await_acceptance(struct running *r)
{
	const int64_t patience = clock_mono_us() + r->c->settings->provider_timeout * SECOND_US;
	r->accepted = false;
	r->wait.deadline_mono_us =
		r->began && running_limit(r) < patience ? running_limit(r) : patience;
}

static void take_acceptance(struct running *r)
{
	r->accepted = true;
	r->wait.deadline_mono_us =
		r->began ? running_limit(r) : clock_mono_us() + QUEUE_SECS * SECOND_US;
}

/* It runs and can be ended. The caller may have gone meanwhile. */
static int take_pid(struct running *r, int pid)
{
	start_clock(r);
	r->wait.deadline_mono_us = running_limit(r);
	r->starting = false;
	r->pid = pid;
	return r->given_up ? -1 : 0;
}

static void take_exit(struct running *r, const struct e2b_event *e)
{
	struct run_report *out = r->out;
	r->pid = 0;
	out->has_exit_code = true;
	out->exit_code = e->exit_code;
	if (e->exit_code < 0 && *e->status)
		snprintf(out->error_name, sizeof out->error_name, "%.*s", EXECUTION_ERROR_MAX,
			 e->status);
	else if (e->exit_code != 0)
		snprintf(out->error_name, sizeof out->error_name, "exit status %d", e->exit_code);
}

static int on_event(void *ctx, const struct e2b_event *e)
{
	struct running *r = ctx;
	const struct run_audience *a = running_audience(r);
	/* A reader that is slow slows down what it reads. */
	r->held = a && e->type >= E2B_STDOUT && a->full(a->ctx);
	if (r->held)
		return E2B_LATER;
	switch (e->type) {
	case E2B_RUNS:
		if (r->req->argv) {
			r->ran = true;
			return take_pid(r, e->pid);
		}
		take_acceptance(r); /* it may still wait for its turn */
		break;
	case E2B_COUNT:
		r->ran = true;
		r->count = e->count;
		start_clock(r);
		break;
	case E2B_STDOUT:
	case E2B_STDERR:
		record_text(&r->record, e->type == E2B_STDERR, e->text, e->ntext);
		if (e->type == E2B_STDERR && r->req->steps && r->req->steps->heard)
			r->req->steps->heard(r->req->steps->ctx, e->text, e->ntext);
		break;
	case E2B_RESULT:
		record_result(&r->record, e->result);
		break;
	case E2B_ERROR:
		record_error(&r->record, e->name, e->value, e->traceback);
		break;
	case E2B_END:
		if (r->req->argv)
			take_exit(r, e);
		break;
	}
	return 0;
}

/* Code that met a closed port has certainly not run, so it may be tried again for a while. */
static int call_code(struct running *r, const char *code, size_t n, int patience_ms,
		     e2b_event_fn *fn, void *ctx, struct err *err)
{
	const struct run_request *req = r->req;
	const struct e2b_code what = { .code = code,
				       .ncode = n,
				       .language = req->language,
				       .context_id = req->context_id,
				       .envs = req->envs,
				       .nenvs = req->nenvs };
	const int64_t until = clock_mono_us() + patience_ms * 1000LL;
	for (;;) {
		await_acceptance(r);
		if (e2b_run_code(r->c->e2b, &r->sandbox, &what, fn, ctx, &r->wait, err) == 0)
			return 0;
		if (e2b_last(r->c->e2b)->why != E2B_WHY_PORT_CLOSED || clock_mono_us() >= until)
			return -1;
		if (nap(r, PORT_NAP_MS, err) < 0)
			return -1;
	}
}

/* Until it has a pid the provider's time counts and not the limit, since it could not be ended. */
static int call_command(struct running *r, const char *const *argv, e2b_event_fn *fn, void *ctx,
			struct err *err)
{
	const int64_t now = clock_mono_us();
	const struct e2b_command what = { .argv = argv,
					  .cwd = r->req->cwd,
					  .timeout_ms = (r->req->limit_secs + GRACE_SECS) * 1000LL,
					  .envs = r->req->envs,
					  .nenvs = r->req->nenvs };
	if (r->began && now >= running_limit(r))
		return err_set(err, ERR_TIMEOUT, "no time is left for the command");
	r->wait.deadline_mono_us = now + r->c->settings->provider_timeout * SECOND_US;
	r->starting = true;
	int rc = e2b_run_command(r->c->e2b, &r->sandbox, &what, fn, ctx, &r->wait, err);
	r->starting = false;
	return rc;
}

static int port_wait(const struct run_request *req)
{
	return req->port_wait_ms ? req->port_wait_ms : PORT_WAIT_MS;
}

int running_code(struct running *r, struct err *err)
{
	r->asked = true;
	return call_code(r, r->req->code, r->req->ncode, port_wait(r->req), on_event, r, err);
}

int running_command(struct running *r, struct err *err)
{
	r->asked = true;
	return call_command(r, r->req->argv, on_event, r, err);
}

/* ---- steps ---- */

struct quiet {
	struct running *r;
	struct buf *out;
	bool is_command;
};

static int on_quiet(void *ctx, const struct e2b_event *e)
{
	struct quiet *q = ctx;
	size_t room = q->out->max - q->out->len;
	if (e->type == E2B_RUNS && q->is_command)
		return take_pid(q->r, e->pid);
	if (e->type == E2B_RUNS)
		take_acceptance(q->r);
	else if (e->type == E2B_COUNT)
		start_clock(q->r);
	else if (e->type == E2B_STDOUT)
		buf_add(q->out, e->text, e->ntext < room ? e->ntext : room);
	else if (e->type == E2B_END)
		q->r->pid = 0;
	return 0;
}

/* A custom template may never have an interpreter: that is no reason to wait each time. */
int run_quiet_code(struct running *r, const char *code, size_t n, struct buf *out,
		   bool *no_interpreter, struct err *err)
{
	struct quiet q = { .r = r, .out = out };
	int patience = r->req->row->type == SANDBOX_CUSTOM ? 0 : port_wait(r->req);
	*no_interpreter = false;
	if (call_code(r, code, n, patience, on_quiet, &q, err) == 0)
		return 0;
	*no_interpreter = !r->given_up && e2b_last(r->c->e2b)->why == E2B_WHY_PORT_CLOSED;
	return *no_interpreter ? 0 : -1;
}

int run_quiet_command(struct running *r, const char *const *argv, struct buf *out, struct err *err)
{
	struct quiet q = { .r = r, .out = out, .is_command = true };
	return call_command(r, argv, on_quiet, &q, err);
}

void run_fail(struct running *r, const char *name, const char *value)
{
	record_error(&r->record, name, value, "");
}
