/* What proc.c and its parts share; nobody else includes this. */
#ifndef ENGINE_PROC_PARTS_H
#define ENGINE_PROC_PARTS_H

#include "base/buf.h"
#include "engine/proc.h"

#define INPUT_MAX     (16u << 20) /* bytes that a program has not taken yet */
#define INPUT_ALL_MAX (64u << 20) /* and all programs of a sandbox together */

/* Where output comes from. A terminal has one stream only, and it is OUT. */
enum { OUT, ERR, PIPES };

struct proc {
	struct proc *next;
	struct sandbox *s;
	uint32_t id; /* of its spawn call */
	int pid;     /* inside; 0 until it runs */
	char *tag;
	struct json_object *config; /* cmd, args, envs, cwd */
	struct req *starter;        /* waits for the start */
	int keepalive_secs;
	bool root;
	struct logs_lines *logged; /* one for each pipe, or NULL: its output is not logged */
	struct pipe {
		struct proc *proc;
		int fd;
		struct watch watch;
	} pipes[PIPES];
	int in;
	struct watch in_watch;
	struct buf input; /* from input_at on not yet taken by the program */
	size_t input_at;
	bool in_closing;
	bool pty; /* pipes[OUT] and in are both the terminal's master */
	struct sub *subs;
	struct timer timer; /* the time limit; later, the lingering */
	int64_t timeout_ms;
	int64_t time_left; /* microseconds of the time limit, while it is paused */
	bool exited, muted, timed_out, finished;
	int status;
};

const char *proc_signal_name(int sig); /* as Go names them */

/* Subscribers (proc_subs.c). Read on exactly while every one of them has room: the program then
 * blocks in write, as on a real pipe. */
void subs_set_reading(struct proc *p);
void subs_send(struct proc *p, const char *json, size_t n);
void subs_send_end(struct proc *p); /* how it ended */
/* End every stream: with the error that time is up, or with what was sent before; or break it off.
 */
void subs_end(struct proc *p, bool late);
void subs_cut(struct proc *p);

/* Input (proc_input.c). p->in is open and the process runs: take what clients send from now on. */
void input_begin(struct proc *p, struct loop *loop);
void input_close(struct proc *p);

/* Terminals (pty.c). Take the master of p's terminal from the agent's reply; -1 when it is none. */
int pty_take(struct proc *p, int *fd);

#endif
