/* Watches of directories for the engine: what inotify says about them, in names below them, kept
 * until it is asked for.
 *
 * A recursive watch follows directories that appear below it, and says everything that is in them
 * by then (a file that has content: created and written): nothing is missed that was made before
 * they were watched, but a file made at that very moment may be said twice. Links are not followed,
 * nor is what lies on /proc or a read-only mount. A directory that is moved within the watch is
 * said with all its contents, as one that came from elsewhere is.
 *
 * What does not fit into the queue of the kernel (of all watches) or of a watch, and a directory
 * past the limits, lose the watch: it forgets everything and says so once when it is asked; by then
 * it has begun anew. */
#ifndef AGENT_WATCH_H
#define AGENT_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An answer to the engine, as AGENT_CHANGES describes it. */
typedef void watch_reply(uint32_t id, int value, const void *payload, size_t n);

int watch_begin(uint32_t id, const char *path, unsigned flags); /* 0 or a negative errno */
void watch_end(uint32_t id, watch_reply *reply);

/* Answer the call with what happened since the last time; if wait, not before something did. -ESRCH
 * when there is no such watch, -EBUSY when a call waits already. */
void watch_changes(uint32_t id, uint32_t call, bool wait, watch_reply *reply);

int watch_fd(void);                  /* to poll; -1 while there is none */
void watch_pump(watch_reply *reply); /* it is readable: take some, answer calls that wait */

#endif
