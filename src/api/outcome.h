/* What the end of an execution is to its caller: the body and the status of a plain answer, or the
 * last event of a stream. */
#ifndef API_OUTCOME_H
#define API_OUTCOME_H

#include <json-c/json.h>

#include "api/answer.h"
#include "core/report.h"

/* api.md's ExecutionResult, read from the event log. lost: what it says of older state. */
struct json_object *outcome_result(struct call *c, const struct run_report *report,
				   int64_t generation, enum end_reason lost);

struct outcome {
	int status;               /* of a plain answer */
	bool failed;              /* the last event of a stream is "failed" and not "done" */
	enum problem problem;     /* of a status that is not 200 */
	struct json_object *body; /* the result, with detail and code where there is a problem */
};

/* Of an execution that has ended in any way but by its client's leaving. result is taken over; err
 * is why, where the report needs it. */
struct outcome outcome_of(struct call *c, const struct run_report *report, const struct err *err,
			  struct json_object *result);

/* As a plain answer; the body is taken over. */
void answer_outcome(struct call *c, struct outcome outcome);

#endif
