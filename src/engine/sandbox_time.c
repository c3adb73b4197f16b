/* How long a sandbox lives, and its pauses. */
#include "engine/sandbox_parts.h"

#include "base/clock.h"
#include "engine/context.h"
#include "engine/pool.h"
#include "engine/ports.h"
#include "engine/proc.h"
#include "engine/watcher.h"

/* ---- time ---- */

static void on_end_time(void *ctx)
{
	struct sandbox *s = ctx;
	struct err err;
	if (s->config.auto_pause && sandbox_pause(s, &err) == 0)
		return;
	sandbox_end_because(s, "its time was up");
}

void sandbox_set_end(struct sandbox *s, int64_t secs)
{
	s->end_real = clock_real_us() + secs * SECOND_US;
	timer_at(&s->end_timer, s->engine->loop, clock_mono_us() + secs * SECOND_US, on_end_time,
		 s);
}

int sandbox_set_timeout(struct sandbox *s, int secs, bool extend_only, struct err *err)
{
	int64_t now = clock_real_us();
	int64_t left = s->engine->opt->max_lifetime - (now - s->started_real) / SECOND_US;
	if (left <= 0)
		return err_set(err, ERR_INVALID, "Max instance length exceeded");
	if (secs < left)
		left = secs;
	if (extend_only && now + left * SECOND_US <= s->end_real)
		return 0;
	sandbox_set_end(s, left);
	logs_add(s->log, LOGS_INFO, "Timeout set", "endAt",
		 clock_rfc3339((char[CLOCK_TEXT]){ 0 }, s->end_real), NULL);
	return 0;
}

/* ---- pause ---- */

/* Under a freezer the whole sandbox stands still, the agent too. Without one the agent stops the
 * others. */
static int set_frozen(struct sandbox *s, bool frozen)
{
	if (cgroup_can_freeze(&s->group))
		return cgroup_freeze(&s->group, frozen);
	struct agent_msg msg = { .op = frozen ? AGENT_STOP : AGENT_CONT };
	return agent_call(s->agent, msg, NULL, 0, NULL, 0, NULL, NULL) ? 0 : -1;
}

int sandbox_pause(struct sandbox *s, struct err *err)
{
	if (s->state != SANDBOX_RUNNING)
		return err_set(err, ERR_CONFLICT,
			       "Error pausing sandbox - sandbox '%s' is already paused", s->id);
	int most = SANDBOX_PAUSED_MAX * s->engine->opt->max_sandboxes;
	if (sandbox_count(s->engine, SANDBOX_PAUSED) >= most)
		return err_set(err, ERR_LIMIT, "Error pausing sandbox - %d sandboxes are paused",
			       most);
	if (set_frozen(s, true) < 0)
		return err_errno(err, "Error pausing sandbox");
	s->state = SANDBOX_PAUSED;
	timer_stop(&s->end_timer);
	procs_cut(s);
	procs_paused(s);
	watchers_end(s);
	ports_cut(s);
	contexts_cut(s);
	http_cut(s->engine->http, s->serial);
	log_line(LOG_INFO, "op=pause sandbox=%s", s->id);
	logs_add(s->log, LOGS_INFO, "Sandbox paused", NULL);
	return 0;
}

int sandbox_check_room(struct engine *e, struct err *err)
{
	int n = sandbox_count(e, SANDBOX_RUNNING) + sandbox_count(e, SANDBOX_STARTING);
	if (n < e->opt->max_sandboxes)
		return 0;
	return err_set(
		err, ERR_LIMIT,
		"you have reached the maximum number of concurrent E2B sandboxes (%d). If you need "
		"more, please visit 'https://e2b.dev/docs/billing'",
		e->opt->max_sandboxes);
}

int sandbox_resume(struct sandbox *s, int secs, struct err *err)
{
	if (s->state != SANDBOX_PAUSED)
		return err_set(err, ERR_CONFLICT, "Sandbox %s is already running", s->id);
	if (sandbox_check_room(s->engine, err) < 0)
		return -1;
	if (memory_full(s->engine, err)) {
		pool_drain(s->engine->pool);
		return -1;
	}
	if (set_frozen(s, false) < 0)
		return err_errno(err, "Error resuming sandbox");
	s->state = SANDBOX_RUNNING;
	/* A resumed sandbox begins a new continuous life. */
	s->started_real = clock_real_us();
	sandbox_set_end(s,
			secs < s->engine->opt->max_lifetime ? secs : s->engine->opt->max_lifetime);
	procs_resumed(s);
	contexts_resumed(s);
	log_line(LOG_INFO, "op=resume sandbox=%s", s->id);
	logs_add(s->log, LOGS_INFO, "Sandbox resumed", "endAt",
		 clock_rfc3339((char[CLOCK_TEXT]){ 0 }, s->end_real), NULL);
	return 0;
}
