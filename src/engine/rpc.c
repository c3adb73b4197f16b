#include "engine/rpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/surface.h"
#include "wire/connect.h"
#include "wire/httpfield.h"

#define BODY_MAX       (32u << 20) /* stdin may come in large pieces */
#define KEEPALIVE_SECS 90
#define TIMEOUT_MAX    9999999999 /* ten digits, says the protocol */

struct envelope {
	struct json_object *body;
	int count;
};

static int on_envelope(void *ctx, unsigned flags, const char *payload, size_t n, struct err *err)
{
	struct envelope *v = ctx;
	if (flags & CONNECT_COMPRESSED)
		return err_set(err, ERR_INVALID, "compressed envelopes are not supported");
	if (flags & CONNECT_END)
		return 0;
	if (v->count++)
		return err_set(err, ERR_INVALID, "expected one message, got more");
	return field_root(&v->body, payload, n, err);
}

static int read_stream(struct json_object **out, const struct buf *text, struct err *err)
{
	struct connect_dec d;
	struct envelope v = { 0 };
	connect_init(&d, BODY_MAX);
	int rc = connect_feed(&d, text->p, text->len, on_envelope, &v, err);
	if (rc == 0)
		rc = connect_finish(&d, err);
	connect_free(&d);
	if (rc == 0 && !v.body)
		rc = err_set(err, ERR_INVALID, "the request has no message");
	if (rc < 0)
		json_object_put(v.body);
	else
		*out = v.body;
	return rc;
}

static void on_body(struct sandbox *s, struct req *r, const struct buf *text, void (*fn)(void))
{
	const char *basic = req_header(r, "Authorization");
	char user[64] = "";
	struct json_object *body = NULL;
	struct err err;
	bool root;
	int rc;
	if (connect_is_stream(r))
		rc = read_stream(&body, text, &err);
	else if (!text->len)
		body = json_object_new_object(), rc = 0;
	else
		rc = field_root(&body, text->p, text->len, &err);
	if (rc < 0) {
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "%s", err.text);
		return;
	}
	if (basic && http_basic_user(basic, user, sizeof user) < 0)
		answer_connect(r, CONNECT_UNAUTHENTICATED, "invalid authorization header");
	else if (!surface_user(s, user, &root))
		answer_connect(r, CONNECT_UNAUTHENTICATED, "invalid username: '%s'", user);
	else
		((rpc_fn *)fn)(s, r, body, root);
	json_object_put(body);
}

void rpc_dispatch(struct sandbox *s, struct req *r, const struct rpc_method *table, size_t n,
		  const char *method)
{
	const char *type = req_header(r, "Content-Type");
	if (strcmp(req_method(r), "POST") != 0) {
		answer_error(r, 405, "method not allowed");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (strcmp(table[i].name, method) != 0)
			continue;
		if (!table[i].fn)
			answer_connect(r, CONNECT_UNIMPLEMENTED, "%s is not offered by this engine",
				       method);
		else if (!type ||
			 (!connect_is_stream(r) && !http_type_is(type, "application/json")))
			answer_error(r, 415, "unsupported content type");
		else
			surface_collect(s, r, BODY_MAX, on_body, (void (*)(void))table[i].fn);
		return;
	}
	answer_error(r, 404, "404 page not found");
}

int rpc_path(struct req *r, struct json_object *body, const char *key, bool root,
	     char out[PATH_TEXT])
{
	const char *text = "";
	struct err err;
	if (field_string(body, key, &text, &err) < 0 ||
	    path_resolve(out, text, surface_home(root), surface_home(root), &err) < 0) {
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "%s", err.text);
		return -1;
	}
	return 0;
}

int rpc_timeout_ms(struct req *r, int64_t *out)
{
	const char *text = req_header(r, "Connect-Timeout-Ms");
	char *end;
	if (!text)
		return 0;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (end == text || *end || errno || v < 0 || v > TIMEOUT_MAX) {
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "invalid Connect-Timeout-Ms: '%.64s'",
			       text);
		return -1;
	}
	*out = v;
	return 0;
}

int rpc_keepalive_secs(const struct req *r)
{
	const char *text = req_header(r, "Keepalive-Ping-Interval");
	long v = text ? strtol(text, NULL, 10) : 0;
	return v >= 1 && v <= 3600 ? (int)v : KEEPALIVE_SECS;
}
