/* Processes that envd's clients start: their pipes or terminal, their subscribers, their end. */
#ifndef ENGINE_PROC_H
#define ENGINE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/answer.h"
#include "engine/http.h"
#include "engine/sandbox.h"

struct proc;

/* What to start. */
struct proc_spec {
	const char *cmd, *cwd, *tag; /* cwd absolute; tag may be NULL */
	struct json_object *args;    /* array of strings, or NULL */
	struct json_object *envs;    /* object of strings, or NULL */
	bool root, stdin_open;
	bool logged;        /* what it prints goes to the sandbox's log */
	bool pty;           /* in a terminal: that is its stdin, stdout and stderr */
	uint32_t window;    /* the terminal's, as AGENT_WINDOW */
	int64_t timeout_ms; /* 0: none */
	int keepalive_secs;
};

/* Start it; r gets its events (or the error) and then belongs to it. */
void proc_start(struct sandbox *s, const struct proc_spec *spec, struct req *r);

/* A template's start command: in the background, for no one. */
void proc_start_command(struct sandbox *s, const char *command);

/* By pid, or by tag when pid is 0; also one that ended less than 30 s ago. NULL when there is none.
 */
struct proc *proc_find(struct sandbox *s, int64_t pid, const char *tag);

/* r follows it, for timeout_ms at the most if that is not 0. */
void proc_subscribe(struct proc *p, struct req *r, int keepalive_secs, int64_t timeout_ms);

/* Write to its terminal (pty) or its stdin. -1: ERR_CONFLICT it has the other one or none,
 * ERR_LIMIT the program does not read. */
int proc_input(struct proc *p, bool pty, const char *data, size_t n, struct err *err);
int proc_close_input(struct proc *p, struct err *err);             /* -1: it has a terminal */
int proc_resize(struct proc *p, uint32_t window, struct err *err); /* -1: it has none */

/* Send a signal; fn as for an agent's call. */
int proc_signal(struct proc *p, int sig, agent_fn *fn, void *ctx);

/* The processes that run, as List answers it. A new reference. */
struct json_object *procs_list(struct sandbox *s);

/* For the sandbox: a child inside ended (true when it was one of these), it stands still, all
 * streams are to be cut, or all is over. */
bool procs_exited(struct sandbox *s, uint32_t id, int status);
void procs_paused(struct sandbox *s);
void procs_resumed(struct sandbox *s);
void procs_cut(struct sandbox *s);
void procs_end(struct sandbox *s);

#endif
