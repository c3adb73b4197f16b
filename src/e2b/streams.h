/* The two streams of events: NDJSON lines of executed code, Connect envelopes of a command. They do
 * no I/O: feed bytes, and the consumer gets events. */
#ifndef E2B_STREAMS_H
#define E2B_STREAMS_H

#include "e2b/backlog.h"
#include "e2b/run.h"
#include "wire/connect.h"
#include "wire/lines.h"

#define CODE_LINE_MAX        (17u << 20)
#define COMMAND_ENVELOPE_MAX (4u << 20)

struct stream {
	struct backlog backlog;
	e2b_event_fn *fn;
	void *ctx;
	bool started;      /* it runs, or ran */
	bool ended;        /* E2B_END was seen; what follows is ignored */
	bool closed;       /* the stream's own end was seen (Connect only) */
	bool refused;      /* with that end came a reason, which is the one to tell */
	struct err broken; /* why the input cannot be read on; told when nothing waits any more */
	struct lines lines;
	struct connect_dec envelopes;
};

void code_stream_init(struct stream *s, e2b_event_fn *fn, void *ctx);
void command_stream_init(struct stream *s, e2b_event_fn *fn, void *ctx);
void stream_free(struct stream *s);

/* 0, -1 with *err set, or 1: nothing of p was taken, feed it again when stream_again says 0. */
int code_stream_feed(struct stream *s, const char *p, size_t n, struct err *err);
int command_stream_feed(struct stream *s, const char *p, size_t n, struct err *err);

/* The answer's headers are there: the code runs. */
int code_stream_began(struct stream *s, struct err *err);

/* A decoder has given up: the error is no caller's fault and no quota of the user's. What came
 * before it is told first. Returns what feed has to. */
int stream_break(struct stream *s, struct err *why, struct err *err);

/* 0 when nothing waits for the consumer any more, 1 when something does, -1. */
int stream_again(struct stream *s, struct err *err);

#endif
