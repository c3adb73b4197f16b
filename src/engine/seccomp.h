/* The system calls that nothing inside a sandbox may make. */
#ifndef ENGINE_SECCOMP_H
#define ENGINE_SECCOMP_H

#include <linux/filter.h>

#include "base/err.h"

/* Two programs, made once and loaded in every sandbox: one refuses by name and argument, the other
 * every number that was not known when this was built. */
struct seccomp_filter {
	struct sock_fprog rules;
	struct sock_fprog unknown;
	struct sock_filter unknown_code[4];
};

int seccomp_compile(struct seccomp_filter *f, struct err *err);
int seccomp_apply(
	const struct seccomp_filter *f); /* this process and all it starts; 0 or -1 with errno */

#endif
