/* What the engine and the zygote say to each other, one packet a message. The zygote believes the
 * engine; the engine believes of a process that the zygote has forked no more than of any other
 * inside. */
#ifndef WIRE_ZYGOTEMSG_H
#define WIRE_ZYGOTEMSG_H

#include <stdint.h>

enum zygote_op {
	/* engine -> zygote */
	ZYGOTE_FILTERS =
		1, /* first of all; payload: the two seccomp programs, value bytes are the first */
	/* id; fds as in enum zygote_fd, value = 1 when the first group is one of version 2;
	 * strings: cwd, then the environment. Answered by ZYGOTE_FORKED. */
	ZYGOTE_FORK,
	ZYGOTE_REAP, /* pid: its end is known and the number may be used again */

	/* zygote -> engine */
	ZYGOTE_READY,
	ZYGOTE_FORKED, /* id, pid as the engine sees it, or a negative errno in value */
	ZYGOTE_EXITED, /* pid, value = the status as wait(2) gives it; a zombie until ZYGOTE_REAP */
};

enum zygote_fd {
	ZYGOTE_SANDBOX, /* a pidfd of the sandbox's first process: its namespaces are entered */
	ZYGOTE_CONTROL, /* becomes 3 */
	ZYGOTE_OUT,     /* becomes 1 */
	ZYGOTE_ERR,     /* becomes 2 */
	ZYGOTE_GATE,    /* readable once the sandbox stands: the process waits for it */
	ZYGOTE_GROUPS,  /* and more: folders of the sandbox's control groups */
};

struct zygote_msg {
	uint32_t op;
	uint32_t id;
	int32_t pid;
	int32_t value;
	/* of ZYGOTE_FORK: what the process may use, as in struct limits */
	uint32_t two_users, nproc;
	uint64_t data, file_size;
};

/* Descriptors that the zygote is started with. */
#define ZYGOTE_SOCKET  3
#define ZYGOTE_LIBRARY 4 /* sandgate-zygote.so, in memory */

#endif
