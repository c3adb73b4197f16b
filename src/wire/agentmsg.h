/* What the engine and the agent (pid 1 of every sandbox) say to each other. One packet a message:
 * struct agent_msg, then a payload of NUL-terminated strings, and file descriptors where said. The
 * engine trusts nothing in a message but its length. */
#ifndef WIRE_AGENTMSG_H
#define WIRE_AGENTMSG_H

#include <stddef.h>
#include <stdint.h>

enum agent_op {
	/* engine -> agent; each is answered by one AGENT_REPLY with the same id */
	AGENT_GO = 1, /* before the agent runs: the id maps are written, begin */
	/* value = argc; strings: cwd, argv..., env...; fds: 0, 1, 2 and perhaps 3. AGENT_PTY: no
	 * fds but a new terminal of the sandbox's own, target = AGENT_WINDOW; the reply carries its
	 * master. */
	AGENT_SPAWN,
	AGENT_SIGNAL,    /* target = the spawn's id, value = signal; AGENT_GROUP: its whole group */
	AGENT_STOP,      /* SIGSTOP everything: the pause where no freezer is to be had */
	AGENT_CONT,      /* and SIGCONT */
	AGENT_OPEN_READ, /* string: path; the reply carries a descriptor */
	AGENT_OPEN_WRITE, /* strings: path, then its metadata as pairs (wire/filemeta.h); parents
			   * are made, the file is emptied, what metadata it had is forgotten; a
			   * descriptor, or for -ENOTDIR the component that is no folder */
	AGENT_STAT,       /* string: path; the reply's payload is an EntryInfo in JSON */
	AGENT_LIST,       /* string: path, value = depth; a descriptor of the answer in JSON */
	AGENT_MKDIR,      /* string: path; EntryInfo */
	AGENT_MOVE,       /* strings: source, destination; EntryInfo */
	AGENT_REMOVE,     /* string: path */
	AGENT_USAGE,      /* the reply's payload is a struct agent_usage */
	/* string: path; AGENT_RECURSIVE, AGENT_ENTRIES. From then on the directory is watched,
	 * under this call's id. */
	AGENT_WATCH,
	/* target = the watch's id. Its changes since the last time, two strings each: an enum
	 * agent_change as one byte and the name below the directory; an EntryInfo in JSON, or
	 * nothing. value = 1 when not all fitted. AGENT_WAIT: answered only when there are some,
	 * or -ECANCELED by AGENT_UNWATCH. An error says what became of the watch: -EOVERFLOW when
	 * changes were lost, else why it cannot go on; the next call begins it anew. */
	AGENT_CHANGES,
	AGENT_UNWATCH, /* target = the watch's id */
	/* strings: destination, sources...; the sources become the destination, in this order, and
	 * are removed. After an error: an enum agent_compose as one byte and the path that it is
	 * about. */
	AGENT_COMPOSE,
	AGENT_CONNECT, /* value = a port of the loopback; a TCP socket, connected or on its way */

	/* agent -> engine */
	AGENT_PLACED, /* it is in its namespaces, and others may join them */
	AGENT_READY,  /* it serves */
	AGENT_FAILED, /* the sandbox could not be built; string: why */
	AGENT_REPLY,  /* value = 0, a pid, or a negative errno */
	AGENT_EXITED, /* id = the spawn's, value = the status as wait(2) gives it */
};

enum agent_flag {
	AGENT_AS_ROOT = 1, /* as root, else as user */
	AGENT_GROUP = 2,
	AGENT_RECURSIVE = 4,
	AGENT_ENTRIES = 8,
	AGENT_WAIT = 16,
	AGENT_PTY = 32,
};

/* The size of a terminal's window, each 0 to 65535. */
#define AGENT_WINDOW(cols, rows) ((uint32_t)(cols) | (uint32_t)(rows) << 16)

/* What an AGENT_COMPOSE can fail at. */
enum agent_compose {
	AGENT_COMPOSE_READ = 1, /* nothing has changed */
	AGENT_COMPOSE_WRITE,    /* nothing has changed but that parents may have been made */
	AGENT_COMPOSE_REMOVE,   /* the destination is complete; this source and those behind it stay
				 */
};

/* What can happen to a file. */
enum agent_change {
	AGENT_CREATED = 1, /* also: moved here */
	AGENT_WRITTEN,
	AGENT_REMOVED,
	AGENT_RENAMED, /* moved away from this name */
	AGENT_CHMODDED,
};

struct agent_msg {
	uint32_t op;
	uint32_t id;
	int32_t value;
	uint32_t flags;
	uint32_t target;
};

struct agent_usage {
	uint64_t cpu_us;   /* of all processes alive and ended */
	uint64_t mem_used; /* bytes */
	uint64_t disk_used;
	uint64_t disk_total;
};

/* Who lives inside. */
#define AGENT_USER "user"
#define AGENT_UID  1000
#define AGENT_HOME "/home/user"

/* The string that begins at *pos in a payload of n bytes, and *pos set behind it; NULL when there
 * is none. */
const char *agent_string(const char *payload, size_t n, size_t *pos);

#endif
