#include "engine/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/answer.h"
#include "engine/surface.h"
#include "wire/base64.h"
#include "wire/uri.h"

#define PAGE_MAX     100
#define QUERY_MAX    8192
#define METADATA_MAX 32

struct filter {
	bool running, paused, asc;
	int limit;
	int64_t started_after;
	const struct template *template;
	bool by_template, none; /* none: an unknown template matches nothing */
	char metadata[QUERY_MAX];
	const char *keys[METADATA_MAX], *values[METADATA_MAX];
	size_t npairs;
	int64_t after_time; /* the last row of the page before */
	char after_id[SANDBOX_ID];
};

struct json_object *listing_entry(const struct sandbox *s)
{
	const struct template *t = s->config.template;
	struct json_object *o = json_object_new_object();
	char when[CLOCK_TEXT];
	json_object_object_add(o, "sandboxID", json_object_new_string(s->id));
	json_object_object_add(o, "templateID", json_object_new_string(t->id));
	json_object_object_add(o, "alias", json_object_new_string(t->name));
	json_object_object_add(o, "clientID", json_object_new_string(CLIENT_ID));
	json_object_object_add(o, "startedAt",
			       json_object_new_string(clock_rfc3339(when, s->started_real)));
	json_object_object_add(o, "endAt",
			       json_object_new_string(clock_rfc3339(when, s->end_real)));
	json_object_object_add(o, "cpuCount", json_object_new_int(t->cpu));
	json_object_object_add(o, "memoryMB", json_object_new_int(t->memory_mb));
	json_object_object_add(o, "diskSizeMB", json_object_new_int(t->disk_mb));
	if (s->config.metadata)
		json_object_object_add(o, "metadata", json_object_get(s->config.metadata));
	json_object_object_add(
		o, "state",
		json_object_new_string(s->state == SANDBOX_PAUSED ? "paused" : "running"));
	json_object_object_add(o, "envdVersion", json_object_new_string(ENVD_VERSION));
	return o;
}

/* Decode in place; the result is never longer. */
static int decode(char *s)
{
	_free_ char *copy = strdup(s);
	return copy ? uri_decode(s, strlen(copy) + 1, copy, strlen(copy), true) : -1;
}

/* The value is encoded once as a query, once as a whole, and once more in each key and value. */
static int parse_metadata(struct filter *f, struct err *err)
{
	if (decode(f->metadata) < 0)
		return err_set(err, ERR_INVALID, "Invalid metadata: broken encoding");
	for (char *at = f->metadata, *pair; (pair = strsep(&at, "&"));) {
		char *eq = strchr(pair, '=');
		if (!eq || strchr(eq + 1, '=') || f->npairs == METADATA_MAX)
			return err_set(err, ERR_INVALID,
				       "Invalid metadata: expected key=value pairs");
		*eq = '\0';
		if (decode(pair) < 0 || decode(eq + 1) < 0)
			return err_set(err, ERR_INVALID, "Invalid metadata: broken encoding");
		f->keys[f->npairs] = pair;
		f->values[f->npairs++] = eq + 1;
	}
	return 0;
}

static int parse_state(struct filter *f, char *text, struct err *err)
{
	f->running = f->paused = false;
	for (char *at = text, *word; (word = strsep(&at, ","));) {
		if (!strcmp(word, "running"))
			f->running = true;
		else if (!strcmp(word, "paused"))
			f->paused = true;
		else
			return err_set(err, ERR_INVALID,
				       "Invalid state '%.32s': use running or paused", word);
	}
	return 0;
}

/* base64url("{RFC 3339}__{id}[__asc]"). */
static int parse_token(struct filter *f, const char *token, struct err *err)
{
	struct buf b = BUF(256);
	int rc = -1;
	if (base64_get(&b, token, strlen(token)) == 0 && b.len) {
		char *id = strstr(b.p, "__");
		if (id) {
			*id = '\0';
			id += 2;
			char *asc = strstr(id, "__asc");
			if (asc)
				*asc = '\0';
			if ((asc != NULL) == f->asc && strlen(id) == SANDBOX_ID - 1 &&
			    clock_parse_rfc3339(b.p, &f->after_time) == 0) {
				snprintf(f->after_id, sizeof f->after_id, "%s", id);
				rc = 0;
			}
		}
	}
	buf_free(&b);
	return rc < 0 ? err_set(err, ERR_INVALID, "Invalid next token") : 0;
}

static void put_token(struct req *r, const struct sandbox *s, bool asc)
{
	struct buf plain = BUF(256), token = BUF(512);
	char when[CLOCK_TEXT];
	buf_addf(&plain, "%s__%s%s", clock_rfc3339(when, s->started_real), s->id,
		 asc ? "__asc" : "");
	base64_put(&token, plain.p, plain.len);
	for (size_t i = 0; i < token.len; i++) {
		if (token.p[i] == '+')
			token.p[i] = '-';
		else if (token.p[i] == '/')
			token.p[i] = '_';
	}
	req_add_header(r, "X-Next-Token", token.p);
	buf_free(&plain);
	buf_free(&token);
}

static int parse_filter(struct engine *e, const char *query, struct filter *f, struct err *err)
{
	char text[512];
	*f = (struct filter){ .running = true, .paused = true, .limit = PAGE_MAX };
	int rc = query_get(query, "order", text, sizeof text);
	if (rc < 0 || (rc && strcmp(text, "asc") != 0 && strcmp(text, "desc") != 0))
		return err_set(err, ERR_INVALID, "Invalid order: use asc or desc");
	f->asc = rc && !strcmp(text, "asc");
	rc = query_get(query, "state", text, sizeof text);
	if (rc < 0 || (rc && parse_state(f, text, err) < 0))
		return rc < 0 ? err_set(err, ERR_INVALID, "Invalid state") : -1;
	rc = query_get(query, "limit", text, sizeof text);
	if (rc) {
		char *end;
		long v = rc < 0 ? 0 : strtol(text, &end, 10);
		if (rc < 0 || *end || v < 1 || v > PAGE_MAX)
			return err_set(err, ERR_INVALID, "Invalid limit: use 1 to %d", PAGE_MAX);
		f->limit = (int)v;
	}
	rc = query_get(query, "startedAfter", text, sizeof text);
	if (rc < 0 || (rc && clock_parse_rfc3339(text, &f->started_after) < 0))
		return err_set(err, ERR_INVALID, "Invalid startedAfter: expected an RFC 3339 time");
	rc = query_get(query, "template", text, sizeof text);
	f->by_template = rc != 0;
	if (rc)
		f->none = rc < 0 || template_find(e->templates, text, &f->template, NULL) < 0;
	rc = query_get(query, "metadata", f->metadata, sizeof f->metadata);
	if (rc < 0 || (rc && *f->metadata && parse_metadata(f, err) < 0))
		return rc < 0 ? err_set(err, ERR_INVALID, "Invalid metadata") : -1;
	rc = query_get(query, "nextToken", text, sizeof text);
	if (rc < 0)
		return err_set(err, ERR_INVALID, "Invalid next token");
	return rc && *text ? parse_token(f, text, err) : 0;
}

static bool metadata_matches(const struct filter *f, const struct sandbox *s)
{
	for (size_t i = 0; i < f->npairs; i++) {
		struct json_object *v;
		if (!s->config.metadata ||
		    !json_object_object_get_ex(s->config.metadata, f->keys[i], &v) ||
		    strcmp(json_object_get_string(v), f->values[i]) != 0)
			return false;
	}
	return true;
}

static bool matches(const struct filter *f, const struct sandbox *s)
{
	if (s->state == SANDBOX_RUNNING  ? !f->running
	    : s->state == SANDBOX_PAUSED ? !f->paused
					 : true)
		return false;
	if (f->none || (f->by_template && s->config.template != f->template))
		return false;
	return s->started_real >= f->started_after && metadata_matches(f, s);
}

/* Newest first; ids decide between equal times. */
static int by_age(const void *a, const void *b)
{
	const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;
	if (x->started_real != y->started_real)
		return x->started_real < y->started_real ? 1 : -1;
	return -strcmp(x->id, y->id);
}

static int by_age_up(const void *a, const void *b)
{
	return by_age(b, a);
}

static bool behind_token(const struct filter *f, const struct sandbox *s)
{
	if (!f->after_id[0])
		return true;
	int64_t d = s->started_real - f->after_time;
	if (d == 0)
		d = strcmp(s->id, f->after_id);
	return f->asc ? d > 0 : d < 0;
}

static void answer_page(struct engine *e, struct req *r, const struct filter *f, bool paged)
{
	size_t n = 0, total = 0;
	for (struct sandbox *s = e->sandboxes; s; s = s->next)
		total++;
	_free_ struct sandbox **rows = calloc(total + 1, sizeof *rows);
	struct json_object *all = json_object_new_array();
	for (struct sandbox *s = e->sandboxes; rows && s; s = s->next)
		if (matches(f, s) && behind_token(f, s))
			rows[n++] = s;
	if (rows)
		qsort(rows, n, sizeof *rows, f->asc ? by_age_up : by_age);
	size_t shown = paged && n > (size_t)f->limit ? (size_t)f->limit : n;
	for (size_t i = 0; i < shown; i++)
		json_object_array_add(all, listing_entry(rows[i]));
	if (shown < n)
		put_token(r, rows[shown - 1], f->asc);
	if (paged && f->running) {
		char count[16];
		snprintf(count, sizeof count, "%d", sandbox_count(e, SANDBOX_RUNNING));
		req_add_header(r, "X-Total-Running", count);
	}
	answer_json(r, 200, all);
}

static void list(struct engine *e, struct req *r, bool v2)
{
	_free_ struct filter *f = malloc(sizeof *f);
	struct err err;
	if (!f) {
		answer_error(r, 500, "no memory");
		return;
	}
	if (parse_filter(e, req_query(r), f, &err) < 0) {
		answer_error(r, 400, "%s", err.text);
		return;
	}
	if (!v2) {
		f->paused = false;
		f->running = true;
	}
	answer_page(e, r, f, v2);
}

void listing_v1(struct engine *e, struct req *r)
{
	list(e, r, false);
}

void listing_v2(struct engine *e, struct req *r)
{
	list(e, r, true);
}

void listing_templates(struct engine *e, struct req *r)
{
	struct json_object *all = json_object_new_array();
	for (const struct template *t = e->templates; t; t = t->next) {
		struct json_object *o = json_object_new_object(), *names = json_object_new_array();
		json_object_array_add(names, json_object_new_string(t->name));
		for (size_t i = 0; i < t->naliases; i++)
			json_object_array_add(names, json_object_new_string(t->aliases[i]));
		json_object_object_add(o, "templateID", json_object_new_string(t->id));
		json_object_object_add(
			o, "buildID",
			json_object_new_string("00000000-0000-0000-0000-000000000000"));
		json_object_object_add(o, "cpuCount", json_object_new_int(t->cpu));
		json_object_object_add(o, "memoryMB", json_object_new_int(t->memory_mb));
		json_object_object_add(o, "diskSizeMB", json_object_new_int(t->disk_mb));
		json_object_object_add(o, "public", json_object_new_boolean(true));
		json_object_object_add(o, "aliases", names);
		json_object_object_add(o, "names", json_object_get(names));
		json_object_object_add(o, "createdAt",
				       json_object_new_string("1970-01-01T00:00:00Z"));
		json_object_object_add(o, "updatedAt",
				       json_object_new_string("1970-01-01T00:00:00Z"));
		json_object_object_add(o, "createdBy", NULL);
		json_object_object_add(o, "lastSpawnedAt", NULL);
		json_object_object_add(o, "spawnCount", json_object_new_int(0));
		json_object_object_add(o, "buildCount", json_object_new_int(1));
		json_object_object_add(o, "envdVersion", json_object_new_string(ENVD_VERSION));
		json_object_object_add(o, "buildStatus", json_object_new_string("ready"));
		json_object_array_add(all, o);
	}
	answer_json(r, 200, all);
}
