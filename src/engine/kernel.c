#include "engine/kernel.h"

#include <ctype.h>
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
#include "base/packet.h"
#include "engine/rootfs.h"
#include "wire/jsontext.h"
#include "wire/lines.h"
#include "wire/utf8.h"

#define LINE_MAX    ((16u << 20) + 4096) /* the driver keeps its frames below 16 MiB */
#define COMMAND_MAX (64u << 20)
#define READ_MAX    (64u << 10)

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
	uint32_t id; /* of its spawn call; 0 when it ended */
	uint32_t signal_call;
	struct end ends[ENDS];
	struct lines lines;
	struct buf command; /* not yet taken by the process */
	bool reading, ready, running, exiting;
	bool interrupted; /* since the last run began */
	int count;        /* runs so far; Python counts for itself */
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

/* bash tells the exit status of each command; bash's kernel in Jupyter makes an error of it like
 * this. */
static void bash_status(struct kernel *k, const char *line)
{
	struct buf error = BUF(256);
	long status = strtol(line, NULL, 10);
	if (!k->ready) {
		k->ready = true;
		drain(k);
		k->events->ready(k->ctx);
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
static void python_line(struct kernel *k, const char *line, size_t n)
{
	static const char *const passed[] = { "number_of_executions", "stdout", "stderr", "result",
					      "error" };
	if (!k->ready) {
		if (has_type(line, "ready")) {
			k->ready = true;
			k->events->ready(k->ctx);
		}
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
		python_line(k, line, n);
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

/* Text in bash's $'...' form: nothing in it can end the quote. */
static void put_quoted(struct buf *b, const char *p, size_t n)
{
	buf_adds(b, "$'");
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];
		if (c == '\\' || c == '\'')
			buf_addf(b, "\\%c", c);
		else if (c < ' ')
			buf_addf(b, "\\%03o", c);
		else
			buf_add(b, p + i, 1);
	}
	buf_adds(b, "'");
}

/* Other names can be in an environment, but bash cannot assign to them. */
static bool is_identifier(const char *name)
{
	return !isdigit((unsigned char)*name) &&
	       !name[strspn(name,
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")];
}

/* Whole lines to an interactive bash: an interrupt throws away the one that runs, never those
 * behind it. */
static void put_bash_command(struct kernel *k, const char *code, size_t n, struct json_object *env)
{
	struct buf *b = &k->command;
	if (env) {
		json_object_object_foreach(env, name, value)
		{
			if (!is_identifier(name))
				continue;
			buf_addf(b, "[ \"${%s+x}\" ] && __sg_%s=$%s; export %s=", name, name, name,
				 name);
			put_quoted(b, json_object_get_string(value),
				   strlen(json_object_get_string(value)));
			buf_adds(b, "\n");
		}
	}
	buf_adds(b, "eval ");
	put_quoted(b, code, n);
	buf_adds(b, " </dev/null\n__sg=$?\n");
	if (env) {
		json_object_object_foreach(env, name, value)
		{
			if (!is_identifier(name))
				continue;
			(void)value;
			buf_addf(b,
				 "if [ \"${__sg_%s+x}\" ]; then %s=$__sg_%s; unset __sg_%s; else "
				 "unset %s; fi\n",
				 name, name, name, name, name);
		}
	}
	buf_adds(b, "printf '%s\\n' \"$__sg\" >&3; (exit $__sg)\n");
}

static void put_python_command(struct kernel *k, const char *code, size_t n,
			       struct json_object *env)
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
		put_bash_command(k, code, n, env);
		k->events->line(k->ctx, line, (size_t)len);
	} else {
		put_python_command(k, code, n, env);
	}
	flush_command(k);
}

static void on_signalled(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct kernel *k = ctx;
	(void)value;
	(void)payload;
	(void)n;
	close_fd(&fd);
	k->signal_call = 0;
	/* Whoever waited to begin another run may do so now. */
	if (k->ready && !k->running)
		k->events->done(k->ctx);
}

void kernel_interrupt(struct kernel *k)
{
	struct agent_msg msg = {
		.op = AGENT_SIGNAL, .target = k->id, .value = SIGINT, .flags = AGENT_GROUP
	};
	k->interrupted = true;
	if (!k->signal_call)
		k->signal_call = agent_call(k->s->agent, msg, NULL, 0, NULL, 0, on_signalled, k);
}

bool kernel_settled(const struct kernel *k)
{
	return k->signal_call == 0 && !k->exiting;
}

void kernel_read(struct kernel *k, bool on)
{
	if (k->reading == on)
		return;
	k->reading = on;
	set_watches(k);
}

/* ---- life ---- */

static void on_spawned(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct kernel *k = ctx;
	(void)payload;
	(void)n;
	close_fd(&fd);
	k->events->spawned(k->ctx, value > 0 ? 0 : -value);
}

static int put_arguments(struct kernel *k, const char *cwd, struct buf *b, int *argc)
{
	static const char *const python[] = { "/usr/bin/python3", ROOTFS_DRIVER, NULL };
	static const char *const bash[] = { "/bin/bash",   "--norc", "--noprofile",
					    "--noediting", "-i",     NULL };
	int rc = buf_add(b, cwd, strlen(cwd) + 1);
	*argc = 0;
	for (const char *const *a = k->language == KERNEL_BASH ? bash : python; *a; a++, ++*argc)
		rc |= buf_add(b, *a, strlen(*a) + 1);
	return rc | sandbox_environment(k->s, false, NULL, b);
}

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

static int spawn(struct kernel *k, const char *cwd)
{
	struct buf strings = BUF(PACKET_MAX - sizeof(struct agent_msg));
	struct agent_msg msg = { .op = AGENT_SPAWN };
	_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int theirs[ENDS] = { -1, -1, -1 };
	int rc = open_ends(k, theirs);
	if (rc == 0)
		rc = put_arguments(k, cwd, &strings, &msg.value);
	/* bash reads its commands where it reads its script; what it runs has no input. */
	const int fds[] = { k->language == KERNEL_BASH ? theirs[CTL] : null, theirs[OUT],
			    theirs[ERR], theirs[CTL] };
	if (rc == 0)
		k->id = agent_call(k->s->agent, msg, strings.p, strings.len, fds, 4, on_spawned, k);
	for (int i = 0; i < ENDS; i++)
		close_fd(&theirs[i]);
	buf_free(&strings);
	return k->id ? 0 : -1;
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
	if (spawn(k, cwd) < 0) {
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
	struct agent_msg msg = {
		.op = AGENT_SIGNAL, .target = k->id, .value = SIGKILL, .flags = AGENT_GROUP
	};
	agent_forget(k->s->agent, k->id);
	agent_forget(k->s->agent, k->signal_call);
	if (k->id)
		agent_call(k->s->agent, msg, NULL, 0, NULL, 0, NULL, NULL);
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
	if (!k || k->id != id)
		return false;
	/* Its last words are still in the socket; a child of its own may hold that open for ever.
	 */
	char data[READ_MAX];
	ssize_t n = 1;
	k->exiting = true;
	for (int round = 0; round < 64 && n > 0; round++) {
		n = read(k->ends[CTL].fd, data, sizeof data);
		if (n > 0 && lines_feed(&k->lines, data, (size_t)n, on_line, k, NULL) < 0)
			break;
	}
	drain(k);
	agent_forget(k->s->agent, k->id);
	k->id = 0; /* nothing is left to be killed */
	k->events->died(k->ctx);
	return true;
}
