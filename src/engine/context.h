/* Contexts of the code interpreter: an interpreter process each, replaced when it dies, and the
 * runs that wait for it. One run at a time in a context; contexts run side by side. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/http.h"
#include "engine/kernel.h"
#include "engine/sandbox.h"

struct context;

/* By name, lower-cased and trimmed ("" is python). ERR_UNAVAILABLE: E2B has it, this engine or this
 * machine does not; ERR_NOT_FOUND: there is no such language. */
int context_language(const struct engine *e, const char *name, enum kernel_language *out,
		     struct err *err);

/* The interpreter that a sandbox has from its start on. */
void context_start_default(struct sandbox *s);

/* Make one; created() is called once with it, or with NULL and why. -1 when it was refused at once.
 */
int context_create(struct sandbox *s, enum kernel_language language, const char *cwd,
		   void (*created)(void *ctx, struct context *c, const char *why), void *ctx,
		   struct err *err);

struct context *context_find(struct sandbox *s, const char *id);
/* The default context of a language, made when there is none yet; NULL when that is not possible.
 */
struct context *context_default(struct sandbox *s, enum kernel_language language);

/* {"id","language","cwd"}; the list is in order of creation. New references. */
struct json_object *context_json(const struct context *c);
struct json_object *contexts_json(const struct sandbox *s);

/* Run code for r, which gets the stream and then belongs to the run. env: object of strings or
 * NULL. The client's departure interrupts it. */
void context_run(struct context *c, struct req *r, const char *code, size_t n,
		 struct json_object *env);

void context_restart(struct context *c);
void context_delete(struct context *c);

/* For the sandbox. */
void contexts_set_env(struct sandbox *s, struct json_object *env); /* from now on; NULL is fine */
void contexts_exited(struct sandbox *s, uint32_t id);
void contexts_cut(struct sandbox *s);
void contexts_resumed(struct sandbox *s);
void contexts_end(struct sandbox *s);

#endif
