/* Calls to the control plane: the key, the older routes, and repetition where it does no harm. Only
 * src/e2b includes this. */
#ifndef E2B_CONTROL_H
#define E2B_CONTROL_H

#include "e2b/client.h"
#include "e2b/sandboxes.h"

#define LIST_ANSWER_MAX (16u << 20)

/* One operation. fill makes the request of a call: its URL behind the base and its body; it is
 * called for each try. */
struct operation {
	const char *what;
	const char *method;
	enum route route; /* ROUTE_COUNT: it has one form only */
	bool once;        /* repeated only where certainly nothing happened */
	int (*fill)(struct call *call, bool v1, const void *request);
	const void *request;
	size_t answer_max;
};

/* Run it until it succeeds, fails for good, or the time is over. 0 with the answer in *call, or -1;
 * the caller frees the call in both cases. */
int control_run(struct e2b *c, const struct operation *op, struct call *call, int64_t deadline,
		const struct e2b_wait *wait, struct err *err);

/* A sandbox as get and list tell of it; its metadata belong to o. */
int info_read(struct json_object *o, struct e2b_info *out, struct err *err);

#endif
