/* The way to a port of a sandbox. */
#include <stdio.h>
#include <string.h>

#include "e2b/client.h"

/* Routing headers are ignored where the host names the sandbox, so only one form is ever sent. */
static int route(const struct e2b *c, struct call *call, const struct e2b_sandbox *sb, int port,
		 enum routing routing)
{
	char number[16];
	if (routing == ROUTING_HOST)
		return address_by_host(&c->address, sb, port, &call->url);
	snprintf(number, sizeof number, "%d", port);
	call_header(call, "E2b-Sandbox-Id", sb->id);
	call_header(call, "E2b-Sandbox-Port", number);
	return buf_adds(&call->url, c->address.sandbox);
}

enum found { FOUND, FOUND_NOTHING, FOUND_ERROR };

/* Ask for envd's health in one form. Any answer that shows knowledge of sandboxes will do, also
 * that this one is gone. */
static enum found probe(struct e2b *c, const struct e2b_sandbox *sb, enum routing routing,
			const struct e2b_wait *wait, struct err *err)
{
	struct call call;
	enum found found = FOUND_ERROR;
	call_init(&call, "route", "GET", 64u << 10);
	call_header(&call, "X-Access-Token", sb->token);
	if (route(c, &call, sb, PORT_ENVD, routing) || buf_adds(&call.url, "/health"))
		err_set(err, ERR_INVALID, "the sandbox's URL is too long");
	else if (call_run(c, &call, wait, err) < 0)
		found = err->code == ERR_UNAVAILABLE && !call.sent ? FOUND_NOTHING : FOUND_ERROR;
	else if (answer_is_misrouted(call.status, call.answer.p, call.answer.len))
		found = FOUND_NOTHING;
	else
		found = FOUND;
	if (found == FOUND_NOTHING && call.status)
		err_set(err, ERR_UNAVAILABLE, "%s is not the way to sandboxes: %d", call.url.p,
			call.status);
	call_free(&call);
	return found;
}

/* Find out once how sandboxes are reached: a GET, since what a real call sends may not be sent
 * twice. While neither way answers, the next call asks again. */
static int find_routing(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_wait *wait,
			struct err *err)
{
	struct err first, second;
	enum found found = probe(c, sb, ROUTING_HEADERS, wait, &first);
	if (found == FOUND)
		c->routing = ROUTING_HEADERS;
	else if (found == FOUND_NOTHING) {
		found = probe(c, sb, ROUTING_HOST, wait, &second);
		if (found == FOUND)
			c->routing = ROUTING_HOST;
		else if (found == FOUND_ERROR)
			first = second;
	}
	if (found == FOUND)
		return 0;
	c->last.why = E2B_WHY_NOT_SENT; /* whatever was meant to be sent */
	if (err)
		*err = first;
	return -1;
}

int data_call(struct e2b *c, struct call *call, const struct e2b_sandbox *sb, int port,
	      const char *path, const struct e2b_wait *wait, struct err *err)
{
	enum routing routing = c->routing;
	if (address_check_id(sb->id, err) < 0)
		return -1;
	/* A sandbox on another domain than ours is reached by its own name, as the SDKs do. */
	if (!c->address.fixed && sb->domain[0] && strcmp(sb->domain, c->address.domain) != 0)
		routing = ROUTING_HOST;
	if (routing == ROUTING_UNKNOWN) {
		if (find_routing(c, sb, wait, err) < 0)
			return -1;
		routing = c->routing;
	}
	call_header(call, "X-Access-Token", sb->token);
	call_header(call, "E2B-Traffic-Access-Token", sb->traffic_token);
	if (route(c, call, sb, port, routing) || buf_adds(&call->url, path))
		return err_set(err, ERR_INVALID, "the URL is too long");
	return 0;
}

int data_run(struct e2b *c, struct call *call, const struct e2b_wait *wait, struct err *err)
{
	if (call_run(c, call, wait, err) < 0)
		return -1;
	if (call->status >= 200 && call->status < 300)
		return 0;
	return answer_fail(PLANE_DATA, call->what, call->status, call->answer.p, call->answer.len,
			   &c->last.why, err);
}

bool data_is_unknown(const struct e2b *c, const struct call *call, const struct err *err)
{
	return (err->code == ERR_UNAVAILABLE || err->code == ERR_INTERNAL) &&
	       c->last.why != E2B_WHY_PORT_CLOSED && call_may_have_acted(call);
}

int e2b_alive(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_wait *wait,
	      struct err *err)
{
	int64_t since = client_begin(c);
	struct call call;
	call_init(&call, "health", "GET", 64u << 10);
	int rc = data_call(c, &call, sb, PORT_ENVD, "/health", wait, err);
	if (!rc)
		rc = data_run(c, &call, wait, err);
	call_free(&call);
	return client_end(c, since, sb, rc, err);
}
