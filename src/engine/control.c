#include "engine/surface.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/answer.h"
#include "engine/listing.h"
#include "engine/logview.h"
#include "engine/metrics.h"
#include "engine/network.h"
#include "wire/uri.h"

#define BODY_MAX   (1u << 20)
#define V1_TIMEOUT 15
#define V2_TIMEOUT 300

/* What is known of a request once its row in the table is found. */
struct call {
	struct engine *e;
	char id[128]; /* the {} of the path */
	bool v2;
};

typedef void control_fn(struct call *c, struct req *r, struct json_object *body);

static void bad_request(struct req *r, const struct err *err)
{
	answer_error(r, 400, "Error when parsing request: %s", err->text);
}

static void no_sandbox(struct req *r, const char *id)
{
	answer_error(r, 404, "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
}

static struct sandbox *need_sandbox(struct call *c, struct req *r)
{
	struct sandbox *s = sandbox_find(c->e, c->id);
	if (!s)
		no_sandbox(r, c->id);
	return s;
}

/* ---- create ---- */

static struct json_object *sandbox_json(const struct sandbox *s)
{
	struct json_object *o = json_object_new_object();
	const struct template *t = s->config.template;
	json_object_object_add(o, "sandboxID", json_object_new_string(s->id));
	json_object_object_add(o, "templateID", json_object_new_string(t->id));
	json_object_object_add(o, "alias", json_object_new_string(t->name));
	json_object_object_add(o, "clientID", json_object_new_string(CLIENT_ID));
	json_object_object_add(o, "envdVersion", json_object_new_string(ENVD_VERSION));
	if (s->envd_token[0])
		json_object_object_add(o, "envdAccessToken", json_object_new_string(s->envd_token));
	json_object_object_add(o, "trafficAccessToken",
			       s->traffic_token[0] ? json_object_new_string(s->traffic_token)
						   : NULL);
	json_object_object_add(o, "domain", NULL);
	return o;
}

/* A create or resume that was refused at once, with the status that its kind of error has. */
static void answer_refused(struct req *r, const struct err *err)
{
	struct json_object *o = json_object_new_object();
	int status = err->code == ERR_LIMIT         ? 429
		     : err->code == ERR_INVALID     ? 400
		     : err->code == ERR_UNAVAILABLE ? 503
						    : 500;
	json_object_object_add(o, "code", json_object_new_int(status));
	json_object_object_add(o, "message", json_object_new_string(err->text));
	if (status == 503)
		json_object_object_add(o, "error_code",
				       json_object_new_string("sandbox_capacity_unavailable"));
	answer_json(r, status, o);
}

/* The asker of a create may go away; the sandbox is made all the same. */
struct creating {
	struct req *req;
};

static void on_created(void *ctx, struct sandbox *s, const struct err *why)
{
	struct creating *w = ctx;
	(void)why; /* logged where it happened; not the client's business */
	if (w->req && s)
		answer_json(w->req, 201, sandbox_json(s));
	else if (w->req)
		answer_error(w->req, 500, "Failed to create sandbox");
	free(w);
}

/* 0, or -1 with the answer given. */
static int check_timeout(struct call *c, struct req *r, int64_t secs)
{
	int max = c->e->opt->max_lifetime;
	if (secs <= 0)
		answer_error(r, 400, "Timeout must be greater than 0");
	else if (secs > max)
		answer_error(r, 400, "Timeout cannot be greater than %g hours", max / 3600.0);
	return secs > 0 && secs <= max ? 0 : -1;
}

static bool filled(struct json_object *o, const char *key)
{
	struct json_object *v;
	if (!json_object_object_get_ex(o, key, &v) || !v)
		return false;
	if (json_object_is_type(v, json_type_array))
		return json_object_array_length(v) > 0;
	if (json_object_is_type(v, json_type_object))
		return json_object_object_length(v) > 0;
	return true;
}

/* A part of the request that this engine cannot honour, and must not pass over in silence. */
static const char *not_offered(struct json_object *body)
{
	static const char *const top[] = { "mcp", "iam", "volumeMounts" };
	for (size_t i = 0; i < sizeof top / sizeof *top; i++)
		if (filled(body, top[i]))
			return top[i];
	return NULL;
}

static int read_create(struct call *c, struct json_object *body, struct sandbox_config *config,
		       const char **template, int64_t *timeout, struct err *err)
{
	struct json_object *network = NULL, *resume = NULL;
	bool pause_memory = true;
	*timeout = c->v2 ? V2_TIMEOUT : V1_TIMEOUT;
	*config = (struct sandbox_config){ .internet = true, .secure = c->v2 };
	int rc = field_string(body, "templateID", template, err);
	if (rc <= 0)
		return rc < 0 ? -1 : err_set(err, ERR_INVALID, "templateID is required");
	int internet = field_bool(body, "allow_internet_access", &config->internet, err);
	if (field_int(body, "timeout", INT32_MIN, INT32_MAX, timeout, err) < 0 || internet < 0 ||
	    field_strings(body, "metadata", false, &config->metadata, err) < 0 ||
	    field_strings(body, "envVars", true, &config->envs, err) < 0 ||
	    field_bool(body, "autoPause", &config->auto_pause, err) < 0 ||
	    field_bool(body, "autoPauseMemory", &pause_memory, err) < 0 ||
	    (!c->v2 && field_bool(body, "secure", &config->secure, err) < 0) ||
	    field_object(body, "autoResume", &resume, err) < 0 ||
	    (resume && field_bool(resume, "enabled", &config->auto_resume, err) < 0) ||
	    field_object(body, "network", &network, err) < 0 ||
	    network_read(network, &config->network, err) < 0)
		return -1;
	config->internet_asked = internet > 0;
	config->private_traffic = !network_public(config->network);
	if (!pause_memory)
		return err_set(err,
			       config->auto_pause && !config->auto_resume ? ERR_UNAVAILABLE
									  : ERR_INVALID,
			       "autoPauseMemory");
	const char *missing = not_offered(body);
	return missing ? err_set(err, ERR_UNAVAILABLE, "%s", missing) : 0;
}

static void create_as(struct call *c, struct req *r, const struct sandbox_config *config)
{
	struct err err = { 0 };
	struct creating *w = calloc(1, sizeof *w);
	if (!w)
		err_set(&err, ERR_INTERNAL, "no memory");
	if (!w || sandbox_create(c->e, config, on_created, w, &err) < 0) {
		answer_refused(r, &err);
		free(w);
		return;
	}
	req_hold(r, &w->req);
}

static void create(struct call *c, struct req *r, struct json_object *body)
{
	struct sandbox_config config;
	const char *template;
	int64_t timeout;
	struct err err = { 0 };
	if (read_create(c, body, &config, &template, &timeout, &err) < 0) {
		if (err.code == ERR_UNAVAILABLE)
			answer_error(r, 501, "%s is not offered by this engine", err.text);
		else
			bad_request(r, &err);
	} else if (check_timeout(c, r, timeout) == 0) {
		config.timeout = (int)timeout;
		if (template_find(c->e->templates, template, &config.template, &err) == 0)
			create_as(c, r, &config);
		else
			answer_error(r, err.code == ERR_NOT_FOUND ? 404 : 400, "%s", err.text);
	}
	json_object_put(config.network);
}

/* ---- one sandbox ---- */

static void get(struct call *c, struct req *r, struct json_object *body)
{
	struct sandbox *s = need_sandbox(c, r);
	(void)body;
	if (!s)
		return;
	struct json_object *o = listing_entry(s), *life = json_object_new_object();
	if (s->envd_token[0])
		json_object_object_add(o, "envdAccessToken", json_object_new_string(s->envd_token));
	json_object_object_add(o, "domain", NULL);
	if (s->config.network)
		json_object_object_add(o, "network", json_object_get(s->config.network));
	json_object_object_add(
		o, "allowInternetAccess",
		s->config.internet_asked ? json_object_new_boolean(s->config.internet) : NULL);
	json_object_object_add(life, "autoResume", json_object_new_boolean(s->config.auto_resume));
	json_object_object_add(life, "onTimeout",
			       json_object_new_string(s->config.auto_pause ? "pause" : "kill"));
	json_object_object_add(o, "lifecycle", life);
	answer_json(r, 200, o);
}

static void kill_it(struct call *c, struct req *r, struct json_object *body)
{
	struct sandbox *s = need_sandbox(c, r);
	(void)body;
	if (!s)
		return;
	sandbox_end_because(s, "killed by a request");
	answer_empty(r, 204);
}

/* Connect and the older resume: wake a paused sandbox, or lengthen the life of a running one. */
static void connect_to(struct call *c, struct req *r, struct json_object *body)
{
	struct err err;
	int64_t timeout = V2_TIMEOUT;
	bool memory = true;
	int given = field_int(body, "timeout", INT32_MIN, INT32_MAX, &timeout, &err);
	if (given < 0 || field_bool(body, "memory", &memory, &err) < 0) {
		bad_request(r, &err);
		return;
	}
	if (!c->v2 && !given) {
		answer_error(r, 400, "Error when parsing request: timeout is required");
		return;
	}
	struct sandbox *s = need_sandbox(c, r);
	if (!s || check_timeout(c, r, timeout) < 0)
		return;
	if (!memory) {
		answer_error(r, 501, "resume without memory is not offered by this engine");
		return;
	}
	bool paused = s->state == SANDBOX_PAUSED;
	int rc = paused ? sandbox_resume(s, (int)timeout, &err)
			: sandbox_set_timeout(s, (int)timeout, true, &err);
	if (rc < 0)
		answer_refused(r, &err);
	else
		answer_json(r, paused ? 201 : 200, sandbox_json(s));
}

static void resume(struct call *c, struct req *r, struct json_object *body)
{
	struct sandbox *s = need_sandbox(c, r);
	if (!s)
		return;
	if (s->state != SANDBOX_PAUSED) {
		answer_error(r, 409, "Sandbox %s is already running", s->id);
		return;
	}
	c->v2 = true; /* its timeout is optional */
	connect_to(c, r, body);
}

static void set_timeout(struct call *c, struct req *r, struct json_object *body)
{
	struct err err;
	int64_t secs;
	int rc = field_int(body, "timeout", 0, INT32_MAX, &secs, &err);
	if (rc <= 0) {
		if (rc == 0)
			err_set(&err, ERR_INVALID, "timeout is required");
		bad_request(r, &err);
		return;
	}
	struct sandbox *s = need_sandbox(c, r);
	if (!s)
		return;
	if (s->state != SANDBOX_RUNNING)
		answer_error(r, 409, "Sandbox \"%s\" is paused", s->id);
	else if (sandbox_set_timeout(s, (int)secs, false, &err) < 0)
		answer_error(r, 400, "%s", err.text);
	else
		answer_empty(r, 204);
}

static void refresh(struct call *c, struct req *r, struct json_object *body)
{
	struct err err;
	int64_t secs = 0;
	if (field_int(body, "duration", 0, 3600, &secs, &err) < 0) {
		bad_request(r, &err);
		return;
	}
	struct sandbox *s = need_sandbox(c, r);
	if (!s)
		return;
	if (s->state == SANDBOX_RUNNING &&
	    sandbox_set_timeout(s, secs < 15 ? 15 : (int)secs, true, &err) < 0)
		answer_error(r, 400, "%s", err.text);
	else
		answer_empty(r, 204);
}

static void pause_it(struct call *c, struct req *r, struct json_object *body)
{
	struct err err;
	bool memory = true;
	if (field_bool(body, "memory", &memory, &err) < 0) {
		bad_request(r, &err);
		return;
	}
	struct sandbox *s = need_sandbox(c, r);
	if (!s)
		return;
	if (!memory)
		answer_error(r, 501, "pause without memory is not offered by this engine");
	else if (sandbox_pause(s, &err) < 0)
		answer_error(r,
			     err.code == ERR_CONFLICT ? 409
			     : err.code == ERR_LIMIT  ? 503
						      : 500,
			     "%s", err.text);
	else
		answer_empty(r, 204);
}

static void set_network(struct call *c, struct req *r, struct json_object *body)
{
	struct sandbox *s = need_sandbox(c, r);
	if (s)
		network_put(s, r, body);
}

/* ---- the rest ---- */

static void metrics(struct call *c, struct req *r, struct json_object *body)
{
	struct sandbox *s = need_sandbox(c, r);
	(void)body;
	if (s)
		metrics_one(s, r);
}

static void many_metrics(struct call *c, struct req *r, struct json_object *body)
{
	(void)body;
	metrics_many(c->e, r);
}

static void logs(struct call *c, struct req *r, struct json_object *body)
{
	(void)body;
	if (c->v2)
		logview_v2(c->e, r, c->id);
	else
		logview_v1(c->e, r, c->id);
}

static void list_v1(struct call *c, struct req *r, struct json_object *body)
{
	(void)body;
	listing_v1(c->e, r);
}

static void list_v2(struct call *c, struct req *r, struct json_object *body)
{
	(void)body;
	listing_v2(c->e, r);
}

static void templates(struct call *c, struct req *r, struct json_object *body)
{
	(void)body;
	listing_templates(c->e, r);
}

/* Whether a name is taken, and by which template. */
static void alias(struct call *c, struct req *r, struct json_object *body)
{
	const struct template *t;
	char name[128];
	(void)body;
	if (uri_decode(name, sizeof name, c->id, strlen(c->id), false) < 0 ||
	    template_find(c->e->templates, name, &t, NULL) < 0) {
		answer_error(r, 404, "template '%s' not found", c->id);
		return;
	}
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "templateID", json_object_new_string(t->id));
	json_object_object_add(o, "public", json_object_new_boolean(true));
	answer_json(r, 200, o);
}

static void not_here(struct call *c, struct req *r, struct json_object *body)
{
	(void)c;
	(void)body;
	answer_error(r, 501, "%s %s is not offered by this engine", req_method(r), req_path(r));
}

/* {} stands for one segment; "*" at the end for any rest. A body is read where one is expected. */
static const struct row {
	const char *method, *path;
	enum { NO_BODY, BODY, OPTIONAL_BODY } body;
	control_fn *fn;
} rows[] = {
	{ "POST", "/sandboxes", BODY, create },
	{ "POST", "/v2/sandboxes", BODY, create },
	{ "GET", "/sandboxes", NO_BODY, list_v1 },
	{ "GET", "/v2/sandboxes", NO_BODY, list_v2 },
	{ "GET", "/sandboxes/metrics", NO_BODY, many_metrics },
	{ "GET", "/sandboxes/{}", NO_BODY, get },
	{ "DELETE", "/sandboxes/{}", NO_BODY, kill_it },
	{ "POST", "/sandboxes/{}/connect", OPTIONAL_BODY, connect_to },
	{ "POST", "/v2/sandboxes/{}/connect", OPTIONAL_BODY, connect_to },
	{ "POST", "/sandboxes/{}/resume", OPTIONAL_BODY, resume },
	{ "POST", "/sandboxes/{}/timeout", BODY, set_timeout },
	{ "POST", "/sandboxes/{}/refreshes", OPTIONAL_BODY, refresh },
	{ "POST", "/sandboxes/{}/pause", OPTIONAL_BODY, pause_it },
	{ "PUT", "/sandboxes/{}/network", BODY, set_network },
	{ "GET", "/sandboxes/{}/metrics", NO_BODY, metrics },
	{ "GET", "/sandboxes/{}/logs", NO_BODY, logs },
	{ "GET", "/v2/sandboxes/{}/logs", NO_BODY, logs },
	{ "GET", "/templates", NO_BODY, templates },
	{ "GET", "/v2/templates", NO_BODY, templates },
	{ "GET", "/templates/aliases/{}", NO_BODY, alias },
	/* E2B has these, this engine has not. */
	{ "*", "/sandboxes/{}/fork", NO_BODY, not_here },
	{ "*", "/sandboxes/{}/snapshots", NO_BODY, not_here },
	{ "*", "/snapshots*", NO_BODY, not_here },
	{ "*", "/templates*", NO_BODY, not_here },
	{ "*", "/v2/templates*", NO_BODY, not_here },
	{ "*", "/v3/templates*", NO_BODY, not_here },
	{ "*", "/volumes*", NO_BODY, not_here },
	{ "*", "/volumecontent*", NO_BODY, not_here },
	{ "*", "/secrets*", NO_BODY, not_here },
	{ "*", "/teams*", NO_BODY, not_here },
	{ "*", "/api-keys*", NO_BODY, not_here },
	{ "*", "/access-tokens*", NO_BODY, not_here },
	{ "*", "/nodes*", NO_BODY, not_here },
	{ "*", "/events*", NO_BODY, not_here },
};

static bool match_path(const char *pattern, const char *path, char *id, size_t cap)
{
	for (; *pattern; pattern++) {
		if (*pattern == '*')
			return *path == '\0' || *path == '/';
		if (*pattern != '{') {
			if (*path++ != *pattern)
				return false;
			continue;
		}
		size_t n = strcspn(path, "/");
		if (!n || n >= cap)
			return false;
		snprintf(id, cap, "%.*s", (int)n, path);
		path += n;
		pattern++;
	}
	return *path == '\0';
}

static bool id_valid(const char *id)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = strspn(id, letters);
	if (n && id[n] == '-')
		n += 1 + strspn(id + n + 1, letters);
	return n && id[n] == '\0';
}

static bool authorized(const struct engine *e, struct req *r)
{
	const char *key = req_header(r, "X-API-Key");
	bool ok = false;
	for (size_t i = 0; key && i < e->opt->nkeys; i++)
		ok |= secret_equal(key,
				   e->opt->keys[i]); /* no early end: all keys take the same time */
	if (ok)
		return true;
	answer_error(r, 401,
		     "Invalid API key, please visit https://e2b.dev/docs/api-key for more "
		     "information.\n%s",
		     !key                      ? "The API key is missing"
		     : strncmp(key, "e2b_", 4) ? "Invalid API key format"
					       : "Cannot get the team for the given API key");
	return false;
}

/* A request whose body is on its way. */
struct pending {
	struct call call;
	const struct row *row;
};

static void on_body(void *ctx, struct req *r, struct buf *text)
{
	struct pending *p = ctx;
	struct json_object *body = NULL;
	struct err err;
	if (!text->len && p->row->body == OPTIONAL_BODY)
		body = json_object_new_object();
	if (!body && field_root(&body, text->p, text->len, &err) < 0)
		bad_request(r, &err);
	else
		p->row->fn(&p->call, r, body);
	json_object_put(body);
}

static void dispatch(struct engine *e, struct req *r, const struct row *row, const char *id)
{
	struct call call = { .e = e, .v2 = !strncmp(row->path, "/v2/", 4) };
	snprintf(call.id, sizeof call.id, "%s", id);
	if (*id && row->fn != not_here && row->fn != alias && !id_valid(id)) {
		answer_error(r, 400, "Invalid sandbox ID");
		return;
	}
	if (row->body == NO_BODY) {
		row->fn(&call, r, NULL);
		return;
	}
	struct pending *p = malloc(sizeof *p);
	if (!p) {
		answer_error(r, 500, "no memory");
		return;
	}
	*p = (struct pending){ call, row };
	req_collect(r, BODY_MAX, on_body, p);
}

void control_route(struct engine *e, struct req *r)
{
	const char *method = req_method(r), *path = req_path(r);
	bool known = false;
	if (!strcmp(path, "/health")) {
		bool ok = !strcmp(method, "GET") || !strcmp(method, "HEAD");
		answer_text(r, ok ? 200 : 405,
			    ok ? "Health check successful" : "method not allowed");
		return;
	}
	if (!authorized(e, r))
		return;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char id[128] = "";
		if (!match_path(rows[i].path, path, id, sizeof id))
			continue;
		known = true;
		if (strcmp(rows[i].method, "*") != 0 && strcmp(rows[i].method, method) != 0)
			continue;
		dispatch(e, r, &rows[i], id);
		return;
	}
	answer_error(r, known ? 405 : 404,
		     known ? "method not allowed" : "no matching operation was found");
}
