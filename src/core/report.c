#include "core/report.h"

#include <stdio.h>
#include <string.h>

#define NO_INTERPRETER "no_interpreter"

static const char *const end_names[] = {
	[RUN_ENDED] = "",
	[RUN_TIMED_OUT] = "execution_timeout",
	[RUN_LEFT] = "client_gone",
	[RUN_CANCELLED] = "cancelled",
	[RUN_STOPPED] = "sandbox_stopped",
	[RUN_EXPIRED] = "sandbox_expired",
	[RUN_LOST] = "sandbox_lost",
	[RUN_UNKNOWN] = "completion_unknown",
	[RUN_REFUSED] = "provider_error",
};

enum execution_state report_state(const struct run_report *report)
{
	static const enum execution_state states[] = {
		[RUN_TIMED_OUT] = EXECUTION_TIMED_OUT,
		[RUN_LEFT] = EXECUTION_CANCELLED,
		[RUN_CANCELLED] = EXECUTION_CANCELLED,
		[RUN_STOPPED] = EXECUTION_FAILED,
		[RUN_EXPIRED] = EXECUTION_FAILED,
		[RUN_REFUSED] = EXECUTION_FAILED,
		[RUN_LOST] = EXECUTION_COMPLETION_UNKNOWN,
		[RUN_UNKNOWN] = EXECUTION_COMPLETION_UNKNOWN,
	};
	if (report->end == RUN_ENDED)
		return report->error_name[0] ? EXECUTION_FAILED : EXECUTION_SUCCEEDED;
	return states[report->end];
}

const char *report_error_name(const struct run_report *report)
{
	if (report->end == RUN_ENDED)
		return report->error_name;
	return report->no_interpreter ? NO_INTERPRETER : end_names[report->end];
}

enum cancelled_by report_cancelled_by(const struct run_report *report)
{
	if (report->end != RUN_CANCELLED)
		return CANCELLED_BY_NONE;
	if (report->killed)
		return CANCELLED_BY_KILL;
	return report->restarted ? CANCELLED_BY_RESTART : CANCELLED_BY_INTERRUPT;
}

/* The ends that fail an execution have names of their own; any other name is the program's error.
 */
static enum run_end end_of_failed(const char *error_name)
{
	for (enum run_end end = RUN_STOPPED; end <= RUN_REFUSED; end++)
		if (!strcmp(error_name, end_names[end]))
			return end;
	return strcmp(error_name, NO_INTERPRETER) ? RUN_ENDED : RUN_REFUSED;
}

int report_of_row(const struct execution_row *row, struct run_report *out)
{
	static const enum run_end ends[] = {
		[EXECUTION_SUCCEEDED] = RUN_ENDED,
		[EXECUTION_TIMED_OUT] = RUN_TIMED_OUT,
		[EXECUTION_CANCELLED] = RUN_LEFT,
		[EXECUTION_COMPLETION_UNKNOWN] = RUN_UNKNOWN,
	};
	if (row->state == EXECUTION_QUEUED || row->state == EXECUTION_RUNNING)
		return -1;
	enum run_end end = ends[row->state];
	if (row->state == EXECUTION_FAILED)
		end = end_of_failed(row->error_name);
	else if (end == RUN_UNKNOWN && !strcmp(row->error_name, end_names[RUN_LOST]))
		end = RUN_LOST;
	else if (end == RUN_LEFT && !strcmp(row->error_name, end_names[RUN_CANCELLED]))
		end = RUN_CANCELLED;
	*out = (struct run_report){
		.end = end,
		.state = row->state,
		.restarted = row->cancelled_by == CANCELLED_BY_RESTART,
		.killed = row->cancelled_by == CANCELLED_BY_KILL,
		.no_interpreter = end == RUN_REFUSED && !strcmp(row->error_name, NO_INTERPRETER),
		.has_exit_code = row->has_exit_code,
		.exit_code = row->exit_code,
		.ms = (row->ended_at - row->started_at) / 1000,
		.stdout_bytes = row->stdout_bytes,
		.stderr_bytes = row->stderr_bytes,
		.events = row->events,
		.event_bytes = row->event_bytes,
	};
	snprintf(out->id, sizeof out->id, "%.*s", EXECUTION_ID - 1, row->id);
	if (end == RUN_ENDED)
		snprintf(out->error_name, sizeof out->error_name, "%s", row->error_name);
	return 0;
}
