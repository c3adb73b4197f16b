/* The control plane's lists: sandboxes with their filters and pages, and templates. */
#ifndef ENGINE_LISTING_H
#define ENGINE_LISTING_H

#include "engine/http.h"
#include "engine/sandbox.h"

struct json_object *listing_entry(const struct sandbox *s); /* a new reference */
void listing_v1(struct engine *e, struct req *r);
void listing_v2(struct engine *e, struct req *r);
void listing_templates(struct engine *e, struct req *r);

#endif
