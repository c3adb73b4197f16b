#include <json-c/json.h>

#include <string.h>

#include "base/cleanup.h"
#include "e2b/answer.h"
#include "e2b/streams.h"

/* Pieces of input are at most this long, and each held line costs a head. */
#define SLACK (2u << 20)

#define ITEM_LINE 0u
#define ITEM_RUNS 1u

static int give(struct stream *s, const struct e2b_event *event, struct err *err)
{
	int rc = s->fn(s->ctx, event);
	if (rc == 0 && event->type == E2B_END)
		s->ended = true;
	return rc < 0 ? err_set(err, ERR_ABANDONED, "the consumer of the output stopped") : rc;
}

static const char *text_or_empty(struct json_object *o, const char *key)
{
	const char *s = json_text(o, key);
	return s ? s : "";
}

static int give_output(struct stream *s, enum e2b_event_type type, struct json_object *o,
		       struct err *err)
{
	struct json_object *text = json_member(o, "text");
	struct e2b_event event = { .type = type };
	if (!json_object_is_type(text, json_type_string))
		return err_set(err, ERR_INTERNAL, "an output line without text");
	event.text = json_object_get_string(text);
	event.ntext = (size_t)json_object_get_string_len(text);
	return give(s, &event, err);
}

static int give_error(struct stream *s, struct json_object *o, struct err *err)
{
	struct e2b_event event = { .type = E2B_ERROR,
				   .name = text_or_empty(o, "name"),
				   .value = text_or_empty(o, "value"),
				   .traceback = text_or_empty(o, "traceback") };
	return give(s, &event, err);
}

/* Keepalives and types that are newer than we are pass by. */
static int give_line(struct stream *s, struct json_object *o, struct err *err)
{
	const char *type = json_text(o, "type");
	if (!type)
		return err_set(err, ERR_INTERNAL, "a line without a type");
	if (!strcmp(type, "stdout"))
		return give_output(s, E2B_STDOUT, o, err);
	if (!strcmp(type, "stderr"))
		return give_output(s, E2B_STDERR, o, err);
	if (!strcmp(type, "error"))
		return give_error(s, o, err);
	struct e2b_event event = { .type = E2B_END, .status = "" };
	if (!strcmp(type, "result"))
		event = (struct e2b_event){ .type = E2B_RESULT, .result = o };
	else if (!strcmp(type, "number_of_executions"))
		event = (struct e2b_event){ .type = E2B_COUNT,
					    .count = json_integer(o, "execution_count", 0) };
	else if (strcmp(type, "end_of_execution") != 0)
		return 0;
	return give(s, &event, err);
}

static int on_item(void *ctx, unsigned flags, const char *p, size_t n, struct err *err)
{
	struct stream *s = ctx;
	_cleanup_(json_drop) struct json_object *o = NULL;
	if (s->ended)
		return 0;
	if (flags == ITEM_RUNS)
		return give(s, &(struct e2b_event){ .type = E2B_RUNS }, err);
	if (json_read(&o, p, n, err) < 0)
		return -1;
	return give_line(s, o, err);
}

static int on_line(void *ctx, const char *line, size_t n, struct err *err)
{
	struct stream *s = ctx;
	while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
		n--;
	return n && !s->ended ? backlog_put(&s->backlog, ITEM_LINE, line, n, err) : 0;
}

void code_stream_init(struct stream *s, e2b_event_fn *fn, void *ctx)
{
	*s = (struct stream){ .fn = fn, .ctx = ctx };
	lines_init(&s->lines, CODE_LINE_MAX);
	connect_init(&s->envelopes, 0);
	backlog_init(&s->backlog, CODE_LINE_MAX + SLACK, on_item, s);
}

int code_stream_began(struct stream *s, struct err *err)
{
	s->started = true;
	return backlog_put(&s->backlog, ITEM_RUNS, "", 0, err);
}

int code_stream_feed(struct stream *s, const char *p, size_t n, struct err *err)
{
	if (backlog_waits(&s->backlog))
		return 1;
	struct err why = { 0 };
	return lines_feed(&s->lines, p, n, on_line, s, &why) < 0 ? stream_break(s, &why, err) : 0;
}

int stream_break(struct stream *s, struct err *why, struct err *err)
{
	if (!s->refused && (why->code == ERR_INVALID || why->code == ERR_LIMIT))
		why->code = ERR_INTERNAL;
	if (backlog_waits(&s->backlog)) {
		s->broken = *why;
		return 0;
	}
	if (err)
		*err = *why;
	return -1;
}

int stream_again(struct stream *s, struct err *err)
{
	int rc = backlog_again(&s->backlog, err);
	if (rc != 0 || !s->broken.code)
		return rc;
	if (err)
		*err = s->broken;
	return -1;
}

void stream_free(struct stream *s)
{
	lines_free(&s->lines);
	connect_free(&s->envelopes);
	backlog_free(&s->backlog);
}
