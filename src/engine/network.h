/* The "network" of a create and of PUT /sandboxes/{id}/network: who may come in, and what may be
 * reached from inside. It is kept as the JSON object that get shows; everything else is worked out
 * from that. */
#ifndef ENGINE_NETWORK_H
#define ENGINE_NETWORK_H

#include <json-c/json.h>
#include <stdbool.h>

#include "base/err.h"
#include "engine/http.h"
#include "engine/net.h"
#include "engine/netrules.h"

struct sandbox;

/* Read the network object of a create, or NULL. *out is what to keep, NULL when nothing was asked
 * for; json_object_put it. ERR_UNAVAILABLE names what this engine cannot honour. */
int network_read(struct json_object *asked, struct json_object **out, struct err *err);

/* Questions to what network_read gave. */
bool network_public(struct json_object *network);      /* ports need no token */
const char *network_host(struct json_object *network); /* the Host to send inside, or NULL */

/* The prefixes that a sandbox with this network must not reach; all there are without internet.
 * netrules_free(out). */
int network_rules(struct json_object *network, bool internet, const struct net_host *host,
		  struct netrules *out, struct err *err);

/* PUT: other rules for a sandbox that runs, in place of those it has. Answers r, now or later. */
void network_put(struct sandbox *s, struct req *r, struct json_object *body);

#endif
