#include "engine/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/answer.h"
#include "engine/netchange.h"
#include "engine/porthead.h"
#include "engine/sandbox.h"

#define TRANSITION "The sandbox is still transitioning. Try again in a moment."

/* ---- reading ---- */

/* A list of addresses and ranges, all of which can be honoured. 1 when there are some. */
static int check_list(struct json_object *asked, const char *key, struct json_object **out,
		      struct err *err)
{
	struct json_object *list;
	if (!json_object_object_get_ex(asked, key, &list) || !list)
		return 0;
	if (!json_object_is_type(list, json_type_array))
		return err_set(err, ERR_INVALID, "%s must be an array of strings", key);
	size_t n = json_object_array_length(list);
	if (n > NETRULES_ENTRIES)
		return err_set(err, ERR_INVALID, "%s has more than %d entries", key,
			       NETRULES_ENTRIES);
	for (size_t i = 0; i < n; i++) {
		struct json_object *entry = json_object_array_get_idx(list, i);
		struct net_range range;
		if (!json_object_is_type(entry, json_type_string))
			return err_set(err, ERR_INVALID, "%s must be an array of strings", key);
		const char *text = json_object_get_string(entry);
		switch (netrules_entry(text, &range)) {
		case NET_ENTRY_RANGE:
			break;
		case NET_ENTRY_FOREIGN:
			return err_set(err, ERR_UNAVAILABLE,
				       "network.%s '%.100s' (neither an IPv4 address nor a range)",
				       key, text);
		case NET_ENTRY_BAD:
			return err_set(err, ERR_INVALID, "%s '%.100s' is no address", key, text);
		}
	}
	*out = list;
	return n > 0;
}

static bool filled(struct json_object *v)
{
	if (json_object_is_type(v, json_type_array))
		return json_object_array_length(v) > 0;
	if (json_object_is_type(v, json_type_object))
		return json_object_object_length(v) > 0;
	return v != NULL;
}

/* Both lists from asked into out. */
static int read_lists(struct json_object *asked, struct json_object *out, struct err *err)
{
	static const char *const not_here[] = { "rules", "egressProxy", "httpsPorts" };
	static const char *const lists[] = { "allowOut", "denyOut" };
	for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++) {
		struct json_object *v;
		if (json_object_object_get_ex(asked, not_here[i], &v) && filled(v))
			return err_set(err, ERR_UNAVAILABLE, "network.%s", not_here[i]);
	}
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		struct json_object *list = NULL;
		int rc = check_list(asked, lists[i], &list, err);
		if (rc < 0)
			return -1;
		if (rc)
			json_object_object_add(out, lists[i], json_object_get(list));
	}
	return 0;
}

static int read_ports(struct json_object *asked, struct json_object *out, struct err *err)
{
	bool public;
	const char *host;
	int rc = field_bool(asked, "allowPublicTraffic", &public, err);
	if (rc < 0)
		return -1;
	if (rc)
		json_object_object_add(out, "allowPublicTraffic", json_object_new_boolean(public));
	rc = field_string(asked, "maskRequestHost", &host, err);
	if (rc < 0)
		return -1;
	if (rc && !port_host_valid(host))
		return err_set(err, ERR_INVALID, "maskRequestHost is no host");
	if (rc)
		json_object_object_add(out, "maskRequestHost", json_object_new_string(host));
	return 0;
}

int network_read(struct json_object *asked, struct json_object **out, struct err *err)
{
	*out = NULL;
	if (!asked)
		return 0;
	struct json_object *kept = json_object_new_object();
	if (!kept)
		return err_set(err, ERR_INTERNAL, "no memory");
	int rc = read_lists(asked, kept, err);
	if (rc == 0)
		rc = read_ports(asked, kept, err);
	if (rc < 0 || !json_object_object_length(kept)) {
		json_object_put(kept);
		return rc;
	}
	*out = kept;
	return 0;
}

/* ---- asking ---- */

bool network_public(struct json_object *network)
{
	struct json_object *v;
	return !json_object_object_get_ex(network, "allowPublicTraffic", &v) ||
	       json_object_get_boolean(v);
}

const char *network_host(struct json_object *network)
{
	struct json_object *v;
	return json_object_object_get_ex(network, "maskRequestHost", &v) ? json_object_get_string(v)
									 : NULL;
}

static struct net_list list_of(struct json_object *network, const char *key,
			       struct net_range room[NETRULES_ENTRIES])
{
	struct json_object *list;
	struct net_list out = { room, 0 };
	if (!json_object_object_get_ex(network, key, &list))
		return out;
	for (size_t i = 0; i < json_object_array_length(list) && i < NETRULES_ENTRIES; i++)
		netrules_entry(json_object_get_string(json_object_array_get_idx(list, i)),
			       &room[out.n++]);
	return out;
}

int network_rules(struct json_object *network, bool internet, const struct net_host *host,
		  struct netrules *out, struct err *err)
{
	struct net_range closed[NETRULES_ENTRIES], deny[NETRULES_ENTRIES], allow[NETRULES_ENTRIES];
	if (!internet)
		return net_off(out, err);
	return netrules_make(out, (struct net_list){ closed, net_closed(host, closed) },
			     list_of(network, "denyOut", deny), list_of(network, "allowOut", allow),
			     err);
}

/* ---- changing ---- */

/* A change that is under way; the client may leave, the change goes on. */
struct putting {
	struct sandbox *s;
	struct req *req;
	struct json_object *network;
	bool internet, internet_asked;
};

static void free_putting(struct putting *p)
{
	json_object_put(p->network);
	free(p);
}

/* From now on the sandbox has what the routes say. */
static void adopt(struct putting *p)
{
	struct sandbox_config *c = &p->s->config;
	json_object_put(c->network);
	c->network = json_object_object_length(p->network) ? json_object_get(p->network) : NULL;
	c->internet = p->internet;
	c->internet_asked = p->internet_asked;
}

static void on_changed(void *ctx, enum netchange_end end)
{
	struct putting *p = ctx;
	if (end == NETCHANGE_DONE)
		adopt(p);
	if (p->req && end == NETCHANGE_GONE)
		answer_error(p->req, 404,
			     "Sandbox \"%s\" doesn't exist or you don't have access to it",
			     p->s->id);
	else if (p->req && end == NETCHANGE_FAILED)
		answer_error(p->req, 500, "Failed to update the network of the sandbox");
	else if (p->req)
		answer_empty(p->req, 204);
	free_putting(p);
}

/* What PUT leaves alone stays; what it does not say is cleared. */
static int read_put(struct putting *p, struct json_object *body, struct err *err)
{
	static const char *const stays[] = { "allowPublicTraffic", "maskRequestHost" };
	p->internet = true;
	p->network = json_object_new_object();
	int rc = field_bool(body, "allow_internet_access", &p->internet, err);
	if (rc < 0 || read_lists(body, p->network, err) < 0)
		return -1;
	p->internet_asked = rc > 0;
	for (size_t i = 0; i < sizeof stays / sizeof *stays; i++) {
		struct json_object *v;
		if (json_object_object_get_ex(p->s->config.network, stays[i], &v))
			json_object_object_add(p->network, stays[i], json_object_get(v));
	}
	return 0;
}

/* 0 when the change is under way, or made: then p is no longer the caller's. */
static int begin_change(struct putting *p, struct req *r, struct err *err)
{
	struct sandbox *s = p->s;
	struct netrules rules;
	if (!s->networked && p->internet && s->engine->internet)
		return err_set(err, ERR_UNAVAILABLE,
			       "internet access for a sandbox that was created without it");
	if (!s->networked) { /* it has no way out that rules could be about */
		adopt(p);
		answer_empty(r, 204);
		free_putting(p);
		return 0;
	}
	if (network_rules(p->network, p->internet, &s->engine->host, &rules, err) < 0)
		return -1;
	int rc = netchange_start(s, &rules, on_changed, p, err);
	netrules_free(&rules);
	if (rc == 0)
		req_hold(r, &p->req);
	return rc;
}

void network_put(struct sandbox *s, struct req *r, struct json_object *body)
{
	struct err err = { 0 };
	if (s->state != SANDBOX_RUNNING) {
		answer_error(r, 409, "Sandbox \"%s\" is paused", s->id);
		return;
	}
	if (s->netchange) {
		answer_error(r, 409, TRANSITION);
		return;
	}
	struct putting *p = calloc(1, sizeof *p);
	if (!p) {
		answer_error(r, 500, "no memory");
		return;
	}
	p->s = s;
	if (read_put(p, body, &err) == 0 && begin_change(p, r, &err) == 0)
		return;
	free_putting(p);
	if (err.code == ERR_UNAVAILABLE) {
		answer_error(r, 501, "%s is not offered by this engine", err.text);
	} else if (err.code == ERR_INVALID) {
		answer_error(r, 400, "Error when parsing request: %s", err.text);
	} else {
		log_line(LOG_ERROR, "op=network sandbox=%s error=\"%s\"", s->id, err.text);
		answer_error(r, 500, "Failed to update the network of the sandbox");
	}
}
