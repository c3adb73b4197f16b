/* The control plane's metrics: what sandboxes use, now and in the last minutes. */
#ifndef ENGINE_METRICS_H
#define ENGINE_METRICS_H

#include "engine/http.h"
#include "engine/sandbox.h"

/* The samples of one between the query's start and end, with a fresh one. */
void metrics_one(struct sandbox *s, struct req *r);

/* The newest sample of each that the query names. */
void metrics_many(struct engine *e, struct req *r);

#endif
