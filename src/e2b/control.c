#include "e2b/control.h"

#include <string.h>

#include "base/clock.h"
#include "base/ids.h"

#define TRIES   3
#define WAIT_US (200 * 1000LL) /* before the second try; four times that before the third */

/* Half to all of the exponential wait, so that workers that failed together do not return together.
 */
static int64_t backoff_us(int tries, long retry_after)
{
	char random[3];
	int64_t us = WAIT_US;
	for (int i = 1; i < tries; i++)
		us *= 4;
	id_alnum(random, 2);
	us = us / 2 + us / 2 * ((random[0] * 7 + random[1]) % 64) / 64;
	return retry_after * SECOND_US > us ? retry_after * SECOND_US : us;
}

static int try_once(struct e2b *c, const struct operation *op, struct call *call, bool v1,
		    int64_t deadline, const struct e2b_wait *wait, struct err *err)
{
	call_init(call, op->what, op->method, op->answer_max);
	call->deadline_mono_us = deadline;
	call->repeatable = !op->once;
	call_header(call, "X-API-Key", c->api_key);
	call_header(call, "Accept", "application/json");
	if (!strcmp(op->method, "POST"))
		call_header(call, "Content-Type", "application/json");
	if (buf_adds(&call->url, c->address.api) || op->fill(call, v1, op->request))
		return err_set(err, ERR_INVALID, "%s: the request is too large", op->what);
	if (call_run(c, call, wait, err) < 0)
		return -1;
	if (call->status >= 200 && call->status < 300)
		return 0;
	return answer_fail(PLANE_CONTROL, op->what, call->status, call->answer.p, call->answer.len,
			   &c->last.why, err);
}

/* The newer form first. A 404 can also be about a template or a sandbox, so the older form is
 * believed only when it says something else. */
static int try_versions(struct e2b *c, const struct operation *op, struct call *call,
			int64_t deadline, const struct e2b_wait *wait, struct err *err)
{
	enum version *known = op->route < ROUTE_COUNT ? &c->version[op->route] : NULL;
	int rc = try_once(c, op, call, known && *known == VERSION_1, deadline, wait, err);
	if (!known || *known != VERSION_UNKNOWN)
		return rc;
	if (call->status != 404 && call->status != 405) {
		if (rc == 0)
			*known = VERSION_2;
		return rc;
	}
	struct call older;
	struct err why;
	int again = try_once(c, op, &older, true, deadline, wait, &why);
	if (older.status && older.status != 404 && older.status != 405)
		*known = VERSION_1;
	else if (again < 0 && older.status) {
		call_free(&older);
		return rc; /* neither knows it: the newer form's text is the better one */
	}
	call_free(call);
	*call = older;
	*err = why;
	return again;
}

/* Whether a failure is worth another try. */
static bool may_repeat(const struct operation *op, const struct call *call, const struct err *err)
{
	switch (call->status) {
	case 0:
		return err->code == ERR_UNAVAILABLE && (!op->once || !call->sent);
	case 429:
		/* Without a time to wait it is the limit of sandboxes, which waiting does not lift.
		 */
		return call->retry_after > 0;
	case 409:
	case 503:
		return true;
	case 500:
	case 502:
	case 504:
		return !op->once;
	default:
		/* A success that was cut off. */
		return err->code == ERR_UNAVAILABLE && !op->once;
	}
}

/* A create that may have reached its end there, without us knowing. That it took too long is said
 * as such. */
static bool is_unknown(const struct call *call, const struct err *err)
{
	return err->code != ERR_ABANDONED && err->code != ERR_TIMEOUT && call_may_have_acted(call);
}

int control_run(struct e2b *c, const struct operation *op, struct call *call, int64_t deadline,
		const struct e2b_wait *wait, struct err *err)
{
	struct err why = { 0 };
	int rc;
	for (int tries = 1;; tries++) {
		rc = try_versions(c, op, call, deadline, wait, &why);
		if (rc == 0 || tries == TRIES || !may_repeat(op, call, &why))
			break;
		int64_t us = backoff_us(tries, call->retry_after);
		if (clock_mono_us() + us >= deadline)
			break; /* it would only turn a known failure into a timeout */
		if (call_sleep(c, us, deadline, wait, &why) < 0)
			break;
		call_free(call);
	}
	if (rc < 0 && op->once && is_unknown(call, &why))
		why.code = ERR_UNKNOWN_OUTCOME;
	if (rc < 0 && err)
		*err = why;
	return rc;
}
