/* Sandboxes: their life from create to the reaping of the last process. */
#ifndef ENGINE_SANDBOX_H
#define ENGINE_SANDBOX_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/confine.h"
#include "base/err.h"
#include "engine/agent.h"
#include "engine/cgroup.h"
#include "engine/engine.h"
#include "engine/loop.h"
#include "engine/memory.h"
#include "engine/template.h"

#define SANDBOX_ID    22 /* "i" and 20 of [a-z0-9] */
#define SANDBOX_TOKEN 33

/* SANDBOX_READY: in the warm pool, and nobody's yet. */
enum sandbox_state {
	SANDBOX_STARTING,
	SANDBOX_READY,
	SANDBOX_RUNNING,
	SANDBOX_PAUSED,
	SANDBOX_ENDED
};

/* What a create asks for. */
struct sandbox_config {
	const struct template *template;
	struct json_object *metadata; /* object of strings, or NULL */
	struct json_object *envs;     /* object of strings, or NULL */
	struct json_object *network;  /* as network_read gave it, or NULL */
	int timeout;                  /* seconds */
	bool auto_pause, auto_resume, internet, secure, private_traffic;
	bool pooled; /* made for the pool, and still in it */
	bool probe;  /* made at the start to see that it can be: not worth a line in the log */
	bool internet_asked; /* the request said so itself: shown by get */
};

#define USAGE_SAMPLES 60

/* One measurement, as the control plane's metrics show it. */
struct usage_sample {
	int64_t real_us;
	double cpu_pct;
	struct agent_usage usage;
};

struct sandbox {
	struct engine *engine;
	struct sandbox *prev, *next;
	char id[SANDBOX_ID];
	uint64_t serial;                /* never used twice: marks the requests that are about it */
	char envd_token[SANDBOX_TOKEN]; /* "" when the sandbox is not secure */
	char traffic_token[SANDBOX_TOKEN]; /* "" unless its ports are private */
	struct sandbox_config config;      /* its JSON objects are references of its own */
	enum sandbox_state state;
	int64_t started_real, end_real; /* end_real means nothing while paused */
	struct timer end_timer;

	struct agent *agent;
	pid_t pid, slirp; /* 0 once reaped */
	int slot;         /* its pair of ids */
	struct cgroup group;
	struct memory_watch memory;
	char end_reason[160]; /* for its log; "" when nobody knows */
	bool end_asked;       /* it is no failure */
	struct watch net;     /* slirp4netns's word that it is ready */
	int net_fd;
	int gate; /* an eventfd, readable once it stands: see zygote.h */
	bool placed, agent_ready, net_ready;
	bool networked;              /* it was made with a way out */
	struct netchange *netchange; /* a change of its rules that is under way */
	struct timer start_timer;
	void (*created)(void *ctx, struct sandbox *s, const struct err *why);
	void *created_ctx;
	char failure[256];
	struct logs *log; /* NULL when there was no memory for one */

	struct proc *procs;       /* processes started by envd's clients */
	struct watcher *watchers; /* of directories, for envd's clients */
	struct port *ports;       /* connections to servers inside */
	int nports;
	size_t queued;            /* bytes of code and variables that wait to be run */
	struct context *contexts; /* of the code interpreter, oldest first */
	struct usage_sample samples[USAGE_SAMPLES];
	size_t nsamples;
};

/* Begin to make a sandbox. 0, and then created() comes exactly once, with the sandbox running or
 * with NULL and the reason; or -1 when it was refused at once (ERR_LIMIT: too many). */
int sandbox_create(struct engine *e, const struct sandbox_config *config,
		   void (*created)(void *ctx, struct sandbox *s, const struct err *why), void *ctx,
		   struct err *err);

/* Begin to make one for the pool, which hears of it by pool_changed. NULL when that is not
 * possible. */
struct sandbox *sandbox_prepare(struct engine *e, const struct sandbox_config *config,
				struct err *err);

/* By id, running or paused; "id-clientid" is accepted. NULL when there is none. */
struct sandbox *sandbox_find(struct engine *e, const char *id);

/* End it now: streams are cut, processes killed, the pointer is dead to everyone but the reaper. */
void sandbox_end(struct sandbox *s);
void sandbox_end_because(struct sandbox *s,
			 const char *why); /* the same, with the reason for its log */
void sandbox_end_all(struct engine *e);

/* A child process of the engine was reaped. */
void sandbox_reaped(struct engine *e, pid_t pid);

/* The new end is now + secs, cut to the longest life; extend_only keeps a later one. ERR_INVALID
 * when its life is used up already. */
int sandbox_set_timeout(struct sandbox *s, int secs, bool extend_only, struct err *err);

int sandbox_pause(struct sandbox *s, struct err *err); /* streams are cut, processes stopped */
int sandbox_resume(struct sandbox *s, int secs, struct err *err);
#define SANDBOX_PAUSED_MAX 4 /* times --max-sandboxes: each keeps its memory */

/* What each process inside may use. */
struct limits sandbox_limits(const struct sandbox *s);

int sandbox_count(const struct engine *e, enum sandbox_state state);

/* Variables of a process inside, as "NAME=value\0" strings behind each other: PATH, HOME and so on,
 * the template's, the sandbox's, then extra's. 0, or -1 when out is full. */
int sandbox_environment(const struct sandbox *s, bool root, struct json_object *extra,
			struct buf *out);
/* The sandbox's own variables, for GET /envs. A new reference. */
struct json_object *sandbox_envs(const struct sandbox *s);

/* Measure now; fn gets the newest sample, or NULL when the sandbox ended first. */
void sandbox_measure(struct sandbox *s, void (*fn)(void *ctx, const struct usage_sample *u),
		     void *ctx);

#endif
