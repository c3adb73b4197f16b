/* What one pass of the cleanup leaves for the next: what the clocks said, and which sandboxes it
 * saw that nobody knows. */
#ifndef STORE_PASSES_H
#define STORE_PASSES_H

#include "store/store.h"

/* What three clocks said at one moment. */
struct clock_mark {
	char boot_id[64]; /* a new one at each start of the machine; "" where it is not told */
	int64_t boot;     /* CLOCK_BOOTTIME: nobody can set it */
	int64_t real;     /* CLOCK_REALTIME */
};

int clock_mark_read(struct store *s, struct clock_mark *out, bool *there, struct err *err);
int clock_mark_write(struct store *s, const struct clock_mark *mark, struct err *err);

/* A sandbox that nobody knows was seen by the pass that began then. */
int orphan_seen(struct store *s, const char *sandbox_id, int64_t pass, struct err *err);

/* When it was first seen; *known is false when it never was. */
int orphan_find(struct store *s, const char *sandbox_id, int64_t *first_seen, bool *known,
		struct err *err);

/* Forget all that this pass has not seen. 0 is no pass: forget all. */
int orphan_forget_others(struct store *s, int64_t pass, struct err *err);

#endif
