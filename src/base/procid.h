/* Which process is meant. The kernel reuses process numbers; a number together with the start time
 * names one process, so that a successor is never taken for the one that died. */
#ifndef BASE_PROCID_H
#define BASE_PROCID_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct procid {
	pid_t pid;     /* in the namespace of the reader */
	int64_t start; /* clock ticks between the machine's boot and the process's start */
};

/* 0, or -1 when there is no such process. One that is dead but not yet waited for is none. */
int procid_of(pid_t pid, struct procid *out);

bool procid_alive(struct procid p);

#endif
