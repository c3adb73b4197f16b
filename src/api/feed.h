/* Server-sent events to the client of a call. Nothing here waits for the client but feed_close:
 * what it cannot take yet is kept, and whoever feeds the stream looks whether that is too much. */
#ifndef API_FEED_H
#define API_FEED_H

#include <json-c/json.h>

#include "api/call.h"
#include "core/eventlog.h"

struct feed {
	struct call *c;
	struct buf pending; /* not yet sent, from at on */
	size_t at;
	uint64_t seq;    /* of the last event */
	int64_t sent_at; /* when the client last took something; CLOCK_MONOTONIC */
	bool open, gone;
};

/* Whether the client has asked for one. */
bool feed_wanted(const struct call *c);

/* Status, headers and a first line, so that the client knows at once that it is heard, and of which
 * execution it will hear: what breaks before the first event can be picked up, too. */
void feed_open(struct feed *s, struct call *c, const char *execution_id);

/* One event of an execution, as it is in the log; its end is the caller's to tell. */
void feed_event(struct feed *s, const struct event *event);
void feed_gap(struct feed *s, const struct event_gap *gap);

/* The last one. The object is taken over. */
void feed_last(struct feed *s, const char *name, struct json_object *o);

/* Send what goes without waiting, and a sign of life where there was nothing for a while. Returns
 * the milliseconds until the next of those. */
int feed_send(struct feed *s);

bool feed_full(const struct feed *s);    /* enough for now */
short feed_events(const struct feed *s); /* what to poll(2) the client for */

/* Send the rest, as long as the client takes it. */
void feed_close(struct feed *s);

#endif
