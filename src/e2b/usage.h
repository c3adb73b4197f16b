/* What a sandbox uses of its machine, as its envd says right now. */
#ifndef E2B_USAGE_H
#define E2B_USAGE_H

#include "e2b/e2b.h"

struct e2b_usage {
	int64_t cpus;
	double cpu_percent;                                       /* of all of them together */
	int64_t memory_used, memory_total, disk_used, disk_total; /* bytes */
};

int e2b_usage(struct e2b *c, const struct e2b_sandbox *sb, struct e2b_usage *out,
	      const struct e2b_wait *wait, struct err *err);

#endif
