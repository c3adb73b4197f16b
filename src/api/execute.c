#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/body.h"
#include "api/handlers.h"
#include "api/sandbox.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "core/install.h"
#include "core/result.h"
#include "core/run.h"

#define REMEMBER_US (10 * SECOND_US) /* a 408 is answered again for so long */
#define TRIES       3                /* sandboxes that are found gone before anything ran */

/* ---- the answer ---- */

static struct json_object *read_result(struct call *c, const struct run_report *report)
{
	const struct settings *s = c->w->settings;
	const struct result_limits limits = { .output = (size_t)s->output_max,
					      .error = (size_t)s->error_max };
	struct json_object *o = NULL;
	char dir[3000];
	struct err err = { 0 };
	if (run_events_dir(s, dir, sizeof dir, &err) < 0 ||
	    result_read(&o, dir, report, &limits, &err) < 0) {
		snprintf(c->inner, sizeof c->inner, "%s", err.text);
		return json_object_new_object();
	}
	return o;
}

/* The first answer from a new sandbox says that, and why, older state is gone. */
static void add_generation(struct call *c, struct json_object *o, const struct sandbox_row *row,
			   bool told)
{
	enum end_reason why = END_NONE;
	struct err ignored;
	bool lost = false;
	if (told)
		sandbox_take_state_lost(c->w->core.store, row->id, &lost, &why, &ignored);
	json_object_object_add(o, "generation", json_object_new_int64(row->generation));
	json_object_object_add(o, "state_lost", json_object_new_boolean(lost));
	if (lost)
		json_object_object_add(o, "reason", json_object_new_string(end_reason_name(why)));
}

static void answer_refused(struct call *c, const struct run_report *report, struct err *err,
			   struct json_object *o)
{
	if (report->no_interpreter) {
		answer_problem_with(c, NO_INTERPRETER, o,
				    "this sandbox's template runs no code; use 'command'");
		return;
	}
	json_object_put(o);
	answer_err(c, err);
}

static void answer_report(struct call *c, const struct run_report *report, struct err *err,
			  struct json_object *o)
{
	switch (report->end) {
	case RUN_ENDED:
		answer_json(c, 200, o);
		return;
	case RUN_TIMED_OUT:
		answer_problem_with(
			c, EXECUTION_TIMEOUT, o,
			"the execution passed its limit of %lld s and was interrupted; %s",
			(long long)c->w->settings->execution_timeout,
			report->restarted ? "it did not heed that, so its context was "
					    "restarted and its variables are lost"
					  : "the sandbox lives on");
		return;
	case RUN_LEFT:
		json_object_put(o);
		answer_nobody(c);
		return;
	case RUN_STOPPED:
		answer_problem_with(c, SANDBOX_STOPPED, o, "it was stopped during the execution");
		return;
	case RUN_EXPIRED:
		answer_problem_with(c, SANDBOX_EXPIRED, o,
				    "it came to the end of its lifetime during the execution");
		return;
	case RUN_LOST:
	case RUN_UNKNOWN:
		snprintf(c->inner, sizeof c->inner, "%s", err->text);
		answer_problem_with(c, COMPLETION_UNKNOWN, o, "%s",
				    report->end == RUN_LOST
					    ? "the sandbox was lost during the execution"
					    : "the connection to the sandbox broke; nobody can say "
					      "how the execution ended");
		return;
	case RUN_REFUSED:
		answer_refused(c, report, err, o);
		return;
	}
}

/* ---- running ---- */

/* Browsers send a POST again that was answered 408. The same request within ten seconds gets the
 * same answer, and nothing runs. */
static void hash_request(const struct call *c, char out[SHA256_HEX])
{
	struct buf b = BUF(c->body.len + sizeof c->caller.user + sizeof c->session + 64);
	buf_addf(&b, "%s\n%s\n%s\n", c->caller.user, c->session, c->route->name);
	buf_add(&b, c->body.p, c->body.len);
	sha256_hex(out, b.p, b.len);
	buf_free(&b);
}

static bool answered_before(struct call *c, const char *hash)
{
	struct execution_row row;
	struct sandbox_row sandbox;
	struct run_report report;
	struct err err = { 0 };
	if (execution_repeated(c->w->core.store, c->caller.user, c->session, hash,
			       clock_real_us() - REMEMBER_US, &row, &err) < 0)
		return false;
	report_of_row(&row, &report);
	struct json_object *o = read_result(c, &report);
	if (sandbox_get(c->w->core.store, row.sandbox, &sandbox, &err) == 0)
		memcpy(c->sandbox, sandbox.sandbox_id, sizeof c->sandbox);
	json_object_object_add(o, "generation", json_object_new_int64(row.generation));
	json_object_object_add(o, "state_lost", json_object_new_boolean(false));
	answer_report(c, &report, &err, o);
	return true;
}

static void woken(void *ctx)
{
	board_clear_wake(ctx);
}

/* One attempt in the sandbox that is there. */
typedef int attempt(struct core *core, struct run_request *req, void *what, struct run_report *out,
		    struct err *err);

static int run_watched(struct call *c, struct sandbox_row *row, struct run_request *req,
		       attempt *fn, void *what, struct run_report *report, struct err *err)
{
	char key[SESSION_KEY];
	req->row = row;
	req->limit_secs = (int)c->w->settings->execution_timeout;
	req->client_fd = web_fd(c->web);
	req->wake_fd = c->w->slot->wake;
	req->woken = woken;
	req->ctx = c->w->slot;
	session_key(key, row->owner, row->session_id);
	board_wait_for(c->w->slot, board_key("session", key));
	int rc = fn(&c->w->core, req, what, report, err);
	board_wait_for(c->w->slot, 0);
	return rc;
}

/* A sandbox that turns out to be gone before anything ran is replaced, and only then. */
static void run_in_session(struct call *c, struct run_request *req, attempt *fn, void *what)
{
	const struct session want = call_session(c);
	struct sandbox_row row;
	struct run_report report;
	struct err err = { 0 };
	char hash[SHA256_HEX];
	hash_request(c, hash);
	if (answered_before(c, hash))
		return;
	req->request_hash = hash;
	for (int i = 1;; i++) {
		if (call_ensure(c, &want, &row) < 0)
			return;
		int rc = run_watched(c, &row, req, fn, what, &report, &err);
		bool again = rc < 0 ? err.code == ERR_CONFLICT : report.not_run;
		if (again && call_stopped(c, &row))
			return;
		if (again && i < TRIES)
			continue;
		if (rc == 0)
			break;
		answer_err(c, &err);
		return;
	}
	struct json_object *o = read_result(c, &report);
	/* What nobody hears is told by the next answer. */
	bool told = report.end != RUN_LEFT && report.end != RUN_REFUSED && !web_gone(c->web);
	add_generation(c, o, &row, told);
	answer_report(c, &report, &err, o);
}

/* ---- execute ---- */

static int attempt_code(struct core *core, struct run_request *req, void *what,
			struct run_report *out, struct err *err)
{
	(void)what;
	return run_execution(core, req, out, err);
}

void op_execute(struct call *c)
{
	struct run_request req = { .kind = EXECUTION_CODE };
	struct json_object *o;
	if (body_object(c, &o) < 0)
		return;
	if (body_text(c, o, "code", &req.code, &req.ncode) == 0) {
		if (req.code)
			run_in_session(c, &req, attempt_code, NULL);
		else
			answer_problem(c, BAD_REQUEST,
				       "'code' is missing: send {\"code\": \"print(1)\"}");
	}
	json_object_put(o);
}

/* ---- install ---- */

static int attempt_install(struct core *core, struct run_request *req, void *what,
			   struct run_report *out, struct err *err)
{
	return install_run(core, req, what, out, err);
}

/* -1: the call has been answered. */
static int read_packages(struct call *c, struct json_object *o, struct install_plan *plan)
{
	struct json_object *list;
	struct err err = { 0 };
	if (body_array(c, o, "packages", &list) < 0)
		return -1;
	if (!list) {
		answer_problem(c, BAD_REQUEST,
			       "'packages' is missing: send {\"packages\": [\"requests\"]}");
		return -1;
	}
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		if (!json_object_is_type(v, json_type_string)) {
			answer_problem(c, BAD_PACKAGE, "'packages' must be an array of strings");
			return -1;
		}
		if (install_add(plan, json_object_get_string(v),
				(size_t)json_object_get_string_len(v), &err) < 0) {
			answer_problem(c, BAD_PACKAGE, "%s", err.text);
			return -1;
		}
	}
	return 0;
}

/* A success that needs no sandbox. */
static void answer_nothing_to_do(struct call *c)
{
	struct json_object *o = NULL;
	const struct run_report report = { .end = RUN_ENDED, .state = EXECUTION_SUCCEEDED };
	o = read_result(c, &report);
	json_object_object_add(o, "output", json_object_new_string("No packages to install"));
	json_object_object_add(o, "execution_id", NULL);
	json_object_object_add(o, "exit_code", json_object_new_int(0));
	json_object_object_add(o, "truncated", json_object_new_boolean(false));
	json_object_object_add(o, "generation", NULL);
	json_object_object_add(o, "state_lost", json_object_new_boolean(false));
	answer_json(c, 200, o);
}

void op_install(struct call *c)
{
	struct install_plan plan = { .n = 0 };
	struct run_request req = { .kind = EXECUTION_INSTALL };
	struct json_object *o;
	if (body_object(c, &o) < 0)
		return;
	if (read_packages(c, o, &plan) == 0) {
		if (plan.n)
			run_in_session(c, &req, attempt_install, &plan);
		else
			answer_nothing_to_do(c);
	}
	json_object_put(o);
}
