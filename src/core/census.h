/* What the provider has of ours: every sandbox that carries our instance's and environment's
 * labels. */
#ifndef CORE_CENSUS_H
#define CORE_CENSUS_H

#include "core/session.h"

struct counted {
	char id[STORE_ID_MAX + 1];
	char nonce[STORE_ID_MAX + 1]; /* "" when it has none */
};

struct census {
	struct counted *all; /* sorted by id */
	size_t n;
};

int census_take(struct core *c, struct census *out, struct err *err); /* census_free(out) */
void census_free(struct census *census);

/* NULL when there is none. */
const struct counted *census_by_id(const struct census *census, const char *id);
const struct counted *census_by_nonce(const struct census *census, const char *nonce);

#endif
