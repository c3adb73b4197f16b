#include "core/session.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "core/deadman.h"
#include "core/expiry.h"
#include "core/ledger.h"

#define CLAIM_SECS 10 /* a claim outlasts the provider's time by this */
#define WAIT_MS    1000
#define NONCE_LEN  24

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

struct e2b_wait core_patience(const struct core *c)
{
	return (struct e2b_wait){ .deadline_mono_us = clock_mono_us() +
						      c->settings->provider_timeout * SECOND_US };
}

struct e2b_config core_provider(const struct settings *s)
{
	return (struct e2b_config){ .api_key = s->api_key,
				    .domain = s->domain,
				    .api_url = s->api_url,
				    .sandbox_url = s->sandbox_url,
				    .ca_file = s->ca_file,
				    .timeout_secs = (int)s->provider_timeout };
}

/* Who waits in another process looks again by itself within a second. */
static void wake_nobody(void *ctx, const char *key)
{
	(void)ctx;
	(void)key;
}

static int sleep_never(void *ctx, const char *key, int ms)
{
	(void)ctx;
	(void)key;
	(void)ms;
	return -1;
}

struct core core_of_tool(const struct settings *s, struct store *store, struct e2b *e2b)
{
	return (struct core){
		.settings = s, .store = store, .e2b = e2b, .sleep = sleep_never, .wake = wake_nobody
	};
}

/* ---- making one ---- */

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
	const struct e2b_wait wait = core_patience(c);
	if (e2b_kill(c->e2b, row->sandbox_id, NULL, &wait, err) < 0)
		return -1;
	return sandbox_killed(c->store, row->id, err);
}

static int64_t last_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Whether the user stopped the one that this call has waited for or made. */
static bool was_stopped(struct core *c, int64_t id)
{
	struct sandbox_row row;
	struct err ignored;
	return id && sandbox_get(c->store, id, &row, &ignored) == 0 &&
	       row.end_reason == END_STOPPED;
}

/* Another's claim, or one that is over: 1 to look again, 0 when it can be used. */
static int settle(struct core *c, struct sandbox_row *row, enum claim_result how, struct err *err)
{
	char key[SESSION_KEY];
	bool gone = false;
	if (how == CLAIM_HAVE) {
		if (expiry_is_over(c, row) && expiry_end(c, row, &gone, err) < 0)
			return -1;
		return gone;
	}
	session_key(key, row->owner, row->session_id);
	return c->sleep(c->ctx, key, WAIT_MS) < 0
		       ? err_set(err, ERR_ABANDONED, "the caller is gone")
		       : 1;
}

int session_ensure(struct core *c, const struct session *want, struct sandbox_row *row,
		   bool *created, struct err *err)
{
	char nonce[NONCE_LEN + 1];
	int64_t seen = 0, deadline = clock_mono_us() +
				     (c->settings->provider_timeout + CLAIM_SECS) * SECOND_US;
	bool made = false;
	for (; clock_mono_us() < deadline; seen = row->id) {
		enum claim_result how;
		/* A stop that came after this call ends it, too. */
		if (was_stopped(c, seen))
			return err_set(err, ERR_STOPPED, "it was stopped meanwhile");
		id_alnum(nonce, NONCE_LEN); /* a nonce is used once, whatever came of it */
		if (claim(c, want, nonce, row, &how, err) < 0) {
			/* What only waits to be cleaned up takes nobody's place. */
			if (err->code == ERR_LIMIT && expiry_make_room(c, want->owner)) {
				row->id = seen;
				continue;
			}
			return -1;
		}
		if (how == CLAIM_HAVE || how == CLAIM_WAIT) {
			int rc = settle(c, row, how, err);
			if (rc == 0 && created)
				*created = made;
			if (rc <= 0)
				return rc;
		} else {
			made = true;
			if (ledger_make(c, want, row, how == CLAIM_ADOPT, err) == 0)
				deadline = last_of(deadline, clock_mono_us() + SECOND_US);
			else if (err->code != ERR_CONFLICT || err->remote)
				return -1;
		}
	}
	return err_set(err, ERR_TIMEOUT, "the sandbox was not ready in time");
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
	*killed = false;
	/* Its maker is gone without naming it. */
	if (!row->sandbox_id[0] && ledger_find(c, row->nonce, row->sandbox_id, err) < 0)
		return 0;
	if (row->sandbox_id[0])
		*killed = session_kill(c, row, err) == 0;
	else
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

int session_exists(struct core *c, const struct sandbox_row *row, bool *there, bool *paused,
		   struct err *err)
{
	const struct e2b_wait wait = core_patience(c);
	struct e2b_info info;
	if (e2b_get(c->e2b, row->sandbox_id, &info, &wait, err) < 0) {
		*there = false;
		return err->code == ERR_NOT_FOUND ? 0 : -1;
	}
	*there = true;
	if (paused)
		*paused = info.paused;
	e2b_info_free(&info);
	return 0;
}

int session_check(struct core *c, struct sandbox_row *row, bool *lost, struct err *err)
{
	const struct e2b_wait wait = core_patience(c);
	struct e2b_sandbox again;
	bool there, paused = false;
	if (session_exists(c, row, &there, &paused, err) < 0)
		return -1;
	if (!there) {
		*lost = true;
		return sandbox_lost(c->store, row->id, expiry_reason(row), err);
	}
	int64_t left = deadman_lifetime_left(row, clock_real_us());
	if (sandbox_get(c->store, row->id, row, err) < 0)
		return -1;
	/* Somebody is about to kill it: the provider is only the last to know. */
	*lost = row->status != SANDBOX_RUNNING && row->status != SANDBOX_PAUSED;
	if (*lost || !paused)
		return 0;
	return e2b_connect(c->e2b, row->sandbox_id, deadman_secs(c->settings, left), &again, NULL,
			   &wait, err);
}
