/* The control plane's view of the sandboxes' logs, also of those that ended. */
#ifndef ENGINE_LOGVIEW_H
#define ENGINE_LOGVIEW_H

#include "engine/http.h"
#include "engine/sandbox.h"

/* GET /sandboxes/{id}/logs: from start on, the oldest first. */
void logview_v1(struct engine *e, struct req *r, const char *id);

/* GET /v2/sandboxes/{id}/logs: from the cursor to either side, filtered. */
void logview_v2(struct engine *e, struct req *r, const char *id);

#endif
