#include "api/outcome.h"

#include <stdio.h>

#include "core/result.h"
#include "core/run.h"

static struct json_object *read_result(struct call *c, const struct run_report *report)
{
	const struct settings *s = c->w->settings;
	const struct result_limits limits = { .output = (size_t)s->output_max,
					      .error = (size_t)s->error_max };
	char dir[3000];
	struct err err = { 0 };
	if (run_events_dir(s, dir, sizeof dir, &err) == 0)
		return result_read(dir, report, &limits);
	snprintf(c->inner, sizeof c->inner, "%s", err.text);
	return json_object_new_object();
}

struct json_object *outcome_result(struct call *c, const struct run_report *report,
				   int64_t generation, enum end_reason lost)
{
	struct json_object *o = read_result(c, report);
	json_object_object_add(o, "generation", json_object_new_int64(generation));
	json_object_object_add(o, "state_lost", json_object_new_boolean(lost != END_NONE));
	if (lost != END_NONE)
		json_object_object_add(o, "reason", json_object_new_string(end_reason_name(lost)));
	return o;
}

/* ---- the ends ---- */

static void say(char *out, size_t size, const char *what, const struct run_report *report)
{
	snprintf(out, size, "%s; %s", what,
		 report->killed ? "it did not heed that, and its sandbox had to be ended"
		 : report->restarted
			 ? "it did not heed that, so its context was restarted and its variables "
			   "are lost"
			 : "the sandbox lives on");
}

/* Of what never ran: which problem it is, and what is said of it. */
static enum problem explain_refusal(const struct run_report *report, const struct err *err,
				    char *detail, size_t size)
{
	if (report->no_context && err->code == ERR_NOT_FOUND) {
		snprintf(detail, size, "this sandbox has no such context");
		return CONTEXT_NOT_FOUND;
	}
	if (report->no_context) {
		snprintf(detail, size, "this sandbox's template does not run that language");
		return BAD_REQUEST;
	}
	if (report->no_command) {
		snprintf(detail, size,
			 "the sandbox has no such 'cwd', or takes no command of so many words");
		return BAD_REQUEST;
	}
	if (!report->no_interpreter)
		return err->code ? problem_of(err) : PROVIDER_ERROR;
	snprintf(detail, size, "this sandbox's template runs no code; use 'command'");
	return NO_INTERPRETER;
}

/* Which problem it is, and what is said of it. RUN_ENDED is none. */
static enum problem explain(struct call *c, const struct run_report *report, const struct err *err,
			    char *detail, size_t size)
{
	char limit[128];
	detail[0] = '\0';
	switch (report->end) {
	case RUN_TIMED_OUT:
		snprintf(limit, sizeof limit,
			 "the execution passed its limit of %lld s and was interrupted",
			 (long long)(report->ms / 1000));
		say(detail, size, limit, report);
		return EXECUTION_TIMEOUT;
	case RUN_CANCELLED:
		say(detail, size, "the execution was cancelled", report);
		return CANCELLED;
	case RUN_STOPPED:
		snprintf(detail, size, "it was stopped during the execution");
		return SANDBOX_STOPPED;
	case RUN_EXPIRED:
		snprintf(detail, size, "it came to the end of its lifetime during the execution");
		return SANDBOX_EXPIRED;
	case RUN_LOST:
	case RUN_UNKNOWN:
		snprintf(c->inner, sizeof c->inner, "%s", err->text);
		snprintf(detail, size, "%s",
			 report->end == RUN_LOST
				 ? "the sandbox was lost during the execution"
				 : "the connection to the sandbox broke; nobody can "
				   "say how the execution ended");
		return COMPLETION_UNKNOWN;
	case RUN_REFUSED:
		snprintf(c->inner, sizeof c->inner, "%s", err->text);
		return explain_refusal(report, err, detail, size);
	case RUN_LEFT: /* read back later: for whoever asks, it was cancelled */
		snprintf(detail, size, "its client went away");
		return CANCELLED;
	case RUN_ENDED:
		break;
	}
	return INTERNAL;
}

struct outcome outcome_of(struct call *c, const struct run_report *report, const struct err *err,
			  struct json_object *result)
{
	char detail[512];
	if (report->end == RUN_ENDED)
		return (struct outcome){ .status = 200, .body = result };
	const enum problem problem = explain(c, report, err, detail, sizeof detail);
	return (struct outcome){
		.status = problem_status(problem),
		.failed = report->end == RUN_LOST || report->end == RUN_UNKNOWN ||
			  report->end == RUN_REFUSED,
		.problem = problem,
		.body = problem_object(c, problem, result, detail),
	};
}

void answer_outcome(struct call *c, struct outcome outcome)
{
	if (outcome.status != 200)
		answer_retry_after(c, outcome.problem);
	answer_json(c, outcome.status, outcome.body);
}
