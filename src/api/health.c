#include "api/answer.h"
#include "api/handlers.h"
#include "base/clock.h"

#define HEALTH_US  (5 * SECOND_US) /* how old the provider's answer may be */
#define CHECK_SECS 5

void op_healthz(struct call *c)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "status", json_object_new_string("ok"));
	answer_json(c, 200, o);
}

static void check_provider(struct worker *w)
{
	int64_t now = clock_mono_us();
	const struct e2b_wait wait = { .deadline_mono_us = now + CHECK_SECS * SECOND_US };
	if (w->checked_at && now - w->checked_at < HEALTH_US)
		return;
	w->health = (struct err){ 0 };
	e2b_check(w->core.e2b, &wait, &w->health);
	w->checked_at = clock_mono_us();
}

static const char *provider_word(const struct err *err)
{
	switch (err->code) {
	case ERR_NONE:
		return "ok";
	case ERR_DENIED:
		return "key refused";
	default:
		return "unavailable";
	}
}

void op_readyz(struct call *c)
{
	struct sandbox_counts counts;
	struct err database = { 0 };
	struct json_object *o = json_object_new_object();
	sandbox_count(c->w->core.store, NULL, &counts, &database);
	check_provider(c->w);
	bool draining = board_draining(c->w->board, NULL);
	bool ready = !database.code && !c->w->health.code && !draining;
	json_object_object_add(o, "status",
			       json_object_new_string(draining ? "draining"
						      : ready  ? "ready"
							       : "not ready"));
	json_object_object_add(o, "database",
			       json_object_new_string(database.code ? "unavailable" : "ok"));
	json_object_object_add(o, "provider", json_object_new_string(provider_word(&c->w->health)));
	if (!ready)
		web_header(c->web, "Retry-After", "5");
	answer_json(c, ready ? 200 : 503, o);
}
