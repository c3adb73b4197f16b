/* What a sandbox may not reach, as a set of IPv4 prefixes. Pure functions, no I/O.
 *
 * An address can be reached when it is in the allowed ranges or not in the denied ones; what is
 * closed to all sandboxes stays closed whatever is allowed. */
#ifndef ENGINE_NETRULES_H
#define ENGINE_NETRULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NETRULES_ENTRIES                                                                           \
	256               /* in one list of a client's rules, and among what is always closed      \
			   */
#define NETRULES_MAX 8192 /* prefixes: more than any three such lists can make */

/* ip in the machine's own byte order, with no bit set behind the first bits of it. */
struct net_range {
	uint32_t ip;
	unsigned char bits; /* 0 to 32 */
};

struct netrules {
	struct net_range *range; /* by address */
	size_t n;
};

enum net_entry {
	NET_ENTRY_RANGE,   /* an address or a prefix: *out is set */
	NET_ENTRY_FOREIGN, /* a host name, a wildcard, or an address of another kind */
	NET_ENTRY_BAD,
};

/* What one line of a client's rules is. "1.2.3.4/8" is taken as 1.0.0.0/8. */
enum net_entry netrules_entry(const char *text, struct net_range *out);

struct net_list {
	const struct net_range *range;
	size_t n; /* at most NETRULES_ENTRIES */
};

/* The fewest prefixes, none within another and none of them 0.0.0.0/0 (the default route's), that
 * cover exactly closed and (deny without allow).
 * netrules_free(out). */
int netrules_make(struct netrules *out, struct net_list closed, struct net_list deny,
		  struct net_list allow, struct err *err);
void netrules_free(struct netrules *r); /* r is empty afterwards */

/* Whether this very prefix is one of them. */
bool netrules_has(const struct netrules *r, struct net_range prefix);

#endif
