/* Ports inside: a request to any port but the engine's own is passed on to whatever listens there,
 * over a connection of its own that the agent makes, and the answer comes back. Nothing is held but
 * what is on its way: whoever does not read makes the other side wait. A client that leaves closes
 * the connection inside, and a connection that breaks inside breaks the answer. */
#ifndef ENGINE_PORTS_H
#define ENGINE_PORTS_H

#include "engine/sandbox.h"

#define PORTS_MAX 256 /* connections to one sandbox at a time; the next is 429 */

/* Break off every connection to s: it stands still, or it ends. ports_route is in surface.h. */
void ports_cut(struct sandbox *s);

#endif
