#include "engine/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/bash.h"
#include "engine/kernelproc.h"
#include "engine/rootfs.h"
#include "wire/jsontext.h"
#include "wire/lines.h"
#include "wire/utf8.h"

#define LINE_MAX     ((16u << 20) + 4096) /* the driver keeps its frames below 16 MiB */
#define COMMAND_MAX  (64u << 20)
#define READ_MAX     (64u << 10)
#define NODE_REST_MB 256

enum { CTL, OUT, ERR, ENDS };

/* One of the descriptors we read. */
struct end {
	struct kernel *k;
	int fd;
	struct watch watch;
	struct utf8 utf8; /* for OUT and ERR */
};

struct kernel {
	struct sandbox *s;
	enum kernel_language language;
	const struct kernel_events *events;
	void *ctx;
	struct kernelproc *proc;
	struct end ends[ENDS];
	struct lines lines;
	struct buf command;      /* not yet taken by the process */
	struct json_object *env; /* to be set once it is ready, or NULL */
	bool reading, ready, running, exiting;
	bool interrupted; /* since the last run began */
	int count;        /* runs so far; drivers count for themselves */
};

/* ---- from the process ---- */

static void say(struct kernel *k, const struct buf *line)
{
	if (line->len)
		k->events->line(k->ctx, line->p, line->len);
}

/* Bytes from the process's own stdout or stderr, as a line of the stream. */
static void say_output(struct end *e, const char *p, size_t n)
{
	struct kernel *k = e->k;
	struct buf text = BUF(8 * READ_MAX), line = BUF(16 * READ_MAX);
	char when[CLOCK_TEXT];
	utf8_feed(&e->utf8, p, n, &text);
	if (text.len && k->running) {
		clock_rfc3339(when, clock_real_us());
		when[strlen(when) - 1] = '\0'; /* "+00:00" in place of "Z" */
		buf_addf(&line,
			 "{\"type\": \"%s\", \"text\": ", e == &k->ends[OUT] ? "stdout" : "stderr");
		json_put_string(&line, text.p, text.len);
		buf_addf(&line, ", \"timestamp\": \"%s+00:00\"}", when);
		say(k, &line);
	}
	buf_free(&text);
	buf_free(&line);
}

/* One read; false when there is nothing more now. */
static bool read_output(struct end *e)
{
	char data[READ_MAX];
	ssize_t n = read(e->fd, data, sizeof data);
	if (n > 0) {
		say_output(e, data, (size_t)n);
		return true;
	}
	if (n == 0) {
		watch_del(&e->watch);
		close_fd(&e->fd);
	}
	return false;
}

/* What was written before the run's end is in the pipes by now, and no more than they hold. */
static void drain(struct kernel *k)
{
	for (int i = OUT; i <= ERR; i++)
		for (int round = 0; round < 4 && k->ends[i].fd >= 0 && read_output(&k->ends[i]);
		     round++)
			;
}

static void end_run(struct kernel *k)
{
	static const char end[] = "{\"type\": \"end_of_execution\"}";
	drain(k);
	k->events->line(k->ctx, end, sizeof end - 1);
	k->running = false;
	k->events->done(k->ctx);
}

static void send_env(struct kernel *k);

static void become_ready(struct kernel *k)
{
	k->ready = true;
	send_env(k);
	drain(k);
	k->events->spawned(k->ctx, 0);
	k->events->ready(k->ctx);
}

/* bash tells the exit status of each command; bash's kernel in Jupyter makes an error of it like
 * this. */
static void bash_status(struct kernel *k, const char *line)
{
	struct buf error = BUF(256);
	long status = strtol(line, NULL, 10);
	if (!k->ready) {
		become_ready(k);
		return;
	}
	if (!k->running)
		return;
	drain(k);
	if (status) {
		buf_addf(&error,
			 "{\"type\": \"error\", \"name\": \"\", \"value\": \"%ld\", \"traceback\": "
			 "\"\"}",
			 status);
		say(k, &error);
		buf_free(&error);
	}
	end_run(k);
}

static bool has_type(const char *line, const char *type)
{
	static const char head[] = "{\"type\": \"";
	size_t n = strlen(type);
	return !strncmp(line, head, sizeof head - 1) && !strncmp(line + sizeof head - 1, type, n) &&
	       line[sizeof head - 1 + n] == '"';
}

/* Code inside can write to the driver's socket as well as the driver. All it can reach by that is
 * its own client, and that with well-formed lines of known kinds only. */
static void driver_line(struct kernel *k, const char *line, size_t n)
{
	static const char *const passed[] = { "number_of_executions", "stdout", "stderr", "result",
					      "error" };
	if (!k->ready) {
		if (has_type(line, "ready"))
			become_ready(k);
		return;
	}
	if (!k->running)
		return;
	if (has_type(line, "end_of_execution")) {
		end_run(k);
		return;
	}
	for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
		if (has_type(line, passed[i]) && json_is_ascii_object(line, n)) {
			k->events->line(k->ctx, line, n);
			return;
		}
	}
}

static int on_line(void *ctx, const char *line, size_t n, struct err *err)
{
	struct kernel *k = ctx;
	(void)err;
	if (k->language == KERNEL_BASH)
		bash_status(k, line);
	else
		driver_line(k, line, n);
	return 0;
}

static void flush_command(struct kernel *k);

static void on_ctl(void *ctx, uint32_t events)
{
	struct end *e = ctx;
	struct kernel *k = e->k;
	char data[READ_MAX];
	if (events & EPOLLOUT)
		flush_command(k);
	/* A hang-up is reported also while we do not listen, again and again: then it is heard out.
	 */
	bool hung = (events & (EPOLLHUP | EPOLLERR)) != 0;
	if (!hung && (!(events & EPOLLIN) || !k->reading))
		return;
	ssize_t n = read(e->fd, data, sizeof data);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	struct err err;
	if (n > 0 && lines_feed(&k->lines, data, (size_t)n, on_line, k, &err) == 0)
		return;
	/* Closed, or a line without end: the process is of no use any more. */
	watch_del(&e->watch);
	k->events->died(k->ctx);
}

static void on_output(void *ctx, uint32_t events)
{
	(void)events;
	read_output(ctx);
}

/* ---- to the process ---- */

static void set_watches(struct kernel *k)
{
	uint32_t in = k->reading ? EPOLLIN : 0;
	watch_set(&k->ends[CTL].watch, in | (k->command.len ? EPOLLOUT : 0));
	watch_set(&k->ends[OUT].watch, in);
	watch_set(&k->ends[ERR].watch, in);
}

static void flush_command(struct kernel *k)
{
	size_t done = 0;
	while (done < k->command.len) {
		ssize_t n = send(k->ends[CTL].fd, k->command.p + done, k->command.len - done,
				 MSG_NOSIGNAL);
		if (n < 0)
			break; /* full: later; closed: reading will tell */
		done += (size_t)n;
	}
	buf_drop(&k->command, done);
	if (!k->command.len)
		buf_free(&k->command);
	set_watches(k);
}

static void send_env(struct kernel *k)
{
	if (!k->env || !k->ready)
		return;
	buf_addf(&k->command, "{\"op\":\"env\",\"env\":%s}\n",
		 json_object_to_json_string_ext(k->env, JSON_C_TO_STRING_PLAIN));
	json_object_put(k->env);
	k->env = NULL;
	flush_command(k);
}

void kernel_set_env(struct kernel *k, struct json_object *env)
{
	json_object_put(k->env);
	k->env = json_object_get(env);
	send_env(k);
}

static void put_request(struct kernel *k, const char *code, size_t n, struct json_object *env)
{
	struct buf *b = &k->command;
	/* Python may notice a signal only when the next request is there: the empty line says that
	 * it was for the run before. */
	if (k->interrupted)
		buf_adds(b, "\n");
	k->interrupted = false;
	buf_adds(b, "{\"op\":\"run\",\"code\":");
	json_put_string(b, code, n);
	if (env)
		buf_addf(b, ",\"env\":%s",
			 json_object_to_json_string_ext(env, JSON_C_TO_STRING_PLAIN));
	buf_adds(b, "}\n");
}

void kernel_run(struct kernel *k, const char *code, size_t n, struct json_object *env)
{
	k->running = true;
	k->count++;
	for (int i = OUT; i <= ERR; i++)
		k->ends[i].utf8 = (struct utf8){ 0 };
	if (k->language == KERNEL_BASH) {
		char line[80];
		int len = snprintf(line, sizeof line,
				   "{\"type\": \"number_of_executions\", \"execution_count\": %d}",
				   k->count);
		bash_put_command(&k->command, code, n, env);
		k->events->line(k->ctx, line, (size_t)len);
	} else {
		put_request(k, code, n, env);
	}
	flush_command(k);
}

void kernel_interrupt(struct kernel *k)
{
	k->interrupted = true;
	/* Node.js hears a signal only between two things that it does; SIGINT is for what it waits
	 * for.
	 */
	if (k->language == KERNEL_JAVASCRIPT) {
		buf_adds(&k->command, "{\"op\":\"interrupt\"}\n");
		flush_command(k);
	}
	kernelproc_signal(k->proc, SIGINT);
}

bool kernel_settled(const struct kernel *k)
{
	return kernelproc_settled(k->proc) && !k->exiting;
}

void kernel_read(struct kernel *k, bool on)
{
	if (k->reading == on)
		return;
	k->reading = on;
	set_watches(k);
}

/* ---- life ---- */

static void on_refused(void *ctx, int error)
{
	struct kernel *k = ctx;
	k->events->spawned(k->ctx, error);
}

static void on_signalled(void *ctx)
{
	struct kernel *k = ctx;
	/* Whoever waited to begin another run may do so now. */
	if (k->ready && !k->running)
		k->events->done(k->ctx);
}

#define ARGUMENTS_MAX 5
#define HEAP_TEXT     40

/* Node.js must collect before it meets the sandbox's limit, which ends it, and needs some memory
 * beside its heap. */
static void put_heap_limit(char out[HEAP_TEXT], int memory_mb)
{
	int heap = memory_mb > 2 * NODE_REST_MB ? memory_mb - NODE_REST_MB : memory_mb / 2;
	snprintf(out, HEAP_TEXT, "--max-old-space-size=%d", heap);
}

/* Its last words are still in the socket; a child of its own may hold that open for ever. */
static void on_ended(void *ctx)
{
	struct kernel *k = ctx;
	char data[READ_MAX];
	ssize_t n = 1;
	k->exiting = true;
	for (int round = 0; round < 64 && n > 0; round++) {
		n = read(k->ends[CTL].fd, data, sizeof data);
		if (n > 0 && lines_feed(&k->lines, data, (size_t)n, on_line, k, NULL) < 0)
			break;
	}
	drain(k);
	k->events->died(k->ctx);
}

static const struct kernelproc_events proc_events = { on_refused, on_signalled, on_ended };

static int open_ends(struct kernel *k, int theirs[ENDS])
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	k->ends[CTL].fd = pair[0];
	theirs[CTL] = pair[1];
	for (int i = OUT; i <= ERR; i++) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			return -1;
		k->ends[i].fd = pair[0];
		theirs[i] = pair[1];
	}
	for (int i = 0; i < ENDS; i++)
		if (fcntl(k->ends[i].fd, F_SETFL, O_NONBLOCK) < 0)
			return -1;
	return 0;
}

static int start(struct kernel *k, const char *cwd)
{
	char heap[HEAP_TEXT];
	const char *const arguments[][ARGUMENTS_MAX + 1] = {
		[KERNEL_PYTHON] = { "/usr/bin/python3", ROOTFS_DRIVER },
		[KERNEL_BASH] = { "/bin/bash", "--norc", "--noprofile", "--noediting", "-i" },
		[KERNEL_JAVASCRIPT] = { k->s->engine->node, heap, ROOTFS_DRIVER_JS },
	};
	int theirs[ENDS] = { -1, -1, -1 };
	int rc = open_ends(k, theirs);
	const struct kernelproc_spec spec = {
		.argv = arguments[k->language],
		.cwd = cwd,
		.forkable = k->language == KERNEL_PYTHON,
		/* bash reads its commands where it reads its script; what it runs has no input. */
		.reads_stdin = k->language == KERNEL_BASH,
		.control = theirs[CTL],
		.out = theirs[OUT],
		.err = theirs[ERR],
	};
	put_heap_limit(heap, k->s->config.template->memory_mb);
	if (rc == 0)
		k->proc = kernelproc_start(k->s, &spec, &proc_events, k);
	for (int i = 0; i < ENDS; i++)
		close_fd(&theirs[i]);
	return k->proc ? 0 : -1;
}

struct kernel *kernel_start(struct sandbox *s, enum kernel_language language, const char *cwd,
			    const struct kernel_events *events, void *ctx)
{
	struct kernel *k = calloc(1, sizeof *k);
	if (!k)
		return NULL;
	*k = (struct kernel){ .s = s,
			      .language = language,
			      .events = events,
			      .ctx = ctx,
			      .command = BUF(COMMAND_MAX) };
	lines_init(&k->lines, LINE_MAX);
	for (int i = 0; i < ENDS; i++)
		k->ends[i] = (struct end){ .k = k, .fd = -1 };
	if (start(k, cwd) < 0) {
		kernel_free(k);
		return NULL;
	}
	k->reading = true;
	for (int i = 0; i < ENDS; i++)
		watch_add(&k->ends[i].watch, s->engine->loop, k->ends[i].fd, EPOLLIN,
			  i == CTL ? on_ctl : on_output, &k->ends[i]);
	if (language == KERNEL_BASH) {
		/* No prompts, no history; the first status says that it listens. */
		buf_adds(&k->command,
			 "PS1= PS2= HISTFILE=; set +H +o history; printf '0\\n' >&3\n");
		flush_command(k);
	}
	return k;
}

void kernel_free(struct kernel *k)
{
	if (!k)
		return;
	kernelproc_free(k->proc);
	json_object_put(k->env);
	for (int i = 0; i < ENDS; i++) {
		watch_del(&k->ends[i].watch);
		close_fd(&k->ends[i].fd);
	}
	lines_free(&k->lines);
	buf_free(&k->command);
	free(k);
}

bool kernel_exited(struct kernel *k, uint32_t id)
{
	return k && kernelproc_exited(k->proc, id);
}
