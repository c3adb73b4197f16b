#include "engine/surface.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ids.h"
#include "engine/answer.h"

#define RESUME_SECS 300 /* an automatic resume gives at least this */

struct target {
	char id[64];
	long port;
};

static bool id_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
	return n > 0 && n < 64 && s[n] == '\0';
}

/* "{port}-{id}.domain": the leftmost label, split on '-'; what follows a second '-' is ignored. */
static bool parse_host(const char *host, struct target *t)
{
	char label[128], *end;
	size_t n = strcspn(host, ".:");
	if (host[n] != '.' || n >= sizeof label)
		return false;
	snprintf(label, sizeof label, "%.*s", (int)n, host);
	if (!isdigit((unsigned char)label[0]))
		return false;
	t->port = strtol(label, &end, 10);
	if (*end != '-')
		return false;
	char *id = end + 1;
	id[strcspn(id, "-")] = '\0';
	if (!id_ok(id) || strlen(id) >= sizeof t->id)
		return false;
	snprintf(t->id, sizeof t->id, "%s", id);
	return true;
}

/* 1: *t is set. 0: no sandbox is meant. -1: *why says what is wrong. */
static int find_target(struct req *r, struct target *t, const char **why)
{
	const char *host = req_header(r, "Host");
	if (host && parse_host(host, t)) {
		*why = "Invalid sandbox port";
		return t->port >= 1 && t->port <= 65535 ? 1 : -1;
	}
	const char *id = req_header(r, "E2b-Sandbox-Id"), *port = req_header(r, "E2b-Sandbox-Port");
	if (!id && !port)
		return 0;
	char *end = NULL;
	if (!id || !port) {
		*why = "missing header";
		return -1;
	}
	if (!id_ok(id)) {
		*why = "Invalid sandbox ID";
		return -1;
	}
	t->port = strtol(port, &end, 10);
	if (end == port || *end || t->port < 1 || t->port > 65535) {
		*why = "Invalid sandbox port";
		return -1;
	}
	snprintf(t->id, sizeof t->id, "%s", id);
	return 1;
}

void edge_refuse(struct req *r, const struct edge_error *e)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "sandboxId", json_object_new_string(e->id));
	json_object_object_add(o, "message", json_object_new_string(e->text));
	if (e->port)
		json_object_object_add(o, "port", json_object_new_int64(e->port));
	if (e->limit)
		json_object_object_add(o, "connectionLimit", json_object_new_int(e->limit));
	json_object_object_add(o, "code", json_object_new_int(e->status));
	if (e->any_origin)
		req_add_header(r, "Access-Control-Allow-Origin", "*");
	answer_json(r, e->status, o);
}

/* Whether what listens there is the sandbox's own affair, and so is every header of its answers. */
static bool is_inside(const struct target *t)
{
	return t->port != ENVD_PORT && t->port != INTERPRETER_PORT;
}

static void edge_error(struct req *r, int status, const struct target *t, bool with_port,
		       const char *text)
{
	const struct edge_error e = { .status = status,
				      .id = t->id,
				      .port = with_port ? t->port : 0,
				      .any_origin = is_inside(t),
				      .text = text };
	edge_refuse(r, &e);
}

static bool traffic_allowed(const struct sandbox *s, struct req *r, const struct target *t)
{
	const char *token = req_header(r, "E2B-Traffic-Access-Token");
	if (!s->traffic_token[0] || t->port == ENVD_PORT)
		return true;
	if (token && secret_equal(token, s->traffic_token))
		return true;
	edge_error(r, 403, t, false,
		   token ? "Provided token in header 'e2b-traffic-access-token' is invalid"
			 : "Sandbox is secured with traffic access token. Token header "
			   "'e2b-traffic-access-token' is missing");
	return false;
}

/* A paused sandbox that asked for it wakes up by any request that may reach it. */
static bool wake(struct sandbox *s, struct req *r, const struct target *t)
{
	const char *token = req_header(r, "X-Access-Token");
	struct err err;
	if (!s->config.auto_resume) {
		edge_error(r, 502, t, false, "The sandbox was not found");
		return false;
	}
	if (t->port == ENVD_PORT && s->envd_token[0] &&
	    !(token && secret_equal(token, s->envd_token))) {
		edge_error(r, 403, t, false,
			   "This sandbox can't be resumed with the credentials provided. Check "
			   "your access "
			   "token and try again.");
		return false;
	}
	int secs = s->config.timeout > RESUME_SECS ? s->config.timeout : RESUME_SECS;
	if (sandbox_resume(s, secs, &err) < 0) {
		edge_error(r,
			   err.code == ERR_LIMIT         ? 429
			   : err.code == ERR_UNAVAILABLE ? 503
							 : 502,
			   t, false, err.text);
		return false;
	}
	return true;
}

static bool method_known(const char *method)
{
	static const char *const known[] = { "GET",   "HEAD",   "POST",   "PUT",
					     "PATCH", "DELETE", "OPTIONS" };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(method, known[i]))
			return true;
	return false;
}

static bool is_file_url(struct req *r)
{
	return !strcmp(req_path(r), "/files") && strstr(req_query(r), "signature=");
}

/* Any page may call, as at E2B: what protects a call is its key or token, never a cookie. Whether
 * the call goes on from here. */
static bool allow_any_page(struct req *r)
{
	if (!method_known(req_method(r))) {
		answer_error(r, 405, "method not allowed");
		return false;
	}
	req_add_header(r, "Access-Control-Allow-Origin", "*");
	if (!strcmp(req_method(r), "OPTIONS")) {
		req_add_header(r, "Access-Control-Allow-Methods",
			       "GET, HEAD, POST, PUT, PATCH, DELETE");
		req_add_header(r, "Access-Control-Allow-Headers", "*");
		answer_empty(r, 204);
		return false;
	}
	req_add_header(r, "Access-Control-Expose-Headers", "X-Next-Token, X-Total-Running");
	return true;
}

void edge_route(void *app, struct req *r)
{
	struct engine *e = app;
	struct target t;
	struct sandbox *s;
	const char *why = NULL;
	int found = find_target(r, &t, &why);
	if ((found <= 0 || !is_inside(&t)) && !allow_any_page(r))
		return;
	if (found < 0) {
		answer_text(r, 400, why);
		return;
	}
	if (found == 0 && is_file_url(r)) {
		s = files_find_signed(e, r);
		if (!s) {
			answer_error(r, 401, "invalid signature");
			return;
		}
		req_mark(r, s->serial);
		files_route(s, r);
		return;
	}
	if (found == 0) {
		control_route(e, r);
		return;
	}
	s = sandbox_find(e, t.id);
	if (!s) {
		edge_error(r, 502, &t, false, "The sandbox was not found");
		return;
	}
	if (!traffic_allowed(s, r, &t) || (s->state == SANDBOX_PAUSED && !wake(s, r, &t)))
		return;
	req_mark(r, s->serial);
	if (t.port == ENVD_PORT)
		envd_route(s, r);
	else if (t.port == INTERPRETER_PORT && s->config.template->interpreter)
		interpreter_route(s, r);
	else if (t.port == INTERPRETER_PORT)
		edge_error(r, 502, &t, true, "The sandbox is running but port is not open");
	else
		ports_route(s, r, t.port);
}

/* The sandbox by its id: its address may be another's when the body is there. */
struct pending {
	struct engine *e;
	char id[SANDBOX_ID];
	surface_fn *fn;
	void (*arg)(void);
};

static void on_body(void *ctx, struct req *r, struct buf *body)
{
	struct pending *p = ctx;
	struct sandbox *s = sandbox_find(p->e, p->id);
	if (s && s->state == SANDBOX_RUNNING)
		p->fn(s, r, body, p->arg);
	else
		req_cut(r);
}

void surface_collect(struct sandbox *s, struct req *r, size_t max, surface_fn *fn,
		     void (*arg)(void))
{
	struct pending *p = malloc(sizeof *p);
	if (!p) {
		answer_error(r, 500, "no memory");
		return;
	}
	*p = (struct pending){ .e = s->engine, .fn = fn, .arg = arg };
	memcpy(p->id, s->id, sizeof p->id);
	req_collect(r, max, on_body, p);
}

bool surface_user(const struct sandbox *s, const char *name, bool *root)
{
	*root = false;
	if (!name || !*name || !strcmp(name, AGENT_USER))
		return true;
	*root = !strcmp(name, "root") && s->engine->ground.two_users;
	return *root;
}

const char *surface_home(bool root)
{
	return root ? "/root" : AGENT_HOME;
}
