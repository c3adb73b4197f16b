#include "core/ledger.h"

#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "core/deadman.h"

#define SEARCH_TRIES 6
#define SEARCH_MS    500

static int64_t first_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- finding ---- */

static int on_found(void *ctx, const struct e2b_info *info)
{
	size_t n = strnlen(info->sandbox.id, STORE_ID_MAX);
	memcpy(ctx, info->sandbox.id, n);
	((char *)ctx)[n] = '\0';
	return 0;
}

/* It does not end early when the client leaves: lost replies and impatient clients come together.
 */
int ledger_find(struct core *c, const char *nonce, char id[STORE_ID_MAX + 1], struct err *err)
{
	const struct e2b_pair label = { LABEL_NONCE, nonce };
	const struct e2b_filter filter = { .metadata = &label, .nmetadata = 1 };
	const struct e2b_wait wait = core_patience(c);
	int rc = -1;
	id[0] = '\0';
	for (int i = 0; i < SEARCH_TRIES && !id[0]; i++) {
		if (i)
			poll(NULL, 0, SEARCH_MS);
		rc = e2b_list(c->e2b, &filter, on_found, id, &wait, err);
	}
	return rc;
}

/* ---- making ---- */

static int create(struct core *c, const struct session *want, const struct sandbox_row *row,
		  struct e2b_sandbox *out, struct err *err)
{
	const struct settings *s = c->settings;
	/* Ours come last: where a name is there twice, the later one counts. */
	struct e2b_pair labels[SESSION_METADATA_MAX + 3];
	size_t n = want->nmetadata < SESSION_METADATA_MAX ? want->nmetadata : SESSION_METADATA_MAX;
	for (size_t i = 0; i < n; i++)
		labels[i] = want->metadata[i];
	labels[n++] = (struct e2b_pair){ LABEL_NONCE, row->nonce };
	labels[n++] = (struct e2b_pair){ LABEL_INSTANCE, s->instance };
	labels[n++] = (struct e2b_pair){ LABEL_ENVIRONMENT, s->environment ? s->environment : "" };
	const struct e2b_create what = {
		.template_id = row->template,
		.timeout_secs = deadman_secs(s, s->max_lifetime),
		.metadata = labels,
		.nmetadata = n,
		.envs = want->envs,
		.nenvs = want->nenvs,
	};
	const struct e2b_wait wait = core_patience(c);
	return e2b_create(c->e2b, &what, out, &wait, err);
}

/* What became of a try. */
enum outcome {
	OBTAINED,
	NOTHING, /* there certainly is none */
	UNKNOWN, /* there may be one, and we do not hold it */
};

/* One that we cannot use must not be left to burn. */
static enum outcome adopt(struct core *c, const char *id, struct e2b_sandbox *out, struct err *err)
{
	const struct e2b_wait wait = core_patience(c);
	struct err ignored;
	if (e2b_connect(c->e2b, id, deadman_secs(c->settings, c->settings->max_lifetime), out, NULL,
			&wait, err) == 0)
		return OBTAINED;
	if (err->code == ERR_NOT_FOUND)
		return NOTHING;
	return e2b_kill(c->e2b, id, NULL, &wait, &ignored) == 0 ? NOTHING : UNKNOWN;
}

/* It may have been made, and nobody told us its name. err says what went wrong before. */
static enum outcome rescue(struct core *c, const struct sandbox_row *row, struct e2b_sandbox *out,
			   struct err *err)
{
	char id[STORE_ID_MAX + 1];
	struct err ignored;
	if (ledger_find(c, row->nonce, id, &ignored) < 0 || !id[0])
		return UNKNOWN;
	return adopt(c, id, out, err);
}

static enum outcome obtain(struct core *c, const struct session *want,
			   const struct sandbox_row *row, struct e2b_sandbox *out, struct err *err)
{
	if (create(c, want, row, out, err) == 0)
		return OBTAINED;
	if (e2b_last(c->e2b)->why != E2B_WHY_NOT_SENT &&
	    (err->code == ERR_UNKNOWN_OUTCOME || err->code == ERR_TIMEOUT ||
	     err->code == ERR_ABANDONED))
		return rescue(c, row, out, err);
	return NOTHING;
}

static int record(struct core *c, const struct sandbox_row *row, const struct e2b_sandbox *sb,
		  struct err *err)
{
	const struct settings *s = c->settings;
	int64_t now = clock_real_us(), asked = deadman_secs(s, s->max_lifetime);
	int64_t end = deadman_granted(c, sb->id, now + asked * SECOND_US),
		lifetime = now + s->max_lifetime * SECOND_US;
	const struct sandbox_facts facts = {
		.sandbox_id = sb->id,
		.envd_token = sb->token,
		.traffic_token = sb->traffic_token,
		.domain = sb->domain,
		.provider_end_at = end,
		/* Where the provider ends it at the lifetime, it began to count before us. */
		.lifetime_at = asked == s->max_lifetime ? first_of(lifetime, end) : lifetime,
		.idle_us = s->idle_timeout * SECOND_US,
	};
	if (sandbox_started(c->store, row->id, row->nonce, &facts, err) == 0)
		return 0;
	/* Overtaken: what we hold is nobody's, unless the other found the very same. */
	struct sandbox_row now_row;
	struct err ignored;
	const struct e2b_wait wait = core_patience(c);
	if (sandbox_get(c->store, row->id, &now_row, &ignored) < 0 ||
	    strcmp(now_row.sandbox_id, sb->id) != 0)
		e2b_kill(c->e2b, sb->id, NULL, &wait, &ignored);
	return -1;
}

/* The maker is gone. If what it asked for is not there, its request may still be on its way: that
 * row is given up, and the next one has a nonce of its own. */
static enum outcome take_over(struct core *c, const struct sandbox_row *row,
			      struct e2b_sandbox *out, struct err *err)
{
	err_set(err, ERR_CONFLICT, "its maker is gone");
	return rescue(c, row, out, err);
}

int ledger_make(struct core *c, const struct session *want, const struct sandbox_row *row,
		bool adopting, struct err *err)
{
	struct e2b_sandbox sb;
	struct err ignored;
	char key[SESSION_KEY];
	enum outcome outcome =
		adopting ? take_over(c, row, &sb, err) : obtain(c, want, row, &sb, err);
	int rc = -1;
	if (outcome == OBTAINED)
		rc = record(c, row, &sb, err);
	else if (outcome == NOTHING)
		sandbox_failed(c->store, row->id, row->nonce, &ignored);
	else
		sandbox_given_up(c->store, row->id, row->nonce, &ignored);
	session_key(key, row->owner, row->session_id);
	c->wake(c->ctx, key);
	return rc;
}
