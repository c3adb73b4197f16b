#include "engine/context.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"

#define CONTEXTS_MAX   32
#define QUEUE_MAX      256
#define QUEUE_BYTES    (64u << 20) /* of code and variables that wait in one sandbox */
#define KEEPALIVE_SECS 5
#define INTERRUPT_US   (SECOND_US / 2)
#define INTERRUPTS_MAX 6   /* then a kernel that ignores SIGINT is replaced */
#define FAILURES_MAX   3   /* kernels in a row that never became ready */
#define START_SECS     120 /* for one to become ready, on a machine that starts many at once */

struct run {
	struct run *next;
	struct context *c;
	struct req *req; /* NULL when the client has gone */
	char *code;
	size_t n;
	struct json_object *env;
	size_t size; /* of code and env, as long as it waits */
	struct timer keepalive;
};

struct context {
	struct context *next;
	struct sandbox *s;
	char id[ID_UUID];
	enum kernel_language language;
	bool is_default;
	char *cwd;
	struct kernel *kernel;
	bool ready;
	struct timer starting; /* until it is ready, or given up */
	int64_t since;         /* when it became ready */
	int failures;
	struct run *runs; /* the first is the one that runs, if running */
	bool running;
	struct timer patience; /* until the next interrupt */
	int interrupts;        /* of the run under way */
	void (*created)(void *ctx, struct context *c, const char *why);
	void *created_ctx;
};

static const char *const language_names[] = {
	[KERNEL_PYTHON] = "python", [KERNEL_BASH] = "bash", [KERNEL_JAVASCRIPT] = "javascript"
};

static void start_kernel(struct context *c);

static int unavailable(const char *language, struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE, "language %s is not offered by this engine", language);
}

int context_language(const struct engine *e, const char *name, enum kernel_language *out,
		     struct err *err)
{
	static const char *const elsewhere[] = { "typescript", "ts", "r", "java", "deno" };
	char low[32];
	size_t n = 0;
	while (isspace((unsigned char)*name))
		name++;
	for (; name[n] && !isspace((unsigned char)name[n]) && n < sizeof low - 1; n++)
		low[n] = (char)tolower((unsigned char)name[n]);
	low[n] = '\0';
	if (!strcmp(low, "js"))
		snprintf(low, sizeof low, "%s", language_names[KERNEL_JAVASCRIPT]);
	if (!strcmp(low, language_names[KERNEL_JAVASCRIPT]) && !e->node)
		return unavailable(low, err);
	for (size_t i = 0; i < sizeof language_names / sizeof *language_names; i++) {
		if (!*low || !strcmp(low, language_names[i])) {
			*out = (enum kernel_language)i;
			return 0;
		}
	}
	for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
		if (!strcmp(low, elsewhere[i]))
			return unavailable(low, err);
	return err_set(err, ERR_NOT_FOUND, "Failed to create context: kernel spec %s not found",
		       low);
}

static void log_kernel(const struct context *c, enum logs_level level, const char *message)
{
	logs_add(c->s->log, level, message, "context", c->id, "language",
		 language_names[c->language], NULL);
}

/* ---- runs ---- */

static void drop_code(struct run *run)
{
	if (run->c)
		run->c->s->queued -= run->size;
	run->n = run->size = 0;
	free(run->code);
	run->code = NULL;
	json_object_put(run->env);
	run->env = NULL;
}

static void free_run(struct run *run)
{
	timer_stop(&run->keepalive);
	drop_code(run);
	free(run);
}

static void put_line(struct run *run, const char *line, size_t n)
{
	if (!run->req)
		return;
	req_write(run->req, line, n);
	req_write(run->req, "\n", 1);
}

static void on_keepalive(void *ctx)
{
	static const char line[] = "{\"type\": \"keepalive\"}";
	struct run *run = ctx;
	struct loop *loop = run->c->s->engine->loop;
	put_line(run, line, sizeof line - 1);
	timer_at(&run->keepalive, loop, clock_mono_us() + KEEPALIVE_SECS * SECOND_US, on_keepalive,
		 run);
}

/* Take the first run off and end its stream: as it is, or with an error of the server's own. */
static void finish_run(struct context *c, const char *name, const char *value)
{
	struct run *run = c->runs;
	char line[512];
	c->runs = run->next;
	c->running = false;
	timer_stop(&c->patience);
	if (name) {
		int n = snprintf(
			line, sizeof line,
			"{\"type\": \"error\", \"name\": \"%s\", \"value\": \"%s\", \"traceback\": "
			"\"\"}\n{\"type\": \"end_of_execution\"}",
			name, value);
		put_line(run, line, (size_t)n);
	}
	if (run->req)
		req_end(run->req);
	free_run(run);
}

/* The kernel died by itself: Jupyter starts another one, and this is what its clients hear. */
static void finish_crashed(struct context *c)
{
	finish_run(c, "ContextRestarting", "Context was restarted");
}

static void finish_unexpectedly(struct context *c)
{
	finish_run(c, "UnexpectedEndOfExecution",
		   "Connection to the execution was closed before the execution was finished");
}

static void pump(struct context *c)
{
	if (!c->ready || c->running || !c->runs || !kernel_settled(c->kernel))
		return;
	struct run *run = c->runs;
	c->running = true;
	kernel_read(c->kernel, true);
	kernel_run(c->kernel, run->code, run->n, run->env);
	drop_code(run);
}

static void replace_kernel(struct context *c)
{
	kernel_free(c->kernel);
	c->kernel = NULL;
	c->ready = false;
	timer_stop(&c->patience);
	timer_stop(&c->starting);
	start_kernel(c);
}

/* Python can miss a signal that comes just before it begins to wait, so it is sent again; outside a
 * run it is ignored. */
static void interrupt(void *ctx)
{
	struct context *c = ctx;
	if (c->s->state == SANDBOX_PAUSED) /* it cannot hear; contexts_resumed comes back to it */
		return;
	if (c->interrupts++ < INTERRUPTS_MAX) {
		kernel_interrupt(c->kernel);
		timer_at(&c->patience, c->s->engine->loop, clock_mono_us() + INTERRUPT_US,
			 interrupt, c);
		return;
	}
	log_line(LOG_INFO, "op=interrupt sandbox=%s error=\"ignored; the kernel is replaced\"",
		 c->s->id);
	log_kernel(c, LOGS_WARN, "Kernel ignored the interrupt and is replaced");
	if (c->running)
		finish_unexpectedly(c);
	replace_kernel(c);
}

static void on_client_gone(void *ctx)
{
	struct run *run = ctx;
	struct context *c = run->c;
	run->req = NULL;
	if (c->running && c->runs == run) {
		kernel_read(c->kernel, true); /* what it still prints is dropped */
		c->interrupts = 0;
		interrupt(c);
		return;
	}
	for (struct run **at = &c->runs; *at; at = &(*at)->next) {
		if (*at == run) {
			*at = run->next;
			break;
		}
	}
	free_run(run);
}

static void on_client_drained(void *ctx)
{
	struct run *run = ctx;
	struct context *c = run->c;
	if (c->running && c->runs == run)
		kernel_read(c->kernel, true);
}

static const struct req_owner run_owner = { .gone = on_client_gone, .drained = on_client_drained };

void context_run(struct context *c, struct req *r, const char *code, size_t n,
		 struct json_object *env)
{
	struct run *run = calloc(1, sizeof *run), **at = &c->runs;
	size_t waiting = 0, size = n + (env ? strlen(json_object_to_json_string(env)) : 0);
	for (; *at; at = &(*at)->next)
		waiting++;
	if (run)
		run->code = malloc(n + 1);
	if (!run || !run->code || waiting >= QUEUE_MAX || c->s->queued + size > QUEUE_BYTES) {
		static const char busy[] = "Too many executions are waiting in this context";
		if (run)
			free_run(run);
		req_reply(r, 429, "text/plain; charset=utf-8", busy, sizeof busy - 1);
		return;
	}
	run->c = c;
	run->req = r;
	run->n = n;
	run->size = size;
	c->s->queued += size;
	memcpy(run->code, code, n);
	run->env = json_object_get(env);
	*at = run;
	req_own(r, &run_owner, run);
	req_begin(r, 200, "application/json");
	timer_at(&run->keepalive, c->s->engine->loop, clock_mono_us() + KEEPALIVE_SECS * SECOND_US,
		 on_keepalive, run);
	if (!c->kernel)
		start_kernel(c);
	pump(c);
}

/* ---- what the kernel says ---- */

static void on_died(void *ctx);

static void on_spawned(void *ctx, int error)
{
	struct context *c = ctx;
	char why[256] = "";
	void (*created)(void *, struct context *, const char *) = c->created;
	c->created = NULL;
	if (error)
		snprintf(why, sizeof why, "Failed to create context: %s", strerror(error));
	if (created)
		created(c->created_ctx, error ? NULL : c, why);
	if (error && created)
		context_delete(c);
	else if (error)
		on_died(c);
}

static void on_ready(void *ctx)
{
	struct context *c = ctx;
	c->ready = true;
	timer_stop(&c->starting);
	c->since = clock_mono_us();
	c->failures = 0;
	log_kernel(c, LOGS_DEBUG, "Kernel ready");
	pump(c);
}

static void on_line(void *ctx, const char *line, size_t n)
{
	struct context *c = ctx;
	struct run *run = c->runs;
	if (!c->running || !run || !run->req)
		return;
	put_line(run, line, n);
	timer_at(&run->keepalive, c->s->engine->loop, clock_mono_us() + KEEPALIVE_SECS * SECOND_US,
		 on_keepalive, run);
	if (req_backlog(run->req) >= REQ_BACKLOG)
		kernel_read(c->kernel, false);
}

static void on_done(void *ctx)
{
	struct context *c = ctx;
	if (c->running)
		finish_run(c, NULL, NULL);
	kernel_read(c->kernel, true);
	pump(c);
}

static void on_died(void *ctx)
{
	struct context *c = ctx;
	/* Its end can be seen before the answer that it could not be started. */
	if (c->created) {
		on_spawned(c, ENOENT);
		return;
	}
	log_kernel(c, LOGS_ERROR, c->running ? "Kernel ended in a run" : "Kernel ended");
	if (c->running)
		finish_crashed(c);
	bool was_ready = c->ready;
	bool at_once = clock_mono_us() - c->since < SECOND_US;
	kernel_free(c->kernel);
	c->kernel = NULL;
	c->ready = false;
	timer_stop(&c->patience);
	timer_stop(&c->starting);
	if (!was_ready && ++c->failures >= FAILURES_MAX) {
		log_line(LOG_ERROR, "op=kernel sandbox=%s error=\"does not start\"", c->s->id);
		log_kernel(c, LOGS_ERROR, "Kernel does not start");
		while (c->runs)
			finish_unexpectedly(c);
		c->failures = 0; /* the next run tries again */
		return;
	}
	/* One that dies as soon as it stands is started again only when somebody needs it. */
	if (!at_once || !was_ready || c->runs)
		start_kernel(c);
}

static const struct kernel_events kernel_events = {
	.spawned = on_spawned,
	.ready = on_ready,
	.line = on_line,
	.done = on_done,
	.died = on_died,
};

static void on_late(void *ctx)
{
	struct context *c = ctx;
	if (c->s->state == SANDBOX_PAUSED)
		timer_at(&c->starting, c->s->engine->loop, clock_mono_us() + START_SECS * SECOND_US,
			 on_late, c);
	else
		on_spawned(c, ETIMEDOUT);
}

static void start_kernel(struct context *c)
{
	c->kernel = kernel_start(c->s, c->language, c->cwd, &kernel_events, c);
	if (c->kernel)
		timer_at(&c->starting, c->s->engine->loop, clock_mono_us() + START_SECS * SECOND_US,
			 on_late, c);
	while (!c->kernel && c->runs)
		finish_unexpectedly(c);
}

/* ---- contexts ---- */

static struct context *new_context(struct sandbox *s, enum kernel_language language,
				   const char *cwd)
{
	size_t count = 0;
	struct context **at = &s->contexts;
	for (; *at; at = &(*at)->next)
		count++;
	struct context *c = count < CONTEXTS_MAX ? calloc(1, sizeof *c) : NULL;
	if (!c)
		return NULL;
	*c = (struct context){ .s = s, .language = language, .cwd = strdup(cwd) };
	id_uuid(c->id);
	*at = c;
	return c;
}

static void free_context(struct context *c)
{
	for (struct context **at = &c->s->contexts; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			break;
		}
	}
	timer_stop(&c->patience);
	timer_stop(&c->starting);
	kernel_free(c->kernel);
	free(c->cwd);
	free(c);
}

void context_start_default(struct sandbox *s)
{
	context_default(s, KERNEL_PYTHON);
}

int context_create(struct sandbox *s, enum kernel_language language, const char *cwd,
		   void (*created)(void *, struct context *, const char *), void *ctx,
		   struct err *err)
{
	struct context *c = new_context(s, language, cwd);
	if (!c)
		return err_set(err, ERR_LIMIT, "Failed to create context: more than %d contexts",
			       CONTEXTS_MAX);
	c->created = created;
	c->created_ctx = ctx;
	start_kernel(c);
	if (!c->kernel) {
		free_context(c);
		return err_set(err, ERR_INTERNAL,
			       "Failed to create context: no process could be started");
	}
	return 0;
}

struct context *context_find(struct sandbox *s, const char *id)
{
	for (struct context *c = s->contexts; c; c = c->next)
		if (!strcmp(c->id, id) && !c->created)
			return c;
	return NULL;
}

struct context *context_default(struct sandbox *s, enum kernel_language language)
{
	for (struct context *c = s->contexts; c; c = c->next)
		if (c->is_default && c->language == language)
			return c;
	struct context *c = new_context(s, language, AGENT_HOME);
	if (!c)
		return NULL;
	c->is_default = true;
	start_kernel(c);
	return c;
}

struct json_object *context_json(const struct context *c)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "id", json_object_new_string(c->id));
	json_object_object_add(o, "language", json_object_new_string(language_names[c->language]));
	json_object_object_add(o, "cwd", json_object_new_string(c->cwd));
	return o;
}

struct json_object *contexts_json(const struct sandbox *s)
{
	struct json_object *all = json_object_new_array();
	for (const struct context *c = s->contexts; c; c = c->next)
		if (!c->created)
			json_object_array_add(all, context_json(c));
	return all;
}

void context_restart(struct context *c)
{
	log_kernel(c, LOGS_INFO, "Kernel restarted by a request");
	if (c->running)
		finish_unexpectedly(c);
	replace_kernel(c);
}

void context_delete(struct context *c)
{
	while (c->runs)
		finish_unexpectedly(c);
	free_context(c);
}

void contexts_set_env(struct sandbox *s, struct json_object *env)
{
	for (struct context *c = env ? s->contexts : NULL; c; c = c->next)
		if (c->kernel)
			kernel_set_env(c->kernel, env);
}

void contexts_exited(struct sandbox *s, uint32_t id)
{
	for (struct context *c = s->contexts; c; c = c->next)
		if (kernel_exited(c->kernel, id))
			return;
}

void contexts_cut(struct sandbox *s)
{
	for (struct context *c = s->contexts; c; c = c->next) {
		for (struct run *run = c->runs, *next; run; run = next) {
			next = run->next;
			if (!run->req)
				continue;
			req_cut(run->req);
			on_client_gone(run);
		}
	}
}

void contexts_resumed(struct sandbox *s)
{
	for (struct context *c = s->contexts; c; c = c->next) {
		if (!c->running || c->runs->req)
			continue;
		c->interrupts = 0;
		interrupt(c);
	}
}

void contexts_end(struct sandbox *s)
{
	while (s->contexts) {
		struct context *c = s->contexts;
		if (c->created)
			c->created(c->created_ctx, NULL,
				   "Failed to create context: the sandbox ended");
		while (c->runs) {
			struct run *run = c->runs;
			c->runs = run->next;
			if (run->req)
				req_cut(run->req);
			free_run(run);
		}
		free_context(c);
	}
}
