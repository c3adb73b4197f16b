#include "core/session.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "core/expiry.h"

#define GRACE_SECS   120 /* the provider's timeout outlasts the idle limit by this */
#define CLAIM_SECS   10  /* and a claim the provider's own time */
#define WAIT_MS      1000
#define SEARCH_TRIES 6 /* a sandbox whose reply was lost can be a moment late in the list */
#define SEARCH_MS    500
#define NONCE_LEN    24

bool session_id_valid(const char *id)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._~:-";
	size_t n = strnlen(id, STORE_NAME_MAX + 1);
	return n >= 1 && n <= STORE_NAME_MAX && strspn(id, allowed) == n && strcmp(id, ".") != 0 &&
	       strcmp(id, "..") != 0;
}

void session_key(char out[SESSION_KEY], const char *owner, const char *id)
{
	snprintf(out, SESSION_KEY, "%s/%s", owner, id);
}

/* Both ends have the same limits, but for the NUL. */
static void copy(char *to, size_t cap, const char *from)
{
	size_t n = strnlen(from, cap - 1);
	memcpy(to, from, n);
	to[n] = '\0';
}

void session_address(const struct sandbox_row *row, struct e2b_sandbox *out)
{
	copy(out->id, sizeof out->id, row->sandbox_id);
	copy(out->domain, sizeof out->domain, row->domain);
	copy(out->token, sizeof out->token, row->envd_token);
	copy(out->traffic_token, sizeof out->traffic_token, row->traffic_token);
}

static int64_t first_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Seconds for the provider's timeout, given what is left of the lifetime. */
static int switch_secs(const struct settings *s, int64_t left)
{
	int64_t secs = first_of(s->idle_timeout + GRACE_SECS, left);
	return secs < 1 ? 1 : secs > INT_MAX ? INT_MAX : (int)secs;
}

/* Whole seconds, and none too few: a sandbox that the provider ended a moment before our own limit
 * would look as if it had been lost. */
static int64_t lifetime_left(const struct sandbox_row *row, int64_t now)
{
	return (row->lifetime_at - now + SECOND_US - 1) / SECOND_US;
}

static struct e2b_wait within(int64_t deadline)
{
	return (struct e2b_wait){ .deadline_mono_us = deadline };
}

/* ---- making one ---- */

struct found {
	char id[64];
	bool any;
};

static int on_found(void *ctx, const struct e2b_info *info)
{
	struct found *f = ctx;
	copy(f->id, sizeof f->id, info->sandbox.id);
	f->any = true;
	return 0;
}

/* The sandbox of this nonce, if the provider has it. */
static int search(struct core *c, const char *nonce, struct found *out, int64_t deadline,
		  struct err *err)
{
	const struct e2b_pair label = { LABEL_NONCE, nonce };
	const struct e2b_filter filter = { .metadata = &label, .nmetadata = 1 };
	const struct e2b_wait wait = within(deadline);
	*out = (struct found){ .any = false };
	return e2b_list(c->e2b, &filter, on_found, out, &wait, err);
}

static int create(struct core *c, const struct session *want, const struct sandbox_row *row,
		  struct e2b_sandbox *out, int64_t deadline, struct err *err)
{
	const struct settings *s = c->settings;
	/* Ours come last: where a name is there twice, the later one counts. */
	struct e2b_pair labels[SESSION_METADATA_MAX + 3];
	size_t n = want->nmetadata < SESSION_METADATA_MAX ? want->nmetadata : SESSION_METADATA_MAX;
	for (size_t i = 0; i < n; i++)
		labels[i] = want->metadata[i];
	labels[n++] = (struct e2b_pair){ LABEL_NONCE, row->nonce };
	labels[n++] = (struct e2b_pair){ LABEL_INSTANCE, s->instance ? s->instance : "" };
	labels[n++] = (struct e2b_pair){ LABEL_ENVIRONMENT, s->environment ? s->environment : "" };
	const struct e2b_create what = {
		.template_id = row->template,
		.timeout_secs = switch_secs(s, s->max_lifetime),
		.metadata = labels,
		.nmetadata = n,
		.envs = want->envs,
		.nenvs = want->nenvs,
	};
	const struct e2b_wait wait = within(deadline);
	return e2b_create(c->e2b, &what, out, &wait, err);
}

static int adopt(struct core *c, const struct found *f, struct e2b_sandbox *out, int64_t deadline,
		 struct err *err)
{
	const struct e2b_wait wait = within(deadline);
	return e2b_connect(c->e2b, f->id, switch_secs(c->settings, c->settings->max_lifetime), out,
			   NULL, &wait, err);
}

/* It may have been made, and nobody told us its name: look for its nonce before giving up. */
static int rescue(struct core *c, const struct sandbox_row *row, struct e2b_sandbox *out,
		  struct err *err)
{
	char key[SESSION_KEY];
	int64_t deadline = clock_mono_us() + c->settings->provider_timeout * SECOND_US;
	session_key(key, row->owner, row->session_id);
	for (int i = 0; i < SEARCH_TRIES; i++) {
		struct found f;
		struct err ignored;
		if (search(c, row->nonce, &f, deadline, &ignored) == 0 && f.any)
			return adopt(c, &f, out, deadline, err);
		c->sleep(c->ctx, key, SEARCH_MS);
	}
	return -1; /* with the error that it began with */
}

static int obtain(struct core *c, const struct session *want, const struct sandbox_row *row,
		  bool look_first, struct e2b_sandbox *out, struct err *err)
{
	int64_t deadline = clock_mono_us() + c->settings->provider_timeout * SECOND_US;
	struct found f = { .any = false };
	if (look_first && search(c, row->nonce, &f, deadline, err) < 0)
		return -1;
	if (f.any)
		return adopt(c, &f, out, deadline, err);
	int rc = create(c, want, row, out, deadline, err);
	if (rc < 0 && (err->code == ERR_UNKNOWN_OUTCOME || err->code == ERR_ABANDONED))
		rc = rescue(c, row, out, err);
	return rc;
}

/* When the provider will end it by itself; what was asked for is only a wish. */
static int64_t granted_end(struct core *c, const char *id, int64_t otherwise)
{
	struct e2b_info info;
	struct err ignored;
	const struct e2b_wait wait =
		within(clock_mono_us() + c->settings->provider_timeout * SECOND_US);
	if (e2b_get(c->e2b, id, &info, &wait, &ignored) < 0)
		return otherwise;
	int64_t end = info.end_us ? info.end_us : otherwise;
	e2b_info_free(&info);
	return end;
}

static int record(struct core *c, const struct sandbox_row *row, const struct e2b_sandbox *sb,
		  struct err *err)
{
	const struct settings *s = c->settings;
	int64_t now = clock_real_us(), asked = switch_secs(s, s->max_lifetime);
	int64_t end = granted_end(c, sb->id, now + asked * SECOND_US),
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
	const struct e2b_wait wait = within(clock_mono_us() + s->provider_timeout * SECOND_US);
	if (sandbox_get(c->store, row->id, &now_row, &ignored) < 0 ||
	    strcmp(now_row.sandbox_id, sb->id) != 0)
		e2b_kill(c->e2b, sb->id, NULL, &wait, &ignored);
	return -1;
}

static int make(struct core *c, const struct session *want, const struct sandbox_row *row,
		bool look_first, struct err *err)
{
	struct e2b_sandbox sb;
	struct err ignored;
	char key[SESSION_KEY];
	int rc = obtain(c, want, row, look_first, &sb, err);
	if (rc < 0)
		sandbox_failed(c->store, row->id, row->nonce, &ignored);
	else
		rc = record(c, row, &sb, err);
	session_key(key, row->owner, row->session_id);
	c->wake(c->ctx, key);
	return rc;
}

static const char *template_of(const struct core *c, enum sandbox_type type)
{
	return type == SANDBOX_CUSTOM ? c->settings->custom_template : c->settings->code_template;
}

static int claim(struct core *c, const struct session *want, const char *nonce,
		 struct sandbox_row *row, enum claim_result *how, struct err *err)
{
	const struct settings *s = c->settings;
	const char *template = template_of(c, want->type);
	if (!template)
		return err_set(err, ERR_INVALID, "SANDGATE_CUSTOM_TEMPLATE_ID is not configured");
	const struct claim wish = {
		.owner = want->owner,
		.session_id = want->id,
		.type = want->type,
		.template = template,
		.nonce = nonce,
		.deadline = clock_real_us() + (s->provider_timeout + CLAIM_SECS) * SECOND_US,
		.max_total = (int)s->max_sandboxes,
		.max_per_owner = (int)s->max_per_user,
	};
	return sandbox_claim(c->store, &wish, row, how, err);
}

int session_kill(struct core *c, const struct sandbox_row *row, struct err *err)
{
	const struct e2b_wait wait =
		within(clock_mono_us() + c->settings->provider_timeout * SECOND_US);
	if (e2b_kill(c->e2b, row->sandbox_id, NULL, &wait, err) < 0)
		return -1;
	return sandbox_killed(c->store, row->id, err);
}

int session_ensure(struct core *c, const struct session *want, struct sandbox_row *row,
		   bool *created, struct err *err)
{
	char nonce[NONCE_LEN + 1], key[SESSION_KEY];
	int64_t deadline =
		clock_mono_us() + (c->settings->provider_timeout + CLAIM_SECS) * SECOND_US;
	bool made = false;
	id_alnum(nonce, NONCE_LEN);
	session_key(key, want->owner, want->id);
	for (;;) {
		enum claim_result how;
		bool gone = false;
		if (claim(c, want, nonce, row, &how, err) < 0) {
			/* What only waits to be cleaned up takes nobody's place. */
			if (err->code == ERR_LIMIT && expiry_make_room(c, want->owner))
				continue;
			return -1;
		}
		if (how == CLAIM_HAVE && expiry_is_over(c, row) &&
		    expiry_end(c, row, &gone, err) < 0)
			return -1;
		if (gone)
			continue;
		if (how == CLAIM_HAVE) {
			if (created)
				*created = made;
			return 0;
		}
		if (how == CLAIM_WAIT) {
			if (clock_mono_us() >= deadline)
				return err_set(err, ERR_TIMEOUT,
					       "the sandbox was not ready in time");
			if (c->sleep(c->ctx, key, WAIT_MS) < 0)
				return err_set(err, ERR_ABANDONED, "the caller is gone");
			continue;
		}
		if (make(c, want, row, how == CLAIM_ADOPT, err) < 0 && err->code != ERR_CONFLICT)
			return -1;
		made = true;
		id_alnum(nonce, NONCE_LEN); /* a nonce is used once, whatever came of it */
	}
}

/* ---- ending, losing, keeping ---- */

int session_end(struct core *c, struct sandbox_row *row, enum end_reason reason, bool *killed,
		struct err *err)
{
	char key[SESSION_KEY];
	if (row->status != SANDBOX_STOPPING) {
		if (sandbox_stop(c->store, row->id, reason, row, err) < 0)
			return -1;
		session_key(key, row->owner, row->session_id);
		c->wake(c->ctx, key);
	}
	*killed = row->sandbox_id[0] && session_kill(c, row, err) == 0;
	if (!row->sandbox_id[0])
		err_set(err, ERR_UNKNOWN_OUTCOME, "who was making it is gone without naming it");
	return 0;
}

int session_stop(struct core *c, const char *owner, const char *id, struct err *err)
{
	struct sandbox_row row;
	struct err later; /* the kill is retried by cleanup: stopped is stopped */
	bool killed;
	char key[SESSION_KEY];
	int64_t deadline =
		clock_mono_us() + (c->settings->provider_timeout + CLAIM_SECS) * SECOND_US;
	session_key(key, owner, id);
	for (;;) {
		if (sandbox_find(c->store, owner, id, &row, err) < 0)
			return err->code == ERR_NOT_FOUND ? 0 : -1;
		if (session_end(c, &row, END_STOPPED, &killed, &later) == 0)
			return 0;
		/* It is just being made, or somebody else was quicker: look again. */
		if (later.code != ERR_CONFLICT || clock_mono_us() >= deadline) {
			*err = later;
			return -1;
		}
		c->sleep(c->ctx, key, WAIT_MS);
	}
}

/* Why it may be gone: its limits passed, or it was not us. */
static enum end_reason likely_reason(const struct sandbox_row *row)
{
	int64_t now = clock_real_us();
	if (now >= row->lifetime_at)
		return END_EXPIRED_LIFETIME;
	return now >= row->expires_at ? END_EXPIRED_IDLE : END_KILLED_BY_PROVIDER;
}

int session_check(struct core *c, struct sandbox_row *row, bool *lost, struct err *err)
{
	const struct e2b_wait wait =
		within(clock_mono_us() + c->settings->provider_timeout * SECOND_US);
	struct e2b_info info;
	struct e2b_sandbox again;
	if (e2b_get(c->e2b, row->sandbox_id, &info, &wait, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		int rc = sandbox_lost(c->store, row->id, likely_reason(row), err);
		if (rc < 0 && err->code != ERR_CONFLICT)
			return -1;
		*lost = true;
		return 0;
	}
	bool paused = info.paused;
	e2b_info_free(&info);
	int64_t left = lifetime_left(row, clock_real_us());
	if (paused && e2b_connect(c->e2b, row->sandbox_id, switch_secs(c->settings, left), &again,
				  NULL, &wait, err) < 0)
		return -1;
	*lost = false;
	return sandbox_get(c->store, row->id, row, err);
}

int session_renew(struct core *c, struct sandbox_row *row, int needed, struct err *err)
{
	const struct e2b_wait wait =
		within(clock_mono_us() + c->settings->provider_timeout * SECOND_US);
	int64_t now = clock_real_us(), left = lifetime_left(row, now);
	int secs = switch_secs(c->settings, left);
	if (secs < needed)
		secs = (int)first_of(needed, left < 1 ? 1 : left);
	/* Most calls find it far enough away: a minute more or less is not worth a call. */
	if (row->provider_end_at - now >= (secs - 60) * SECOND_US)
		return 0;
	if (e2b_set_timeout(c->e2b, row->sandbox_id, secs, &wait, err) < 0)
		return -1;
	row->provider_end_at = granted_end(c, row->sandbox_id, now + secs * SECOND_US);
	return sandbox_extend(c->store, row->id, row->provider_end_at, 0, err);
}
