/* What sandbox.c and its parts share; nobody else includes this. */
#ifndef ENGINE_SANDBOX_PARTS_H
#define ENGINE_SANDBOX_PARTS_H

#include "base/log.h"
#include "engine/sandbox.h"

void sandbox_push(struct sandbox **list, struct sandbox *s);
void sandbox_take_out(struct sandbox **list, struct sandbox *s);

/* What is not worth a line to most. */
enum log_level sandbox_level(const struct sandbox *s);

/* Tell who asked for it, once: made is the sandbox, or NULL when it has come to nothing. */
void sandbox_tell(struct sandbox *s, struct sandbox *made);

/* Its time is up in so many seconds (sandbox_time.c). */
void sandbox_set_end(struct sandbox *s, int64_t secs);

/* ERR_LIMIT when as many run as may. */
int sandbox_check_room(struct engine *e, struct err *err);

#endif
