#include "engine/kernelproc.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/packet.h"
#include "engine/zygote.h"

enum { CONTROL, OUT, ERR, FDS };

struct kernelproc {
	struct sandbox *s;
	const struct kernelproc_events *events;
	void *ctx;
	struct forked *forked; /* by the zygote, or */
	uint32_t id;           /* of the spawn call to the agent; 0 when it ended */
	uint32_t signal_call;
	/* Until it is there: the agent may have to do what the zygote could not. */
	int fds[FDS];
	struct buf strings; /* cwd, argv, environment */
	size_t cwd, argv;   /* bytes of the first two */
	int argc;
	bool reads_stdin;
};

/* Variables that a Python, its libraries or the C library look at when they start: a fork of a
 * Python that has started without them cannot make up for that. */
static const char *const early[] = { "PYTHON", "LD_",     "MALLOC_", "GLIBC_", "OPENBLAS_", "OMP_",
				     "GOTO_",  "MKL_",    "MPL",     "NPY_",   "LC_",       "LANG",
				     "HOME",   "IPYTHON", "XDG_",    "BLIS_" };

bool kernelproc_looks_early(struct json_object *envs)
{
	bool found = false;
	if (!envs)
		return false;
	json_object_object_foreach(envs, name, value)
	{
		(void)value;
		for (size_t i = 0; i < sizeof early / sizeof *early; i++)
			found |= !strncmp(name, early[i], strlen(early[i]));
	}
	return found;
}

/* A fork has all libraries in its heap from the start, and its limit counts them. */
#define FORK_MIN_MB 256

static bool needs_fresh_start(const struct sandbox *s)
{
	struct json_object *envs = sandbox_envs(s);
	bool found = kernelproc_looks_early(envs) || s->config.template->memory_mb < FORK_MIN_MB;
	json_object_put(envs);
	return found;
}

static void drop_start(struct kernelproc *p)
{
	for (int i = 0; i < FDS; i++)
		close_fd(&p->fds[i]);
	buf_free(&p->strings);
}

/* ---- by the agent ---- */

static void on_spawned(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct kernelproc *p = ctx;
	(void)payload;
	(void)n;
	close_fd(&fd);
	if (value <= 0)
		p->events->refused(p->ctx, -value);
}

static int spawn(struct kernelproc *p)
{
	const struct agent_msg msg = { .op = AGENT_SPAWN, .value = p->argc };
	_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const int fds[] = { p->reads_stdin ? p->fds[CONTROL] : null, p->fds[OUT], p->fds[ERR],
			    p->fds[CONTROL] };
	p->id = agent_call(p->s->agent, msg, p->strings.p, p->strings.len, fds, 4, on_spawned, p);
	drop_start(p);
	return p->id ? 0 : -1;
}

/* ---- by the zygote ---- */

static void on_made(void *ctx)
{
	drop_start(ctx);
}

static void on_failed(void *ctx)
{
	struct kernelproc *p = ctx;
	p->forked = NULL;
	if (spawn(p) < 0)
		p->events->ended(p->ctx);
}

static void on_ended(void *ctx)
{
	struct kernelproc *p = ctx;
	p->forked = NULL;
	p->events->ended(p->ctx);
}

static const struct forked_events forked_events = { on_made, on_failed, on_ended };

/* The same strings, without the arguments: those of the zygote are its own. */
static struct forked *order_fork(struct kernelproc *p)
{
	struct buf strings = BUF(PACKET_MAX);
	size_t skip = p->cwd + p->argv;
	struct forked *f = NULL;
	if (buf_add(&strings, p->strings.p, p->cwd) == 0 &&
	    buf_add(&strings, p->strings.p + skip, p->strings.len - skip) == 0)
		f = zygote_fork(p->s->engine->zygote, p->s, &strings, p->fds, &forked_events, p);
	buf_free(&strings);
	return f;
}

/* ---- either way ---- */

static int keep_start(struct kernelproc *p, const struct kernelproc_spec *spec)
{
	const int fds[FDS] = { spec->control, spec->out, spec->err };
	int rc = 0;
	for (int i = 0; i < FDS; i++) {
		p->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		rc |= p->fds[i] < 0;
	}
	rc |= buf_add(&p->strings, spec->cwd, strlen(spec->cwd) + 1);
	p->cwd = p->strings.len;
	for (const char *const *a = spec->argv; *a; a++, p->argc++)
		rc |= buf_add(&p->strings, *a, strlen(*a) + 1);
	p->argv = p->strings.len - p->cwd;
	return rc | sandbox_environment(p->s, false, NULL, &p->strings);
}

struct kernelproc *kernelproc_start(struct sandbox *s, const struct kernelproc_spec *spec,
				    const struct kernelproc_events *events, void *ctx)
{
	struct kernelproc *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	*p = (struct kernelproc){ .s = s,
				  .events = events,
				  .ctx = ctx,
				  .strings = BUF(PACKET_MAX - sizeof(struct zygote_msg)),
				  .reads_stdin = spec->reads_stdin };
	int rc = keep_start(p, spec);
	if (rc == 0 && spec->forkable && !needs_fresh_start(s))
		p->forked = order_fork(p);
	if (rc != 0 || (!p->forked && spawn(p) < 0)) {
		drop_start(p);
		free(p);
		return NULL;
	}
	return p;
}

static void on_signalled(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct kernelproc *p = ctx;
	(void)value;
	(void)payload;
	(void)n;
	close_fd(&fd);
	p->signal_call = 0;
	p->events->signalled(p->ctx);
}

void kernelproc_signal(struct kernelproc *p, int sig)
{
	const struct agent_msg msg = {
		.op = AGENT_SIGNAL, .target = p->id, .value = sig, .flags = AGENT_GROUP
	};
	if (p->forked)
		forked_signal(p->forked, sig);
	else if (p->id && !p->signal_call)
		p->signal_call = agent_call(p->s->agent, msg, NULL, 0, NULL, 0, on_signalled, p);
}

bool kernelproc_settled(const struct kernelproc *p)
{
	return p->signal_call == 0;
}

void kernelproc_free(struct kernelproc *p)
{
	if (!p)
		return;
	agent_forget(p->s->agent, p->id);
	agent_forget(p->s->agent, p->signal_call);
	p->signal_call = 0;
	kernelproc_signal(p, SIGKILL);
	agent_forget(p->s->agent, p->signal_call);
	forked_free(p->forked);
	drop_start(p);
	free(p);
}

bool kernelproc_exited(struct kernelproc *p, uint32_t id)
{
	if (!p || !p->id || p->id != id)
		return false;
	agent_forget(p->s->agent, p->id);
	p->id = 0; /* nothing is left to be killed */
	p->events->ended(p->ctx);
	return true;
}
