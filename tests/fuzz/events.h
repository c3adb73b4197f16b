/* The events of a stream out of a sandbox, written down in a form that does not depend on how the
 * stream was cut or how willing its consumer was. */
#ifndef TESTS_FUZZ_EVENTS_H
#define TESTS_FUZZ_EVENTS_H

#include "fuzz.h"

#include <json-c/json.h>

#include "e2b/streams.h"

#define EVENTS_MAX (4u << 20)

typedef int stream_feed_fn(struct stream *s, const char *p, size_t n, struct err *err);

struct told {
	struct stream stream;
	stream_feed_fn *feed;
	struct buf events;
	bool lazy;  /* says "not now" to each event once */
	bool asked; /* it has said so to this one */
	struct err err;
};

static inline int on_event(void *ctx, const struct e2b_event *e)
{
	struct told *t = ctx;
	CHECK(!t->stream.ended);
	t->asked = t->lazy && !t->asked;
	if (t->asked)
		return E2B_LATER;
	CHECK(e->ntext == 0 || e->text[e->ntext] == '\0');
	CHECK(e->type != E2B_ERROR || (e->name && e->value && e->traceback));
	CHECK(e->type != E2B_END || e->status);
	CHECK(buf_addf(&t->events, "%d %lld %d %d %d %s %s %s %s %s %zu ", (int)e->type,
		       (long long)e->count, e->pid, e->exit_code, e->exited,
		       e->status ? e->status : "-", e->name ? e->name : "-",
		       e->value ? e->value : "-", e->traceback ? e->traceback : "-",
		       e->result ? json_object_to_json_string(e->result) : "-", e->ntext) == 0);
	return buf_add(&t->events, e->text, e->ntext) || buf_adds(&t->events, "\n");
}

/* All that waits is taken in the end. */
static inline int take_held(struct told *t)
{
	int rc;
	while ((rc = stream_again(&t->stream, &t->err)) > 0)
		CHECK(t->lazy);
	return rc;
}

static inline int on_stream_piece(void *ctx, const char *p, size_t n)
{
	struct told *t = ctx;
	int rc = t->feed(&t->stream, p, n, &t->err);
	if (rc > 0) { /* nothing of it was taken */
		CHECK(t->lazy);
		if (take_held(t))
			return -1;
		rc = t->feed(&t->stream, p, n, &t->err);
		CHECK(rc <= 0);
	}
	return rc;
}

static inline void read_stream(struct told *t, const char *p, size_t n, enum cut cut)
{
	int rc = feed_pieces(p, n, cut, on_stream_piece, t);
	if (rc == 0)
		rc = take_held(t);
	CHECK(rc == 0 || t->err.code != ERR_NONE);
	CHECK(buf_addf(&t->events, "%d %d\n", rc, (int)t->err.code) == 0);
	CHECK(buf_addf(&t->events, "%d %d %d\n", t->stream.started, t->stream.ended,
		       t->stream.closed) == 0);
	stream_free(&t->stream);
}

/* Every way of cutting and both kinds of consumers are told the same. */
static inline void check_stream(const char *p, size_t n, void (*begin)(struct told *))
{
	struct told whole = { .events = BUF(EVENTS_MAX) };
	begin(&whole);
	read_stream(&whole, p, n, CUT_NOWHERE);
	for (int way = 1; way < 2 * CUTS; way++) {
		struct told other = { .events = BUF(EVENTS_MAX), .lazy = way >= CUTS };
		begin(&other);
		read_stream(&other, p, n, (enum cut)(way % CUTS));
		CHECK(same(&whole.events, &other.events));
		buf_free(&other.events);
	}
	buf_free(&whole.events);
}

#endif
