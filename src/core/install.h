/* Installing Python packages: pip as an execution of its own, which succeeds only when the running
 * interpreter can see what was asked for. */
#ifndef CORE_INSTALL_H
#define CORE_INSTALL_H

#include "core/packages.h"
#include "core/run.h"

#define INSTALL_PACKAGES_MAX 64 /* in one installation */

/* What is to be installed, checked before anything is started. Zero it to begin; there is nothing
 * to free. */
struct install_plan {
	struct package packages[INSTALL_PACKAGES_MAX];
	size_t n;
};

/* One more requirement. ERR_INVALID: see package_parse; ERR_LIMIT: there are too many. */
int install_add(struct install_plan *plan, const char *requirement, size_t n, struct err *err);

/* Run it: the interpreter of the live kernel (python3 where there is none) runs pip, and is then
 * asked for each package. base has the row, the limit, which covers all of this, and what is
 * watched; kind, argv, input and steps are set here. Returns and reports as run_execution does: a
 * package that cannot be seen after pip's success is the execution's own error. ERR_INVALID when
 * the plan is empty. */
int install_run(struct core *c, const struct run_request *base, const struct install_plan *plan,
		struct run_report *out, struct err *err);

#endif
