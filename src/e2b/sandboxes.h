/* The control plane: sandboxes made, found and ended. Whatever may be repeated without harm is, at
 * most twice, within the deadline, and never sooner than Retry-After says. */
#ifndef E2B_SANDBOXES_H
#define E2B_SANDBOXES_H

#include <stdbool.h>

#include "e2b/e2b.h"

struct json_object;

struct e2b_pair {
	const char *key, *value;
};

struct e2b_create {
	const char *template_id;
	int timeout_secs; /* until E2B ends it by itself */
	bool no_internet;
	const struct e2b_pair *metadata;
	size_t nmetadata;
	const struct e2b_pair *envs;
	size_t nenvs;
};

/* Repeated only where certainly nothing was made: 409, 503, 429 with Retry-After, no connection.
 * After ERR_UNKNOWN_OUTCOME (reply lost or senseless, 500, 502, 504), ERR_TIMEOUT and ERR_ABANDONED
 * there may be a sandbox: look for it by its metadata. */
int e2b_create(struct e2b *c, const struct e2b_create *what, struct e2b_sandbox *out,
	       const struct e2b_wait *wait, struct err *err);

/* Resume it if it is paused; its end moves to now + timeout_secs if that is later. *resumed (NULL
 * is fine) says which. */
int e2b_connect(struct e2b *c, const char *id, int timeout_secs, struct e2b_sandbox *out,
		bool *resumed, const struct e2b_wait *wait, struct err *err);

/* The end becomes now + secs, sooner or later than it was; E2B may grant less: e2b_get tells. */
int e2b_set_timeout(struct e2b *c, const char *id, int secs, const struct e2b_wait *wait,
		    struct err *err);

/* One that is already gone is success too; *was_there (NULL is fine) tells. */
int e2b_kill(struct e2b *c, const char *id, bool *was_there, const struct e2b_wait *wait,
	     struct err *err);

struct e2b_info {
	struct e2b_sandbox sandbox; /* tokens: only from e2b_get, and only envd's */
	char template_id[128];
	bool paused;
	int64_t started_us, end_us;   /* CLOCK_REALTIME; 0 when not told */
	struct json_object *metadata; /* NULL when it has none */
};

/* The value of a metadata key, NULL when it is not there; it lives as long as info does. */
const char *e2b_metadata(const struct e2b_info *info, const char *key);

int e2b_get(struct e2b *c, const char *id, struct e2b_info *out, const struct e2b_wait *wait,
	    struct err *err);              /* e2b_info_free(out) */
void e2b_info_free(struct e2b_info *info); /* drops the metadata; info itself is the caller's */

/* Called for each sandbox; info lives until it returns. -1 ends the list with ERR_ABANDONED. */
typedef int e2b_info_fn(void *ctx, const struct e2b_info *info);

struct e2b_filter {
	const struct e2b_pair *metadata; /* all of them must match */
	size_t nmetadata;
	const char *state; /* "running", "paused", or NULL for both */
};
int e2b_list(struct e2b *c, const struct e2b_filter *filter, e2b_info_fn *fn, void *ctx,
	     const struct e2b_wait *wait, struct err *err);

#endif
