/* envd's plain HTTP: health, metrics, environment; and the way to its services. */
#include "engine/surface.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/answer.h"
#include "engine/files.h"

#define PROCESS    "/process.Process/"
#define FILESYSTEM "/filesystem.Filesystem/"

struct measuring {
	struct req *req;
	const struct template *template;
};

static void on_measured(void *ctx, const struct usage_sample *u)
{
	struct measuring *m = ctx;
	if (m->req && u) {
		struct json_object *o = json_object_new_object();
		int64_t total = (int64_t)m->template->memory_mb << 20,
			used = (int64_t)u->usage.mem_used;
		json_object_object_add(o, "ts", json_object_new_int64(u->real_us / SECOND_US));
		json_object_object_add(o, "cpu_count", json_object_new_int(m->template->cpu));
		json_object_object_add(o, "cpu_used_pct",
				       json_object_new_double((double)(int64_t)u->cpu_pct));
		json_object_object_add(o, "mem_total_mib", json_object_new_int64(total >> 20));
		json_object_object_add(o, "mem_used_mib", json_object_new_int64(used >> 20));
		json_object_object_add(o, "mem_total", json_object_new_int64(total));
		json_object_object_add(o, "mem_used", json_object_new_int64(used));
		json_object_object_add(o, "mem_cache", json_object_new_int64(0));
		json_object_object_add(o, "disk_used",
				       json_object_new_int64((int64_t)u->usage.disk_used));
		json_object_object_add(o, "disk_total",
				       json_object_new_int64((int64_t)u->usage.disk_total));
		answer_json(m->req, 200, o);
	} else if (m->req) {
		req_cut(m->req);
	}
	free(m);
}

static void metrics(struct sandbox *s, struct req *r)
{
	struct measuring *m = malloc(sizeof *m);
	if (!m) {
		answer_error(r, 500, "no memory");
		return;
	}
	*m = (struct measuring){ .template = s->config.template };
	req_hold(r, &m->req);
	sandbox_measure(s, on_measured, m);
}

/* What only the control plane may call, at E2B too. */
static bool reserved(const char *path)
{
	static const char *const paths[] = { "/init",     "/freeze", "/unfreeze",
					     "/fsfreeze", "/fsthaw", "/collapse" };
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		if (!strcmp(path, paths[i]))
			return true;
	return false;
}

static bool authorized(const struct sandbox *s, struct req *r)
{
	const char *token = req_header(r, "X-Access-Token");
	if (!s->envd_token[0] || (token && secret_equal(token, s->envd_token)))
		return true;
	answer_error(r, 401,
		     "unauthorized access, please provide a valid access token or method signing "
		     "if supported");
	return false;
}

void envd_route(struct sandbox *s, struct req *r)
{
	const char *method = req_method(r), *path = req_path(r);
	bool get = !strcmp(method, "GET");
	if (get && !strcmp(path, "/health")) {
		req_add_header(r, "Cache-Control", "no-store");
		answer_empty(r, 204);
	} else if (reserved(path)) {
		answer_error(r, 404, "This endpoint is reserved for the E2B control plane");
	} else if (!strcmp(path, "/files")) {
		files_route(s, r);
	} else if (!authorized(s, r)) {
		return;
	} else if (get && !strcmp(path, "/metrics")) {
		metrics(s, r);
	} else if (get && !strcmp(path, "/envs")) {
		answer_json(r, 200, sandbox_envs(s));
	} else if (!strcmp(path, "/files/compose")) {
		compose_route(s, r);
	} else if (!strncmp(path, PROCESS, strlen(PROCESS))) {
		process_route(s, r, path + strlen(PROCESS));
	} else if (!strncmp(path, FILESYSTEM, strlen(FILESYSTEM))) {
		filesystem_route(s, r, path + strlen(FILESYSTEM));
	} else {
		answer_error(r, 404, "404 page not found");
	}
}
