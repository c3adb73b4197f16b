#include "engine/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/answer.h"
#include "wire/uri.h"

#define IDS_MAX 100

struct measuring {
	struct sandbox *s;
	struct req *req;
	char id[SANDBOX_ID];
	int64_t start, end; /* real, microseconds */
};

static struct json_object *sample_json(const struct sandbox *s, const struct usage_sample *u)
{
	struct json_object *o = json_object_new_object();
	char when[CLOCK_TEXT];
	json_object_object_add(o, "timestamp",
			       json_object_new_string(clock_rfc3339(when, u->real_us)));
	json_object_object_add(o, "timestampUnix", json_object_new_int64(u->real_us / SECOND_US));
	json_object_object_add(o, "cpuCount", json_object_new_int(s->config.template->cpu));
	json_object_object_add(o, "cpuUsedPct",
			       json_object_new_double((double)(int64_t)(u->cpu_pct * 100) / 100));
	json_object_object_add(o, "memUsed", json_object_new_int64((int64_t)u->usage.mem_used));
	json_object_object_add(o, "memTotal",
			       json_object_new_int64((int64_t)s->config.template->memory_mb << 20));
	json_object_object_add(o, "memCache", json_object_new_int64(0));
	json_object_object_add(o, "diskUsed", json_object_new_int64((int64_t)u->usage.disk_used));
	json_object_object_add(o, "diskTotal", json_object_new_int64((int64_t)u->usage.disk_total));
	return o;
}

static void answer_samples(struct measuring *m)
{
	struct json_object *all = json_object_new_array();
	for (size_t i = 0; i < m->s->nsamples; i++) {
		const struct usage_sample *u = &m->s->samples[i];
		/* Asked for in whole seconds: the second that the end names is part of it. */
		if (u->real_us >= m->start && u->real_us < m->end + SECOND_US)
			json_object_array_add(all, sample_json(m->s, u));
	}
	answer_json(m->req, 200, all);
}

static void on_measured(void *ctx, const struct usage_sample *u)
{
	struct measuring *m = ctx;
	if (m->req && u)
		answer_samples(m);
	else if (m->req)
		answer_error(m->req, 404,
			     "Sandbox \"%s\" doesn't exist or you don't have access to it", m->id);
	free(m);
}

static int query_secs(struct req *r, const char *key, int64_t *us)
{
	char text[32], *end;
	int rc = query_get(req_query(r), key, text, sizeof text);
	if (rc == 0)
		return 0;
	double secs = rc < 0 ? 0 : strtod(text, &end);
	if (rc < 0 || end == text || *end || !(secs >= 0) || secs > 1e11) {
		answer_error(r, 400, "Invalid %s: expected a unix time in seconds", key);
		return -1;
	}
	*us = (int64_t)secs * SECOND_US;
	return 0;
}

void metrics_one(struct sandbox *s, struct req *r)
{
	struct measuring m = { .end = INT64_MAX - SECOND_US };
	if (query_secs(r, "start", &m.start) < 0 || query_secs(r, "end", &m.end) < 0)
		return;
	if (m.start > m.end) {
		answer_error(r, 400, "start must not be after end");
		return;
	}
	m.s = s;
	m.req = r;
	memcpy(m.id, m.s->id, sizeof m.id);
	if (m.s->state == SANDBOX_PAUSED) { /* it cannot be asked; what is known stands */
		answer_samples(&m);
		return;
	}
	struct measuring *keep = malloc(sizeof *keep);
	if (!keep) {
		answer_error(r, 500, "no memory");
		return;
	}
	*keep = m;
	req_hold(r, &keep->req);
	sandbox_measure(m.s, on_measured, keep);
}

/* The newest sample of each; the loop takes one every few seconds. */
void metrics_many(struct engine *e, struct req *r)
{
	char ids[IDS_MAX * 32];
	struct json_object *all = json_object_new_object(), *o = json_object_new_object();
	int commas = 0;
	bool given = query_get(req_query(r), "sandbox_ids", ids, sizeof ids) == 1;
	for (const char *p = given ? ids : ""; *p; p++)
		commas += *p == ',';
	if (!given || commas >= IDS_MAX) {
		json_object_put(all);
		json_object_put(o);
		answer_error(r, 400, "sandbox_ids must name 1 to %d sandboxes, separated by commas",
			     IDS_MAX);
		return;
	}
	for (char *at = ids, *id; (id = strsep(&at, ","));) {
		struct sandbox *s = sandbox_find(e, id);
		if (s && s->nsamples)
			json_object_object_add(all, id,
					       sample_json(s, &s->samples[s->nsamples - 1]));
	}
	json_object_object_add(o, "sandboxes", all);
	answer_json(r, 200, o);
}
