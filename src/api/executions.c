/* Executions as things of their own: listed, read, followed and cancelled. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/feed.h"
#include "api/handlers.h"
#include "api/outcome.h"
#include "base/clock.h"
#include "core/run.h"
#include "wire/sse.h"
#include "wire/uri.h"

#define PAGE_DEFAULT 20
#define PAGE_MAX     100
#define LOOK_MS      1000
#define CANCEL_SECS  10 /* for the probe of an interrupted context, besides the provider's time */

/* ---- finding ---- */

/* -1: the call has been answered. Another's, or another session's, does not exist. */
static int find(struct call *c, struct execution_row *row)
{
	struct err err = { 0 };
	int rc = c->id[0] ? execution_find(c->w->core.store, c->caller.user, c->id, row, &err)
			  : err_set(&err, ERR_NOT_FOUND, "no id");
	if (rc == 0 && !strcmp(row->session_id, c->session))
		return 0;
	if (rc < 0 && err.code != ERR_NOT_FOUND)
		answer_err(c, &err);
	else
		answer_problem(c, EXECUTION_NOT_FOUND, "this session has no such execution");
	return -1;
}

static bool is_finished(const struct execution_row *row)
{
	return row->ended_at != 0;
}

static struct json_object *time_or_null(int64_t real_us)
{
	return real_us ? json_time(real_us) : NULL;
}

static struct json_object *execution_json(const struct execution_row *row)
{
	struct json_object *o = json_object_new_object();
	const int64_t until = is_finished(row) ? row->ended_at : clock_real_us();
	const bool began = row->state != EXECUTION_QUEUED;
	json_object_object_add(o, "execution_id", json_object_new_string(row->id));
	json_object_object_add(o, "kind", json_object_new_string(execution_kind_name(row->kind)));
	json_object_object_add(o, "state",
			       json_object_new_string(execution_state_name(row->state)));
	json_object_object_add(o, "started_at", time_or_null(began ? row->started_at : 0));
	json_object_object_add(o, "ended_at", time_or_null(row->ended_at));
	json_object_object_add(o, "execution_time_ms",
			       json_object_new_int64(began ? (until - row->started_at) / 1000 : 0));
	json_object_object_add(o, "exit_code",
			       row->has_exit_code ? json_object_new_int(row->exit_code) : NULL);
	json_object_object_add(o, "stdout_bytes", json_object_new_int64(row->stdout_bytes));
	json_object_object_add(o, "stderr_bytes", json_object_new_int64(row->stderr_bytes));
	json_object_object_add(o, "generation", json_object_new_int64(row->generation));
	if (row->cancelled_by)
		json_object_object_add(
			o, "cancelled_by",
			json_object_new_string(cancelled_by_name(row->cancelled_by)));
	return o;
}

static struct json_object *result_json(struct call *c, const struct execution_row *row)
{
	struct run_report report;
	report_of_row(row, &report);
	return outcome_result(c, &report, row->generation, row->lost_reason);
}

void op_execution(struct call *c)
{
	struct execution_row row;
	if (find(c, &row) < 0)
		return;
	struct json_object *o = execution_json(&row);
	if (is_finished(&row))
		json_object_object_add(o, "result", result_json(c, &row));
	answer_json(c, 200, o);
}

/* ---- the list ---- */

/* A number in the query; -1: the call has been answered. */
static int query_number(struct call *c, const char *key, uint64_t most, uint64_t *out)
{
	char text[32];
	uint64_t v;
	int found = query_get(c->query, key, text, sizeof text);
	if (found == 0)
		return 0;
	if (found < 0 || sse_id_parse(text, &v) < 0 || v > most) {
		answer_problem(c, BAD_REQUEST, "'%s' must be a whole number up to %llu", key,
			       (unsigned long long)most);
		return -1;
	}
	*out = v;
	return 0;
}

static void answer_list(struct call *c, const struct execution_row *rows, size_t n, bool more)
{
	struct json_object *o = json_object_new_object(), *all = json_object_new_array();
	char cursor[32];
	for (size_t i = 0; i < n; i++)
		json_object_array_add(all, execution_json(&rows[i]));
	snprintf(cursor, sizeof cursor, "%lld", n ? (long long)rows[n - 1].seq : 0LL);
	json_object_object_add(o, "executions", all);
	json_object_object_add(o, "next", more ? json_object_new_string(cursor) : NULL);
	answer_json(c, 200, o);
}

void op_executions(struct call *c)
{
	uint64_t limit = PAGE_DEFAULT, before = 0;
	struct err err = { 0 };
	size_t n = 0;
	if (query_number(c, "limit", PAGE_MAX, &limit) < 0 ||
	    query_number(c, "cursor", INT64_MAX, &before) < 0)
		return;
	if (!limit) {
		answer_problem(c, BAD_REQUEST, "'limit' must be from 1 to %d", PAGE_MAX);
		return;
	}
	/* One more than is shown tells whether there are more. */
	struct execution_row *rows = calloc(limit + 1, sizeof *rows);
	if (!rows)
		abort();
	if (execution_list(c->w->core.store, c->caller.user, c->session, (int64_t)before, rows,
			   limit + 1, &n, &err) < 0)
		answer_err(c, &err);
	else
		answer_list(c, rows, n < limit ? n : limit, n > limit);
	free(rows);
}

/* ---- following ---- */

struct following {
	struct call *c;
	struct execution_row row;
	struct eventreader *reader; /* NULL: there is no log (any more) */
	struct feed feed;
};

/* Where the client has got to: ?after= or, for one that reconnects by itself, Last-Event-ID. */
static int read_after(struct call *c, uint64_t *after)
{
	const char *header = web_param(c->web, "HTTP_LAST_EVENT_ID");
	char text[32];
	*after = 0;
	if (query_get(c->query, "after", text, sizeof text) != 0)
		return query_number(c, "after", INT64_MAX, after);
	if (header && *header && (sse_id_parse(header, after) < 0 || *after > INT64_MAX)) {
		answer_problem(c, BAD_REQUEST, "Last-Event-ID is no number of an event");
		return -1;
	}
	return 0;
}

/* All that is in the log and that the client can take; true when there is more. */
static bool pump(struct following *f)
{
	struct err ignored;
	enum event_answer answer;
	struct event event;
	struct event_gap gap;
	while (f->reader && !feed_full(&f->feed)) {
		if (eventreader_next(f->reader, &answer, &event, &gap, &ignored) < 0 ||
		    answer == EVENT_NONE)
			return false;
		if (answer == EVENT_NEXT)
			feed_event(&f->feed, &event);
		else
			feed_gap(&f->feed, &gap);
	}
	return f->reader != NULL;
}

/* Whoever ran it may have died without a word. */
static int look_again(struct following *f, struct err *err)
{
	struct store *store = f->c->w->core.store;
	size_t n;
	if (!is_finished(&f->row) && !procid_alive(f->row.runner) &&
	    execution_end_dead(store, &n, err) < 0)
		return -1;
	return execution_find(store, f->c->caller.user, f->row.id, &f->row, err);
}

/* What the log could not take, or has no more, behind the last event that it has. */
static void tell_rest(struct following *f)
{
	const uint64_t last = (uint64_t)f->row.events, bytes = (uint64_t)f->row.event_bytes;
	struct event_gap gap = { f->feed.seq + 1, last - 1, f->feed.seq ? 0 : bytes };
	if (f->reader ? eventreader_rest(f->reader, last, bytes, &gap) : gap.from < last)
		feed_gap(&f->feed, &gap);
}

static void tell_end(struct following *f)
{
	struct run_report report;
	tell_rest(f);
	const struct err none = { 0 };
	report_of_row(&f->row, &report);
	const struct outcome outcome = outcome_of(f->c, &report, &none, result_json(f->c, &f->row));
	feed_last(&f->feed, outcome.failed ? "failed" : "done", outcome.body);
}

/* Until there is more, or the client can take more, or it is time for a sign of life. */
static void doze(struct following *f, int ms)
{
	struct slot *slot = f->c->w->slot;
	struct pollfd p[] = {
		{ .fd = slot->wake, .events = POLLIN },
		{ .fd = web_fd(f->c->web), .events = feed_events(&f->feed) | POLLRDHUP },
	};
	poll(p, 2, ms < LOOK_MS ? ms : LOOK_MS);
	if (p[0].revents)
		board_clear_wake(slot);
	if (p[1].revents & ~POLLOUT)
		f->feed.gone = true;
}

static void follow(struct following *f)
{
	struct err err = { 0 };
	bool over = false;
	while (!f->feed.gone && !over) {
		/* What was written before its end is in the log once its row says that it ended. */
		if (look_again(f, &err) < 0)
			break;
		const bool finished = is_finished(&f->row);
		const bool more = pump(f);
		over = !more && finished;
		if (over)
			tell_end(f);
		int ms = feed_send(&f->feed);
		/* A gateway that is about to end lets its clients come back to the next one. */
		if (!over && board_draining(f->c->w->board, NULL))
			break;
		if (!over && (!more || feed_full(&f->feed)))
			doze(f, ms);
	}
	feed_close(&f->feed);
}

/* One who has heard everything is told not to come back; one who has heard what nobody said has
 * mistaken the execution. False: the call has been answered. */
static bool check_after(struct following *f, const char *dir, uint64_t after)
{
	uint64_t last = (uint64_t)f->row.events;
	struct err ignored;
	if (!after || (!last && eventlog_last(dir, f->row.id, &last, &ignored) < 0))
		return true;
	/* Who died has not written the last one, which is told all the same. */
	if (is_finished(&f->row) && !f->row.events)
		last++;
	if (is_finished(&f->row) && after == last) {
		answer_empty(f->c, 204);
		return false;
	}
	if (after <= last)
		return true;
	answer_problem(f->c, BAD_REQUEST, "there is no event %llu yet; the last one is %llu",
		       (unsigned long long)after, (unsigned long long)last);
	return false;
}

void op_events(struct call *c)
{
	struct following f = { .c = c };
	struct err err = { 0 };
	char dir[3000];
	uint64_t after;
	if (find(c, &f.row) < 0 || read_after(c, &after) < 0)
		return;
	if (run_events_dir(c->w->settings, dir, sizeof dir, &err) < 0) {
		answer_err(c, &err);
		return;
	}
	if (!check_after(&f, dir, after))
		return;
	if (!board_linger(c->w->board, c->w->slot)) {
		answer_problem(c, BUSY, "too many streams are open; try again later");
		return;
	}
	eventreader_open(&f.reader, dir, f.row.id, after, &err);
	board_wait_for(c->w->slot, board_key("session", f.row.id)); /* as core's wake names it */
	feed_open(&f.feed, c, f.row.id);
	f.feed.seq = after;
	follow(&f);
	board_wait_for(c->w->slot, 0);
	eventreader_free(f.reader);
}

/* ---- cancelling ---- */

/* 0 once it has ended; -1: the call has been answered. */
static int await_end(struct call *c, struct execution_row *row)
{
	const int64_t patience = (2 * c->w->settings->provider_timeout + CANCEL_SECS) * SECOND_US,
		      deadline = clock_mono_us() + patience;
	struct following f = { .c = c, .row = *row };
	struct err err = { 0 };
	char key[SESSION_KEY];
	session_key(key, row->owner, row->session_id);
	while (look_again(&f, &err) == 0) {
		*row = f.row;
		if (is_finished(row))
			return 0;
		if (clock_mono_us() >= deadline)
			err_set(&err, ERR_TIMEOUT, "the execution has not ended yet");
		else if (c->w->core.sleep(c->w->core.ctx, key, LOOK_MS / 4) < 0)
			err_set(&err, ERR_ABANDONED, "the caller is gone");
		if (err.code)
			break;
	}
	answer_err(c, &err);
	return -1;
}

void op_cancel(struct call *c)
{
	struct execution_row row;
	struct err err = { 0 };
	char key[SESSION_KEY];
	if (find(c, &row) < 0)
		return;
	if (!is_finished(&row)) {
		if (execution_cancel(c->w->core.store, row.id, &err) < 0) {
			answer_err(c, &err);
			return;
		}
		session_key(key, row.owner, row.session_id);
		c->w->core.wake(c->w->core.ctx, key);
		if (await_end(c, &row) < 0)
			return;
	}
	answer_json(c, 200, execution_json(&row));
}
