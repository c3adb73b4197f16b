/* A terminal for a process inside: a pair of the sandbox's own devpts, so that its name, its job
 * control and its window are those of any terminal there. */
#ifndef AGENT_TERMINAL_H
#define AGENT_TERMINAL_H

#include <stdint.h>
#include <sys/types.h>

/* Make one with a window (AGENT_WINDOW) and give its slave to uid, unless that is -1. Both ends are
 * the caller's. 0 or a negative errno: -ENOSPC when the sandbox has all that it may have. */
int terminal_open(uint32_t window, uid_t uid, int *master, int *slave);

/* In the child, after setsid(): what descriptor 0 is open on controls this session. */
void terminal_control(void);

#endif
