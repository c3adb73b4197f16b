#include "core/census.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CENSUS_MAX 100000
#define CENSUS_ADD 256 /* room is made for so many more */

struct counting {
	const struct settings *settings;
	struct census *census;
	struct err why; /* why it was given up */
};

/* A filter is only a wish, and killing somebody else's sandbox cannot be undone: look ourselves. */
static bool is_ours(const struct settings *s, const struct e2b_info *info)
{
	const char *instance = e2b_metadata(info, LABEL_INSTANCE),
		   *environment = e2b_metadata(info, LABEL_ENVIRONMENT);
	return instance && environment && !strcmp(instance, s->instance) &&
	       !strcmp(environment, s->environment ? s->environment : "");
}

static int grow(struct census *census, struct err *err)
{
	if (census->n % CENSUS_ADD)
		return 0;
	if (census->n >= CENSUS_MAX)
		return err_set(err, ERR_LIMIT, "the provider lists more than %d sandboxes of ours",
			       CENSUS_MAX);
	void *more = realloc(census->all, (census->n + CENSUS_ADD) * sizeof *census->all);
	if (!more)
		return err_set(err, ERR_INTERNAL, "no memory");
	census->all = more;
	return 0;
}

static int count_one(void *ctx, const struct e2b_info *info)
{
	struct counting *c = ctx;
	const char *nonce = e2b_metadata(info, LABEL_NONCE);
	if (!is_ours(c->settings, info))
		return 0;
	if (grow(c->census, &c->why) < 0)
		return -1;
	struct counted *one = &c->census->all[c->census->n++];
	snprintf(one->id, sizeof one->id, "%s", info->sandbox.id);
	/* One that is too long is none of ours. */
	bool fits = nonce && strlen(nonce) < sizeof one->nonce;
	snprintf(one->nonce, sizeof one->nonce, "%s", fits ? nonce : "");
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct counted *)a)->id, ((const struct counted *)b)->id);
}

int census_take(struct core *c, struct census *out, struct err *err)
{
	const struct settings *s = c->settings;
	const struct e2b_pair labels[] = {
		{ LABEL_INSTANCE, s->instance },
		{ LABEL_ENVIRONMENT, s->environment ? s->environment : "" },
	};
	const struct e2b_filter filter = { .metadata = labels, .nmetadata = 2 };
	const struct e2b_wait wait = core_patience(c);
	struct census census = { NULL, 0 };
	struct counting counting = { .settings = s, .census = &census };
	if (e2b_list(c->e2b, &filter, count_one, &counting, &wait, err) < 0) {
		if (err->code == ERR_ABANDONED)
			*err = counting.why;
		census_free(&census);
		return -1;
	}
	if (census.n)
		qsort(census.all, census.n, sizeof *census.all, by_id);
	*out = census;
	return 0;
}

void census_free(struct census *census)
{
	free(census->all);
	*census = (struct census){ NULL, 0 };
}

const struct counted *census_by_id(const struct census *census, const char *id)
{
	struct counted key;
	snprintf(key.id, sizeof key.id, "%s", id);
	return census->n ? bsearch(&key, census->all, census->n, sizeof key, by_id) : NULL;
}

const struct counted *census_by_nonce(const struct census *census, const char *nonce)
{
	for (size_t i = 0; i < census->n; i++)
		if (!strcmp(census->all[i].nonce, nonce))
			return &census->all[i];
	return NULL;
}
