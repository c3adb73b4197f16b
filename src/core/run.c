#include "core/run.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "core/eventlog.h"
#include "e2b/run.h"
#include "store/leases.h"
#include "wire/jsontext.h"

#define GATHER_BYTES (32u << 10) /* output is written to the log when this much is there */
#define GATHER_US    (SECOND_US / 20)
#define QUEUE_SECS   3600 /* waiting for its turn in the context */
#define PROBE_SECS   3    /* an interrupted context must answer within this */
#define LOOK_US      SECOND_US

/* An execution while it runs. */
struct running {
	struct core *c;
	const struct run_request *req;
	struct run_report *out;
	struct e2b_wait wait;
	struct eventlog *log; /* NULL: it could not be made */
	struct buf text[2];   /* stdout and stderr, not yet in the log */
	int64_t text_since;   /* when the first of it came */
	int64_t began;        /* CLOCK_MONOTONIC; 0 until the code runs */
	int64_t renewed, looked;
	enum run_end why; /* set by whoever gives it up */
	bool given_up;
};

int run_events_dir(const struct settings *s, char *out, size_t cap, struct err *err)
{
	if ((size_t)snprintf(out, cap, "%s/events", s->state_dir) >= cap)
		return err_set(err, ERR_INVALID, "SANDGATE_STATE_DIR is too long");
	if (mkdir(out, 0700) < 0 && errno != EEXIST)
		return err_errno(err, "%s", out);
	return 0;
}

/* ---- the log ---- */

static void add_event(struct running *r, enum event_type type, const char *p, size_t n)
{
	struct err ignored;
	if (!r->log || eventlog_add(r->log, type, p, n, NULL, &ignored) < 0)
		r->out->log_lost = true; /* the run goes on; the answer says so */
}

static void flush_text(struct running *r)
{
	for (int i = 0; i < 2; i++) {
		if (r->text[i].len)
			add_event(r, i ? EVENT_STDERR : EVENT_STDOUT, r->text[i].p, r->text[i].len);
		r->text[i].len = 0;
	}
	r->text_since = 0;
}

static void take_text(struct running *r, int stream, const char *p, size_t n)
{
	struct buf *b = &r->text[stream];
	*(stream ? &r->out->stderr_bytes : &r->out->stdout_bytes) += (int64_t)n;
	/* The order between the two streams is kept: only one of them ever waits. */
	if (r->text[!stream].len || b->len + n > GATHER_BYTES)
		flush_text(r);
	if (n > GATHER_BYTES) {
		add_event(r, stream ? EVENT_STDERR : EVENT_STDOUT, p, n);
		return;
	}
	if (!r->text_since)
		r->text_since = clock_mono_us();
	buf_add(b, p, n);
}

static void take_error(struct running *r, const struct e2b_event *e)
{
	struct buf json = BUF(EVENT_MAX);
	flush_text(r);
	snprintf(r->out->error_name, sizeof r->out->error_name, "%.*s", EXECUTION_ERROR_MAX,
		 *e->name ? e->name : "Error");
	buf_adds(&json, "{\"name\":");
	json_put_string(&json, e->name, strlen(e->name));
	buf_adds(&json, ",\"value\":");
	json_put_string(&json, e->value, strlen(e->value));
	buf_adds(&json, ",\"traceback\":");
	json_put_string(&json, e->traceback, strlen(e->traceback));
	buf_adds(&json, "}");
	add_event(r, EVENT_ERROR, json.p, json.len);
	buf_free(&json);
}

static int on_event(void *ctx, const struct e2b_event *e)
{
	struct running *r = ctx;
	const char *json;
	switch (e->type) {
	case E2B_COUNT: /* its turn has come: from here on the limit counts */
		r->began = clock_mono_us();
		r->wait.deadline_mono_us = r->began + r->req->limit_secs * SECOND_US;
		break;
	case E2B_STDOUT:
	case E2B_STDERR:
		take_text(r, e->type == E2B_STDERR, e->text, e->ntext);
		break;
	case E2B_RESULT:
		flush_text(r);
		json = json_object_to_json_string_ext(e->result, JSON_C_TO_STRING_PLAIN);
		add_event(r, EVENT_RESULT, json, strlen(json));
		break;
	case E2B_ERROR:
		take_error(r, e);
		break;
	default:
		break;
	}
	return 0;
}

/* ---- watching ---- */

static int give_up(struct running *r, enum run_end why)
{
	r->why = why;
	r->given_up = true;
	return -1;
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

/* Whether the sandbox is still ours to use. */
static int look_at_row(struct running *r)
{
	struct sandbox_row now;
	struct err err;
	if (sandbox_get(r->c->store, r->req->row->id, &now, &err) < 0)
		return 0; /* a busy database is no reason to end a run */
	if (now.status == SANDBOX_STOPPING || now.status == SANDBOX_ENDED)
		return give_up(r, end_of(now.end_reason));
	return clock_real_us() >= now.lifetime_at ? give_up(r, RUN_EXPIRED) : 0;
}

static int on_tick(void *ctx, unsigned ready)
{
	struct running *r = ctx;
	int64_t now = clock_mono_us();
	struct err ignored;
	const bool has_client = r->req->client_fd >= 0;
	if (has_client && (ready & 1))
		return give_up(r, RUN_LEFT);
	const bool woken = (ready & (has_client ? 2u : 1u)) != 0;
	if (woken && r->req->woken)
		r->req->woken(r->req->ctx);
	if (r->text_since && now - r->text_since >= GATHER_US)
		flush_text(r);
	if (now - r->renewed >= LEASE_RENEW_US) {
		r->renewed = now;
		lease_renew(r->c->store, r->out->id, &ignored);
	}
	if (woken || now - r->looked >= LOOK_US) {
		r->looked = now;
		return look_at_row(r);
	}
	return 0;
}

/* ---- after the limit ---- */

static int ignore_event(void *ctx, const struct e2b_event *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

/* The connection was closed, which interrupts the code. A context that does not come back from that
 * is restarted; if that fails too, the sandbox is ended rather than left to burn. */
static void probe(struct running *r, const struct e2b_sandbox *sb)
{
	const struct e2b_code pass = { .code = "pass", .ncode = 4 };
	struct err err;
	struct e2b_wait wait = { .deadline_mono_us = clock_mono_us() + PROBE_SECS * SECOND_US };
	if (e2b_run_code(r->c->e2b, sb, &pass, ignore_event, NULL, &wait, &err) == 0)
		return;
	wait.deadline_mono_us = clock_mono_us() + r->c->settings->provider_timeout * SECOND_US;
	if (e2b_restart_context(r->c->e2b, sb, NULL, "python", &wait, &err) == 0)
		return;
	struct sandbox_row row;
	if (sandbox_stop(r->c->store, r->req->row->id, END_CANCEL_KILL, &row, &err) == 0 &&
	    e2b_kill(r->c->e2b, row.sandbox_id, NULL, &wait, &err) == 0)
		sandbox_killed(r->c->store, row.id, &err);
}

/* ---- the end ---- */

static enum execution_state state_of(const struct run_report *out)
{
	static const enum execution_state states[] = {
		[RUN_TIMED_OUT] = EXECUTION_TIMED_OUT, [RUN_LEFT] = EXECUTION_CANCELLED,
		[RUN_STOPPED] = EXECUTION_FAILED,      [RUN_EXPIRED] = EXECUTION_FAILED,
		[RUN_LOST] = EXECUTION_FAILED,         [RUN_UNKNOWN] = EXECUTION_COMPLETION_UNKNOWN,
		[RUN_REFUSED] = EXECUTION_FAILED,
	};
	if (out->end == RUN_ENDED)
		return out->error_name[0] ? EXECUTION_FAILED : EXECUTION_SUCCEEDED;
	return states[out->end];
}

/* What a broken or refused call means for the run. */
static enum run_end judge(struct running *r, struct err *err)
{
	const struct e2b_last *last = e2b_last(r->c->e2b);
	struct err ignored;
	bool lost = false;
	if (r->given_up)
		return r->why;
	if (err->code == ERR_TIMEOUT && r->began)
		return RUN_TIMED_OUT;
	bool ran = r->began || err->code == ERR_UNKNOWN_OUTCOME;
	bool gone = err->code == ERR_NOT_FOUND && last->why == E2B_WHY_NO_SANDBOX;
	if ((gone || ran) && session_check(r->c, r->req->row, &lost, &ignored) == 0 && lost) {
		r->out->not_run = !ran;
		/* Who ended it is in its row: it may have been one of us. */
		return look_at_row(r) < 0 ? r->why : RUN_LOST;
	}
	return ran ? RUN_UNKNOWN : RUN_REFUSED;
}

static const char *end_name(enum run_end end)
{
	static const char *const names[] = {
		[RUN_ENDED] = "",
		[RUN_TIMED_OUT] = "execution_timeout",
		[RUN_LEFT] = "client_gone",
		[RUN_STOPPED] = "sandbox_stopped",
		[RUN_EXPIRED] = "sandbox_expired",
		[RUN_LOST] = "sandbox_lost",
		[RUN_UNKNOWN] = "completion_unknown",
		[RUN_REFUSED] = "provider_error",
	};
	return names[end];
}

static void finish(struct running *r)
{
	struct run_report *out = r->out;
	struct err ignored;
	char done[256];
	flush_text(r);
	out->state = state_of(out);
	out->ms = r->began ? (clock_mono_us() - r->began) / 1000 : 0;
	int n = snprintf(done, sizeof done, "{\"state\":\"%s\",\"execution_time_ms\":%lld}",
			 execution_state_name(out->state), (long long)out->ms);
	add_event(r, EVENT_DONE, done, (size_t)n);
	const struct execution_end end = {
		.id = out->id,
		.state = out->state,
		.stdout_bytes = out->stdout_bytes,
		.stderr_bytes = out->stderr_bytes,
		.error_name = out->error_name[0] ? out->error_name : end_name(out->end),
		.idle_us = r->c->settings->idle_timeout * SECOND_US,
	};
	execution_finish(r->c->store, &end, &ignored);
	lease_release(r->c->store, out->id, &ignored);
	eventlog_free(r->log);
	for (int i = 0; i < 2; i++)
		buf_free(&r->text[i]);
}

static int begin(struct running *r, struct err *err)
{
	const struct run_request *req = r->req;
	struct err ignored;
	char dir[3000];
	execution_new_id(r->out->id);
	const struct execution_start start = {
		.id = r->out->id,
		.sandbox = req->row->id,
		.kind = req->kind,
		.input = req->code,
		.input_bytes = req->ncode,
		.request_hash = req->request_hash,
		.idle_us = r->c->settings->idle_timeout * SECOND_US,
	};
	if (execution_begin(r->c->store, &start, err) < 0 ||
	    lease_take(r->c->store, r->out->id, req->row->id, err) < 0)
		return -1;
	if (run_events_dir(r->c->settings, dir, sizeof dir, &ignored) < 0 ||
	    eventlog_create(&r->log, dir, r->out->id, &ignored) < 0)
		r->out->log_lost = true;
	return 0;
}

static void set_wait(struct running *r)
{
	int n = 0;
	r->wait = (struct e2b_wait){ .deadline_mono_us = clock_mono_us() + QUEUE_SECS * SECOND_US,
				     .tick = on_tick,
				     .ctx = r };
	if (r->req->client_fd >= 0)
		r->wait.fds[n++] = r->req->client_fd;
	if (r->req->wake_fd >= 0)
		r->wait.fds[n++] = r->req->wake_fd;
	r->wait.nfds = n;
}

int run_code(struct core *c, const struct run_request *req, struct run_report *out, struct err *err)
{
	struct e2b_sandbox sb;
	const struct e2b_code code = { .code = req->code, .ncode = req->ncode };
	*out = (struct run_report){ .end = RUN_ENDED };
	struct running r = { .c = c,
			     .req = req,
			     .out = out,
			     .text = { BUF(2 * GATHER_BYTES), BUF(2 * GATHER_BYTES) },
			     .renewed = clock_mono_us(),
			     .looked = clock_mono_us() };
	if (begin(&r, err) < 0)
		return -1;
	session_address(req->row, &sb);
	struct err ignored; /* it is the provider's own switch; the run itself will tell if all is
			       not well */
	session_renew(c, req->row, req->limit_secs + PROBE_SECS, &ignored);
	set_wait(&r);
	if (e2b_run_code(c->e2b, &sb, &code, on_event, &r, &r.wait, err) < 0)
		out->end = judge(&r, err);
	if (out->end == RUN_TIMED_OUT)
		probe(&r, &sb);
	finish(&r);
	return 0;
}
