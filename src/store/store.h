/* The database: one SQLite file in WAL mode that all processes of a gateway share.
 *
 * One handle per process. Open it after fork(): no process may hold an open handle while it forks,
 * because SQLite's locks belong to a process and a child would believe that it has its parent's. A
 * parent that needs the store between two forks opens it, does its work and frees it; store_open
 * refuses to work in a child of a holder, and every call refuses a handle of another process.
 *
 * Every int function of this folder returns 0, or -1 with *err set. Outputs are written only on 0.
 * ERR_UNAVAILABLE: the database stayed locked until the deadline; trying again later is right.
 * ERR_CONFLICT: the row is not (any more) in the state that the change expects. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct store;

struct store_config {
	const char *path; /* the file; made with mode 0600, its folder with 0700 when missing */
	int slot;         /* the scoreboard slot that claims and leases carry; -1 for tools */
	int busy_ms;      /* how long a call may wait for locks, all in all; 0 is 5000 */
};

/* Opens the file and brings it to this program's version. */
int store_open(struct store **out, const struct store_config *config, struct err *err);
void store_free(struct store *s); /* NULL is fine */

/* Looks at every page of the file, half a second for 200,000 executions: for the start of a
 * service. A damage that is found later may have grown until then. */
int store_verify(struct store *s, struct err *err);

/* Gives memory back, where a process is about to wait for long and there are hundreds of them. What
 * is asked next takes a moment longer. */
void store_rest(struct store *s);

/* Several calls as one change: store_begin takes the write lock, store_end gives it back and keeps
 * everything (result 0) or undoes everything (result -1). It returns -1 when result is -1 or when
 * keeping failed. They nest; a failure inside undoes the whole. Do no slow work in between. */
int store_begin(struct store *s, struct err *err);
int store_end(struct store *s, int result, struct err *err);

/* Moves what is in the WAL into the database and shortens the WAL. Handles never do so on their
 * own; one process calls this regularly. *whole is false when readers or writers were in the way
 * and something is left for the next time, which is no error. */
int store_checkpoint(struct store *s, bool *whole, struct err *err);

/* The same between these times, when the last change of this handle has found the WAL long: every
 * page is looked for in all of it. Waits for nobody, but takes a while: call it when nobody waits
 * for the caller either. */
void store_tidy(struct store *s);

#endif
