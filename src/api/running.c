#include "api/running.h"

#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/feed.h"
#include "api/outcome.h"
#include "api/sandbox.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "store/envs.h"

#define REMEMBER_US (10 * SECOND_US) /* a 408 is answered again for so long */
#define TRIES       3                /* sandboxes that are found gone before anything ran */

/* ---- a 408 that is sent again ---- */

/* Browsers send a POST again that was answered 408. The same request within ten seconds gets the
 * same answer, and nothing runs. */
static void hash_request(const struct call *c, char out[SHA256_HEX])
{
	struct buf b = BUF(c->body.len + sizeof c->caller.user + sizeof c->session + 64);
	buf_addf(&b, "%s\n%s\n%s\n", c->caller.user, c->session, c->route->name);
	buf_add(&b, c->body.p, c->body.len);
	sha256_hex(out, b.p, b.len);
	buf_free(&b);
}

static bool answered_before(struct call *c, const char *hash)
{
	struct execution_row row;
	struct sandbox_row sandbox;
	struct run_report report;
	struct err err = { 0 };
	if (execution_repeated(c->w->core.store, c->caller.user, c->session, hash,
			       clock_real_us() - REMEMBER_US, &row, &err) < 0)
		return false;
	report_of_row(&row, &report);
	if (sandbox_get(c->w->core.store, row.sandbox, &sandbox, &err) == 0)
		memcpy(c->sandbox, sandbox.sandbox_id, sizeof c->sandbox);
	struct json_object *o = outcome_result(c, &report, row.generation, END_NONE);
	answer_outcome(c, outcome_of(c, &report, &err, o));
	return true;
}

/* ---- who listens ---- */

/* The client of a call that runs something. */
struct listener {
	struct call *c;
	struct feed feed;
	bool streams; /* it reads a stream; else it has asked for the id only */
	bool begun;   /* it has been told */
};

static void answer_id(struct call *c, const char *id)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "execution_id", json_object_new_string(id));
	answer_json(c, 202, o);
	web_end(c->web);
}

static void on_begun(void *ctx, const char *id)
{
	struct listener *l = ctx;
	l->begun = true;
	if (l->streams)
		feed_open(&l->feed, l->c, id);
	else
		answer_id(l->c, id);
}

static void on_heard(void *ctx, const struct event *event)
{
	struct listener *l = ctx;
	if (l->streams)
		feed_event(&l->feed, event);
}

static int on_send(void *ctx)
{
	return feed_send(&((struct listener *)ctx)->feed);
}

static short on_events(void *ctx)
{
	return feed_events(&((struct listener *)ctx)->feed);
}

static bool on_full(void *ctx)
{
	return feed_full(&((struct listener *)ctx)->feed);
}

static void on_left(void *ctx)
{
	((struct listener *)ctx)->feed.gone = true;
}

static struct run_audience audience_of(struct listener *l)
{
	return (struct run_audience){ .begun = on_begun,
				      .send = on_send,
				      .events = on_events,
				      .full = on_full,
				      .left = on_left,
				      .tap = { .hear = on_heard, .ctx = l },
				      .ctx = l };
}

/* ---- the environment ---- */

/* The sandbox's own variables, and behind them those of the request, which win. */
struct environment {
	struct e2b_pair pairs[2 * ENVS_MAX];
	size_t n, own; /* own: of the sandbox, whose texts are copies */
};

static int add_env(void *ctx, const char *name, const char *value)
{
	struct environment *e = ctx;
	if (e->own == ENVS_MAX)
		return -1;
	e->pairs[e->own++] = (struct e2b_pair){ strdup(name), strdup(value) };
	return 0;
}

static void free_environment(struct environment *e)
{
	for (size_t i = 0; i < e->own; i++) {
		char *value = (char *)e->pairs[i].value;
		explicit_bzero(value, strlen(value));
		free(value);
		free((char *)e->pairs[i].key);
	}
	*e = (struct environment){ .n = 0 };
}

static void read_environment(struct call *c, const struct sandbox_row *row,
			     const struct run_request *req, struct environment *e)
{
	struct err ignored;
	free_environment(e);
	env_each(c->w->core.store, row->id, add_env, e, &ignored);
	e->n = e->own;
	for (size_t i = 0; i < req->nenvs && e->n < 2 * ENVS_MAX; i++)
		e->pairs[e->n++] = req->envs[i];
}

/* ---- running ---- */

static void woken(void *ctx)
{
	board_clear_wake(ctx);
}

static int plain_attempt(struct core *core, struct run_request *req, void *what,
			 struct run_report *out, struct err *err)
{
	(void)what;
	return run_execution(core, req, out, err);
}

static int attempt(struct call *c, const struct order *order, struct sandbox_row *row,
		   const struct listener *l, const struct run_audience *audience,
		   struct run_report *report, struct err *err)
{
	char key[SESSION_KEY];
	struct environment environment = { .n = 0 };
	struct run_request req = order->req;
	const bool waits = !order->detach || l->streams;
	read_environment(c, row, &order->req, &environment);
	req.row = row;
	req.envs = environment.pairs;
	req.nenvs = environment.n;
	req.detached = order->detach;
	req.client_fd = waits ? web_fd(c->web) : -1;
	req.audience = l->streams || order->detach ? audience : NULL;
	req.wake_fd = c->w->slot->wake;
	req.woken = woken;
	req.ctx = c->w->slot;
	session_key(key, row->owner, row->session_id);
	board_wait_for(c->w->slot, board_key("session", key));
	int rc = (order->attempt ? order->attempt : plain_attempt)(&c->w->core, &req, order->what,
								   report, err);
	board_wait_for(c->w->slot, 0);
	free_environment(&environment);
	return rc;
}

/* The first answer from a new sandbox says that, and why, older state is gone. */
static enum end_reason take_lost(struct call *c, const struct sandbox_row *row)
{
	enum end_reason why = END_NONE;
	struct err ignored;
	bool lost = false;
	sandbox_take_state_lost(c->w->core.store, row->id, &lost, &why, &ignored);
	return lost ? why : END_NONE;
}

static void end_feed(struct listener *l, const struct run_report *report, const struct err *err,
		     const struct sandbox_row *row, enum end_reason lost)
{
	struct call *c = l->c;
	if (report->end == RUN_LEFT || l->feed.gone) {
		answer_nobody(c);
	} else {
		struct json_object *o = outcome_result(c, report, row->generation, lost);
		const struct outcome outcome = outcome_of(c, report, err, o);
		feed_last(&l->feed, outcome.failed ? "failed" : "done", outcome.body);
	}
	feed_close(&l->feed);
}

static void answer_plain(struct call *c, const struct run_report *report, const struct err *err,
			 const struct sandbox_row *row)
{
	if (report->end == RUN_LEFT) {
		answer_nobody(c);
		return;
	}
	/* What nobody hears is told by the next answer. */
	const bool told = report->end != RUN_REFUSED && !web_gone(c->web);
	const enum end_reason lost = told ? take_lost(c, row) : END_NONE;
	struct json_object *o = outcome_result(c, report, row->generation, lost);
	answer_outcome(c, outcome_of(c, report, err, o));
}

/* Nobody may linger where the others would find no place. */
static bool has_place(struct call *c, const struct order *order)
{
	if (!order->detach || board_linger(c->w->board, c->w->slot))
		return true;
	answer_problem(c, BUSY, "too many executions run detached; try again later");
	return false;
}

void run_order(struct call *c, struct order *order)
{
	const struct session want = call_session(c);
	struct listener listener = { .c = c, .streams = feed_wanted(c) };
	const struct run_audience audience = audience_of(&listener);
	const bool plain = !listener.streams && !order->detach;
	struct sandbox_row row;
	struct run_report report;
	struct err err = { 0 };
	char hash[SHA256_HEX];
	hash_request(c, hash);
	if ((plain && answered_before(c, hash)) || !has_place(c, order))
		return;
	order->req.request_hash = plain ? hash : NULL;
	for (int i = 1;; i++) {
		/* Who has been told an id, or the head of a stream, cannot be given another. */
		if ((plain ? call_ensure(c, &want, &row) : call_ensure_alive(c, &want, &row)) < 0)
			return;
		order->req.lost_reason = plain ? END_NONE : take_lost(c, &row);
		int rc = attempt(c, order, &row, &listener, &audience, &report, &err);
		if (listener.begun)
			break;
		bool again = rc < 0 ? err.code == ERR_CONFLICT : report.not_run;
		if (again && call_stopped(c, &row))
			return;
		if (again && i < TRIES)
			continue;
		if (rc == 0)
			break;
		answer_err(c, &err);
		return;
	}
	if (plain)
		answer_plain(c, &report, &err, &row);
	else if (listener.streams)
		end_feed(&listener, &report, &err, &row, order->req.lost_reason);
}
