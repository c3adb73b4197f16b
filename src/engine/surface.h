/* The three surfaces of E2B on one port, and how a request finds its own. */
#ifndef ENGINE_SURFACE_H
#define ENGINE_SURFACE_H

#include "engine/http.h"
#include "engine/sandbox.h"

#define ENVD_PORT        49983
#define INTERPRETER_PORT 49999
#define ENVD_VERSION     "0.6.13"
#define CLIENT_ID        "6532622b"

/* The edge: routes every request of the port (app is the struct engine). */
void edge_route(void *app, struct req *r);

/* The edge's own errors, which name the sandbox with a lower-case d, unlike the control plane. */
struct edge_error {
	int status;
	const char *id;
	long port;       /* 0: not said */
	int limit;       /* of connections; 0: not said */
	bool any_origin; /* nothing has allowed pages of other origins to read it yet */
	const char *text;
};
void edge_refuse(struct req *r, const struct edge_error *e);

/* Without routing headers or host: the control plane. */
void control_route(struct engine *e, struct req *r);

/* For a sandbox that runs. */
void envd_route(struct sandbox *s, struct req *r);
void interpreter_route(struct sandbox *s, struct req *r);

/* Any other port: a proxy to whatever listens there inside. */
void ports_route(struct sandbox *s, struct req *r, long port);

/* Parts of envd, called with the access token checked (but for files, which check by themselves).
 */
void files_route(struct sandbox *s, struct req *r);
void process_route(struct sandbox *s, struct req *r, const char *method);
void filesystem_route(struct sandbox *s, struct req *r, const char *method);

/* The sandbox whose token made the signature of a file URL that names none; NULL when there is
 * none. */
struct sandbox *files_find_signed(struct engine *e, struct req *r);

/* Gather the body of a request to s, at most max bytes, then call fn; the sandbox may end
 * meanwhile, and then the client is cut off instead. arg is handed through. */
typedef void surface_fn(struct sandbox *s, struct req *r, const struct buf *body,
			void (*arg)(void));
void surface_collect(struct sandbox *s, struct req *r, size_t max, surface_fn *fn,
		     void (*arg)(void));

/* Which user a name means: false when there is no such user in s. NULL and "" are the default user.
 */
bool surface_user(const struct sandbox *s, const char *name, bool *root);
const char *surface_home(bool root);

#endif
