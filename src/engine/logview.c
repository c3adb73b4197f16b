#include "engine/logview.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/answer.h"
#include "engine/logs.h"
#include "wire/uri.h"
#include "wire/utf8.h"

#define SEARCH_MAX 1024

/* A query parameter as a whole number. 0, also when it is absent, or -1 with the answer given. */
static int number(struct req *r, const char *key, int64_t max, int64_t *out)
{
	char text[32], *end;
	int rc = query_get(req_query(r), key, text, sizeof text);
	if (rc == 0)
		return 0;
	errno = 0;
	long long v = rc < 0 ? -1 : strtoll(text, &end, 10);
	if (v < 0 || v > max || errno || end == text || *end) {
		answer_error(r, 400, "Invalid %s: use 0 to %lld", key, (long long)max);
		return -1;
	}
	*out = v;
	return 0;
}

/* The same for a word; *given says whether it is there. */
static int word(struct req *r, const char *key, char *out, size_t cap, bool *given)
{
	int rc = query_get(req_query(r), key, out, cap);
	*given = rc > 0;
	if (rc >= 0 && (!rc || utf8_valid(out, strlen(out))))
		return 0;
	answer_error(r, 400, "Invalid %s: malformed or too long", key);
	return -1;
}

static int parse_direction(struct req *r, bool *backward)
{
	char text[16];
	bool given;
	if (word(r, "direction", text, sizeof text, &given) < 0)
		return -1;
	if (given && strcmp(text, "forward") != 0 && strcmp(text, "backward") != 0) {
		answer_error(r, 400, "Invalid direction: use forward or backward");
		return -1;
	}
	*backward = !given || !strcmp(text, "backward");
	return 0;
}

static int parse_level(struct req *r, enum logs_level *least)
{
	char text[16];
	bool given;
	if (word(r, "level", text, sizeof text, &given) < 0)
		return -1;
	if (!given || logs_level_parse(text, least) == 0)
		return 0;
	answer_error(r, 400, "Invalid level: use debug, info, warn or error");
	return -1;
}

/* 0 with the log, which may be NULL, or -1 with the answer given. */
static int find(struct engine *e, struct req *r, const char *id, const struct logs **out)
{
	const struct sandbox *s = sandbox_find(e, id);
	*out = s ? s->log : logs_find(&e->logs, id, strcspn(id, "-"));
	if (s || *out)
		return 0;
	answer_error(r, 404, "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
	return -1;
}

/* ---- answers ---- */

static void add_fields(struct json_object *o, const struct logs_entry *e)
{
	const char *at = e->fields;
	for (size_t i = 0; i < e->nfields; i++) {
		const char *key = at, *value = key + strlen(key) + 1;
		json_object_object_add(o, key, json_object_new_string(value));
		at = value + strlen(value) + 1;
	}
}

static void add_level(struct json_object *o, const struct logs_entry *e)
{
	json_object_object_add(o, "level", json_object_new_string(logs_level_name(e->level)));
	json_object_object_add(o, "message", json_object_new_string(e->message));
}

static struct json_object *stamped(const struct logs_entry *e)
{
	struct json_object *o = json_object_new_object();
	char when[CLOCK_TEXT];
	json_object_object_add(o, "timestamp",
			       json_object_new_string(clock_rfc3339(when, e->real_us)));
	return o;
}

static void put_entry(void *ctx, const struct logs_entry *e)
{
	struct json_object *o = stamped(e), *fields = json_object_new_object();
	add_level(o, e);
	add_fields(fields, e);
	json_object_object_add(o, "fields", fields);
	json_object_array_add(ctx, o);
}

/* E2B's older clients parse the line as a JSON object of its own. */
static void put_line(void *ctx, const struct logs_entry *e)
{
	struct json_object *o = stamped(e), *line = json_object_new_object();
	add_fields(line, e);
	add_level(line, e);
	json_object_object_add(o, "line",
			       json_object_new_string(json_object_to_json_string_ext(
				       line, JSON_C_TO_STRING_PLAIN)));
	json_object_put(line);
	json_object_array_add(ctx, o);
}

static struct json_object *read_all(const struct logs *l, const struct logs_query *q,
				    void (*put)(void *, const struct logs_entry *))
{
	struct json_object *all = json_object_new_array();
	logs_read(l, q, put, all);
	return all;
}

void logview_v1(struct engine *e, struct req *r, const char *id)
{
	int64_t limit = LOGS_ENTRIES;
	struct logs_query q = { .to_ms = INT64_MAX };
	const struct logs *l;
	if (number(r, "start", INT64_MAX, &q.from_ms) < 0 ||
	    number(r, "limit", INT32_MAX, &limit) < 0 || find(e, r, id, &l) < 0)
		return;
	q.limit = (size_t)limit;
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "logs", read_all(l, &q, put_line));
	json_object_object_add(o, "logEntries", read_all(l, &q, put_entry));
	answer_json(r, 200, o);
}

void logview_v2(struct engine *e, struct req *r, const char *id)
{
	int64_t limit = LOGS_ENTRIES, cursor = -1;
	struct logs_query q = { .to_ms = INT64_MAX };
	char search[SEARCH_MAX];
	const struct logs *l;
	bool searching;
	if (number(r, "cursor", INT64_MAX, &cursor) < 0 ||
	    number(r, "limit", LOGS_ENTRIES, &limit) < 0 || parse_direction(r, &q.backward) < 0 ||
	    parse_level(r, &q.least) < 0 ||
	    word(r, "search", search, sizeof search, &searching) < 0 || find(e, r, id, &l) < 0)
		return;
	q.limit = (size_t)limit;
	q.search = searching ? search : NULL;
	if (cursor >= 0)
		*(q.backward ? &q.to_ms : &q.from_ms) = cursor;
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "logs", read_all(l, &q, put_entry));
	answer_json(r, 200, o);
}
