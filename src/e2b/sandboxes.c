#include "e2b/sandboxes.h"

#include <json-c/json.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/control.h"

#define ANSWER_MAX (1u << 20)

/* What connect, get, kill and set-timeout ask for. */
struct request {
	const char *id;
	int secs;
};

static int read_sandbox(struct call *call, struct e2b_sandbox *out, struct err *err)
{
	_cleanup_(json_drop) struct json_object *o = NULL;
	struct e2b_sandbox sb = { 0 };
	if (json_read(&o, call->answer.p, call->answer.len, err) < 0)
		return -1;
	if (json_copy(o, "sandboxID", sb.id, sizeof sb.id) < 0 ||
	    json_copy(o, "domain", sb.domain, sizeof sb.domain) < 0 ||
	    json_copy(o, "envdAccessToken", sb.token, sizeof sb.token) < 0 ||
	    json_copy(o, "trafficAccessToken", sb.traffic_token, sizeof sb.traffic_token) < 0)
		return err_set(err, ERR_INTERNAL, "%s: a field that cannot be used", call->what);
	if (address_check_id(sb.id, NULL) < 0)
		return err_set(err, ERR_INTERNAL, "%s: an answer without a sandbox's id",
			       call->what);
	*out = sb;
	return 0;
}

static int fill_create(struct call *call, bool v1, const void *request)
{
	return buf_adds(&call->url, v1 ? "/sandboxes" : "/v2/sandboxes") ||
	       body_create(&call->body, request, v1);
}

int e2b_create(struct e2b *c, const struct e2b_create *what, struct e2b_sandbox *out,
	       const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct operation op = {
		"create", "POST", ROUTE_CREATE, true, fill_create, what, ANSWER_MAX
	};
	struct call call;
	int rc = control_run(c, &op, &call, client_deadline(c, wait), wait, err);
	if (rc == 0 && read_sandbox(&call, out, err) < 0) {
		/* It was made, and we do not know which it is. */
		if (err)
			err->code = ERR_UNKNOWN_OUTCOME;
		rc = -1;
	}
	if (rc == 0)
		client_names(c, out->id);
	call_free(&call);
	return client_end(c, since, NULL, rc, err);
}

static int fill_connect(struct call *call, bool v1, const void *request)
{
	const struct request *r = request;
	return buf_addf(&call->url, "%s/sandboxes/%s/connect", v1 ? "" : "/v2", r->id) ||
	       body_timeout(&call->body, r->secs);
}

int e2b_connect(struct e2b *c, const char *id, int timeout_secs, struct e2b_sandbox *out,
		bool *resumed, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct request r = { id, timeout_secs };
	struct operation op = { "connect",    "POST", ROUTE_CONNECT, false,
				fill_connect, &r,     ANSWER_MAX };
	struct call call;
	if (address_check_id(id, err) < 0)
		return -1;
	client_names(c, id);
	int rc = control_run(c, &op, &call, client_deadline(c, wait), wait, err);
	if (rc == 0)
		rc = read_sandbox(&call, out, err);
	if (rc == 0 && resumed)
		*resumed = call.status == 201;
	call_free(&call);
	return client_end(c, since, NULL, rc, err);
}

static int fill_timeout(struct call *call, bool v1, const void *request)
{
	const struct request *r = request;
	(void)v1;
	return buf_addf(&call->url, "/sandboxes/%s/timeout", r->id) ||
	       body_timeout(&call->body, r->secs);
}

int e2b_set_timeout(struct e2b *c, const char *id, int secs, const struct e2b_wait *wait,
		    struct err *err)
{
	int64_t since = client_begin(c);
	struct request r = { id, secs };
	struct operation op = { "set timeout", "POST", ROUTE_COUNT, false,
				fill_timeout,  &r,     ANSWER_MAX };
	struct call call;
	if (address_check_id(id, err) < 0)
		return -1;
	client_names(c, id);
	int rc = control_run(c, &op, &call, client_deadline(c, wait), wait, err);
	call_free(&call);
	return client_end(c, since, NULL, rc, err);
}

static int fill_one(struct call *call, bool v1, const void *request)
{
	const struct request *r = request;
	(void)v1;
	return buf_addf(&call->url, "/sandboxes/%s", r->id);
}

int e2b_kill(struct e2b *c, const char *id, bool *was_there, const struct e2b_wait *wait,
	     struct err *err)
{
	int64_t since = client_begin(c);
	struct request r = { .id = id };
	struct operation op = { "kill", "DELETE", ROUTE_COUNT, false, fill_one, &r, ANSWER_MAX };
	struct call call;
	struct err why = { 0 };
	if (address_check_id(id, err) < 0)
		return -1;
	client_names(c, id);
	int rc = control_run(c, &op, &call, client_deadline(c, wait), wait, &why);
	bool gone = rc < 0 && why.code == ERR_NOT_FOUND;
	call_free(&call);
	if (rc < 0 && !gone && err)
		*err = why;
	if ((rc == 0 || gone) && was_there)
		*was_there = !gone;
	return client_end(c, since, NULL, gone ? 0 : rc, err);
}

int e2b_get(struct e2b *c, const char *id, struct e2b_info *out, const struct e2b_wait *wait,
	    struct err *err)
{
	int64_t since = client_begin(c);
	struct request r = { .id = id };
	struct operation op = { "get", "GET", ROUTE_COUNT, false, fill_one, &r, ANSWER_MAX };
	struct call call;
	_cleanup_(json_drop) struct json_object *o = NULL;
	if (address_check_id(id, err) < 0)
		return -1;
	client_names(c, id);
	int rc = control_run(c, &op, &call, client_deadline(c, wait), wait, err);
	if (rc == 0)
		rc = json_read(&o, call.answer.p, call.answer.len, err);
	if (rc == 0)
		rc = info_read(o, out, err);
	if (rc == 0)
		json_object_get(out->metadata); /* it outlives the answer */
	call_free(&call);
	return client_end(c, since, NULL, rc, err);
}

static int fill_health(struct call *call, bool v1, const void *request)
{
	(void)v1;
	(void)request;
	return buf_adds(&call->url, "/health");
}

static int fill_shortest(struct call *call, bool v1, const void *request)
{
	(void)request;
	return buf_adds(&call->url, v1 ? "/sandboxes" : "/v2/sandboxes?limit=1");
}

int e2b_check(struct e2b *c, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c), deadline = client_deadline(c, wait);
	struct operation health = { "health",    "GET", ROUTE_COUNT, false,
				    fill_health, NULL,  ANSWER_MAX };
	struct operation shortest = { "list",        "GET", ROUTE_LIST,     false,
				      fill_shortest, NULL,  LIST_ANSWER_MAX };
	struct call call;
	int rc = control_run(c, &health, &call, deadline, wait, err);
	call_free(&call);
	if (rc == 0) {
		rc = control_run(c, &shortest, &call, deadline, wait, err);
		call_free(&call);
	}
	return client_end(c, since, NULL, rc, err);
}
