/* An execution's result, read from its event log: api.md's ExecutionResult. What only the caller
 * knows (generation, state_lost, reason) it adds itself. */
#ifndef CORE_RESULT_H
#define CORE_RESULT_H

#include <json-c/json.h>
#include <stddef.h>

#include "core/report.h"

struct result_limits {
	size_t output; /* bytes of each stream, and of a result's text in `output` */
	size_t error;  /* bytes of `error` */
};

/* A new object for the report, with what the log of that folder holds. A log that is missing or in
 * part lost is no error: the object says truncated, and its counts are exact all the same. */
struct json_object *result_read(const char *dir, const struct run_report *report,
				const struct result_limits *limits);

#endif
