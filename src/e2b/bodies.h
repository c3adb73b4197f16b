/* What requests say: JSON bodies and the metadata query. Pure functions; each returns 0, or -1 when
 * out is full. */
#ifndef E2B_BODIES_H
#define E2B_BODIES_H

#include "base/buf.h"
#include "e2b/run.h"

int body_create(struct buf *out, const struct e2b_create *what, bool v1);
int body_timeout(struct buf *out, int secs);
int body_code(struct buf *out, const struct e2b_code *code);
int body_context(struct buf *out, const char *language, const char *cwd);
int body_command(struct buf *out, const struct e2b_command *command);
int body_signal(struct buf *out, int pid, const char *signal);

/* One or two members with texts: {"path":"x"}, {"source":"a","destination":"b"}. */
int body_texts(struct buf *out, const char *key, const char *value, const char *key2,
	       const char *value2);
int body_list(struct buf *out, const char *path, int depth);
int body_watch(struct buf *out, const char *path, bool recursive);

/* "a%252520b%3Dc...": pairs escaped three times, which is what E2B's servers undo. */
int query_metadata(struct buf *out, const struct e2b_pair *pairs, size_t n);

#endif
