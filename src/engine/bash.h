/* A piece of code as lines for the interactive bash of a kernel. */
#ifndef ENGINE_BASH_H
#define ENGINE_BASH_H

#include <json-c/json.h>
#include <stddef.h>

#include "base/buf.h"

/* Append the lines that run code with these variables (an object of strings, or NULL), put those
 * back as they were, and write the exit status to descriptor 3. They are whole lines: an interrupt
 * throws away the one that runs, never those behind it. */
void bash_put_command(struct buf *b, const char *code, size_t n, struct json_object *env);

#endif
