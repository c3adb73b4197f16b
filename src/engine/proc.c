#include "engine/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/packet.h"
#include "wire/base64.h"

#define READ_MAX    (32u << 10)
#define INPUT_MAX   (16u << 20)
#define PROCS_MAX   256 /* of one sandbox: each costs the engine three descriptors */
#define LINGER_SECS 30  /* a process that ended can still be connected to this long */

enum { OUT, ERR, PIPES };

/* A client that follows the process. */
struct sub {
	struct sub *next;
	struct proc *proc;
	struct req *req;
	struct timer keepalive;
	int64_t interval; /* microseconds */
};

struct proc {
	struct proc *next;
	struct sandbox *s;
	uint32_t id; /* of its spawn call */
	int pid;     /* inside; 0 until it runs */
	char *tag;
	struct json_object *config; /* cmd, args, envs, cwd */
	struct req *starter;        /* waits for the start */
	int keepalive_secs;
	struct pipe {
		struct proc *proc;
		int fd;
		struct watch watch;
	} pipes[PIPES];
	int in;
	struct watch in_watch;
	struct buf input; /* not yet taken by the program */
	bool in_closing;
	struct sub *subs;
	struct timer timer; /* the time limit; later, the lingering */
	int64_t timeout_ms;
	bool exited, muted, timed_out, finished;
	int status;
};

static void finish(struct proc *p);

/* ---- subscribers ---- */

static void free_sub(struct sub *u)
{
	for (struct sub **at = &u->proc->subs; *at; at = &(*at)->next) {
		if (*at == u) {
			*at = u->next;
			break;
		}
	}
	timer_stop(&u->keepalive);
	free(u);
}

static bool backed_up(const struct proc *p)
{
	for (const struct sub *u = p->subs; u; u = u->next)
		if (req_backlog(u->req) >= REQ_BACKLOG)
			return true;
	return false;
}

/* Read on exactly while every subscriber has room: the program then blocks in write, as on a real
 * pipe. */
static void set_reading(struct proc *p)
{
	uint32_t events = backed_up(p) ? 0 : EPOLLIN;
	for (int i = 0; i < PIPES; i++)
		watch_set(&p->pipes[i].watch, events);
}

static void on_sub_gone(void *ctx)
{
	struct sub *u = ctx;
	struct proc *p = u->proc;
	free_sub(u);
	set_reading(
		p); /* nobody is listening: what it prints is read and dropped, and it runs on */
}

static void on_sub_drained(void *ctx)
{
	struct sub *u = ctx;
	set_reading(u->proc);
}

static const struct req_owner sub_owner = { .gone = on_sub_gone, .drained = on_sub_drained };

static void on_keepalive(void *ctx)
{
	static const char event[] = "{\"event\":{\"keepalive\":{}}}";
	struct sub *u = ctx;
	timer_at(&u->keepalive, u->proc->s->engine->loop, clock_mono_us() + u->interval,
		 on_keepalive, u);
	connect_message(u->req, event, sizeof event - 1);
}

static void send_event(struct proc *p, const char *json, size_t n)
{
	for (struct sub *u = p->subs; u; u = u->next) {
		connect_message(u->req, json, n);
		timer_at(&u->keepalive, p->s->engine->loop, clock_mono_us() + u->interval,
			 on_keepalive, u);
	}
}

/* End every subscriber's stream: with an error, or with what `finish` has sent before. */
static void end_subs(struct proc *p, const char *deadline)
{
	while (p->subs) {
		struct req *r = p->subs->req;
		free_sub(p->subs);
		if (deadline)
			connect_fail(r, CONNECT_DEADLINE_EXCEEDED, deadline);
		else
			connect_end(r);
	}
}

/* As Go names them. */
static const char *signal_name(int sig)
{
	return sig == SIGKILL ? "killed" : sig == SIGTERM ? "terminated" : strsignal(sig);
}

static size_t end_event(const struct proc *p, char *out, size_t cap)
{
	int n, code = WEXITSTATUS(p->status);
	if (WIFSIGNALED(p->status)) {
		const char *name = signal_name(WTERMSIG(p->status));
		n = snprintf(out, cap,
			     "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: %s\","
			     "\"error\":\"signal: %s\"}}}",
			     name, name);
	} else if (code) {
		n = snprintf(out, cap,
			     "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":true,"
			     "\"status\":\"exit status %d\",\"error\":\"exit status %d\"}}}",
			     code, code, code);
	} else {
		n = snprintf(
			out, cap,
			"{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
	}
	return n < 0 ? 0 : (size_t)n;
}

void proc_subscribe(struct proc *p, struct req *r, int keepalive_secs)
{
	struct sub *u = calloc(1, sizeof *u);
	char event[256];
	if (!u) {
		connect_fail(r, CONNECT_RESOURCE_EXHAUSTED, "no memory");
		return;
	}
	*u = (struct sub){ .proc = p, .req = r, .interval = keepalive_secs * SECOND_US };
	connect_begin(r);
	int n = snprintf(event, sizeof event, "{\"event\":{\"start\":{\"pid\":%d}}}", p->pid);
	connect_message(r, event, (size_t)n);
	if (p->finished) {
		connect_message(r, event, end_event(p, event, sizeof event));
		connect_end(r);
		free(u);
		return;
	}
	u->next = p->subs;
	p->subs = u;
	req_own(r, &sub_owner, u);
	timer_at(&u->keepalive, p->s->engine->loop, clock_mono_us() + u->interval, on_keepalive, u);
}

/* ---- output and end ---- */

static void on_output(void *ctx, uint32_t events)
{
	struct pipe *pipe = ctx;
	struct proc *p = pipe->proc;
	char data[READ_MAX];
	(void)events;
	ssize_t n = read(pipe->fd, data, sizeof data);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		watch_del(&pipe->watch);
		close_fd(&pipe->fd);
		finish(p);
		return;
	}
	if (!p->subs || p->muted)
		return;
	struct buf json = BUF(2 * READ_MAX);
	buf_addf(&json, "{\"event\":{\"data\":{\"%s\":\"",
		 pipe == &p->pipes[OUT] ? "stdout" : "stderr");
	base64_put(&json, data, (size_t)n);
	buf_adds(&json, "\"}}}");
	send_event(p, json.p, json.len);
	buf_free(&json);
	set_reading(p);
}

static void free_proc(void *ctx)
{
	struct proc *p = ctx;
	agent_forget(p->s->agent, p->id);
	for (struct proc **at = &p->s->procs; *at; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			break;
		}
	}
	for (int i = 0; i < PIPES; i++) {
		watch_del(&p->pipes[i].watch);
		close_fd(&p->pipes[i].fd);
	}
	watch_del(&p->in_watch);
	close_fd(&p->in);
	timer_stop(&p->timer);
	buf_free(&p->input);
	json_object_put(p->config);
	free(p->tag);
	free(p);
}

/* Over when it has exited and its pipes are at their end; a grandchild may hold them open for long,
 * unless the process was killed by a client. */
static void finish(struct proc *p)
{
	char event[256];
	bool open = p->pipes[OUT].fd >= 0 || p->pipes[ERR].fd >= 0;
	if (p->finished || !p->exited || (open && !p->muted))
		return;
	p->finished = true;
	for (int i = 0; i < PIPES; i++) {
		watch_del(&p->pipes[i].watch);
		close_fd(&p->pipes[i].fd);
	}
	watch_del(&p->in_watch);
	close_fd(&p->in);
	if (!p->timed_out)
		send_event(p, event, end_event(p, event, sizeof event));
	end_subs(p, p->timed_out ? "context deadline exceeded" : NULL);
	timer_at(&p->timer, p->s->engine->loop, clock_mono_us() + LINGER_SECS * SECOND_US,
		 free_proc, p);
}

bool procs_exited(struct sandbox *s, uint32_t id, int status)
{
	for (struct proc *p = s->procs; p; p = p->next) {
		if (p->id != id || p->exited || !p->pid)
			continue;
		p->exited = true;
		p->status = status;
		finish(p);
		return true;
	}
	return false;
}

/* The limit bounds the process itself, not only the wait for it. */
static void on_time_limit(void *ctx)
{
	struct proc *p = ctx;
	if (p->s->state == SANDBOX_PAUSED) { /* its clock stands still */
		timer_at(&p->timer, p->s->engine->loop, clock_mono_us() + SECOND_US, on_time_limit,
			 p);
		return;
	}
	p->muted = p->timed_out = true;
	proc_signal(p, SIGKILL, NULL, NULL);
	finish(p); /* at once if only a grandchild holds the pipes; else when its exit is reported
		    */
}

/* ---- input ---- */

static void on_input_room(void *ctx, uint32_t events)
{
	struct proc *p = ctx;
	/* Nobody reads the other end any more; epoll would say so for ever. */
	if (events & (EPOLLERR | EPOLLHUP)) {
		p->input.len = 0;
		p->in_closing = true;
	}
	while (p->input.len) {
		ssize_t n = write(p->in, p->input.p, p->input.len);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* it closed its end: nobody will read this */
			p->input.len = 0;
			p->in_closing = true;
			break;
		}
		buf_drop(&p->input, (size_t)n);
	}
	watch_set(&p->in_watch, p->input.len ? EPOLLOUT : 0);
	if (p->in_closing && !p->input.len) {
		watch_del(&p->in_watch);
		close_fd(&p->in);
	}
}

int proc_input(struct proc *p, const char *data, size_t n, struct err *err)
{
	if (p->in < 0 || p->in_closing)
		return err_set(err, ERR_CONFLICT,
			       "error writing to stdin: stdin not enabled or closed");
	if (buf_add(&p->input, data, n) < 0)
		return err_set(err, ERR_LIMIT, "error writing to stdin: the process does not read");
	on_input_room(p, EPOLLOUT);
	return 0;
}

void proc_close_input(struct proc *p)
{
	p->in_closing = true;
	if (p->in >= 0)
		on_input_room(p, EPOLLOUT);
}

int proc_signal(struct proc *p, int sig, agent_fn *fn, void *ctx)
{
	if (fn && p->exited && !p->finished) {
		/* Only what it left behind holds its output open: that is not waited for any
		 * longer. */
		p->muted = true;
		finish(p);
		fn(ctx, 0, NULL, 0, -1);
		return 0;
	}
	struct agent_msg msg = { .op = AGENT_SIGNAL, .target = p->id, .value = sig };
	if (fn)
		p->muted = true;
	return agent_call(p->s->agent, msg, NULL, 0, NULL, 0, fn, ctx) ? 0 : -1;
}

/* ---- start ---- */

static void on_spawned(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct proc *p = ctx;
	struct req *r = p->starter;
	(void)payload;
	(void)n;
	close_fd(&fd);
	p->starter = NULL;
	if (value <= 0) {
		struct json_object *cwd;
		json_object_object_get_ex(p->config, "cwd", &cwd);
		if (r && value == -ECONNRESET)
			req_cut(r);
		else if (r && (value == -ENOENT || value == -ENOTDIR))
			answer_connect(r, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist",
				       json_object_get_string(cwd));
		else if (r)
			answer_connect(r, CONNECT_INVALID_ARGUMENT, "error starting process: %s",
				       strerror(-value));
		free_proc(p);
		return;
	}
	struct loop *loop = p->s->engine->loop;
	p->pid = value;
	if (r)
		proc_subscribe(p, r, p->keepalive_secs);
	if (p->timeout_ms > 0)
		timer_at(&p->timer, loop, clock_mono_us() + p->timeout_ms * 1000, on_time_limit, p);
	for (int i = 0; i < PIPES; i++)
		watch_add(&p->pipes[i].watch, loop, p->pipes[i].fd, EPOLLIN, on_output,
			  &p->pipes[i]);
	if (p->in >= 0)
		watch_add(&p->in_watch, loop, p->in, 0, on_input_room, p);
}

/* A pipe with our end non-blocking and theirs as a program expects it. */
static int make_pipe(int *ours, int *theirs, bool we_read)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		return -1;
	*ours = p[we_read ? 0 : 1];
	*theirs = p[we_read ? 1 : 0];
	return fcntl(*ours, F_SETFL, O_NONBLOCK);
}

static int put_string(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s) + 1);
}

static struct proc *new_proc(struct sandbox *s, const struct proc_spec *spec)
{
	struct proc *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	*p = (struct proc){ .next = s->procs,
			    .s = s,
			    .in = -1,
			    .input = BUF(INPUT_MAX),
			    .timeout_ms = spec->timeout_ms,
			    .keepalive_secs = spec->keepalive_secs,
			    .tag = spec->tag ? strdup(spec->tag) : NULL,
			    .config = json_object_new_object() };
	for (int i = 0; i < PIPES; i++)
		p->pipes[i] = (struct pipe){ .proc = p, .fd = -1 };
	json_object_object_add(p->config, "cmd", json_object_new_string(spec->cmd));
	if (spec->args && json_object_array_length(spec->args))
		json_object_object_add(p->config, "args", json_object_get(spec->args));
	if (spec->envs && json_object_object_length(spec->envs))
		json_object_object_add(p->config, "envs", json_object_get(spec->envs));
	json_object_object_add(p->config, "cwd", json_object_new_string(spec->cwd));
	s->procs = p;
	return p;
}

static int spawn(struct proc *p, const struct proc_spec *spec)
{
	struct buf strings = BUF(PACKET_MAX - sizeof(struct agent_msg));
	size_t nargs = spec->args ? json_object_array_length(spec->args) : 0;
	struct agent_msg msg = { .op = AGENT_SPAWN,
				 .value = (int)nargs + 1,
				 .flags = spec->root ? AGENT_AS_ROOT : 0 };
	_close_ int in = -1, out = -1, err = -1;
	int rc = 0;
	rc |= put_string(&strings, spec->cwd) | put_string(&strings, spec->cmd);
	for (size_t i = 0; i < nargs; i++)
		rc |= put_string(&strings,
				 json_object_get_string(json_object_array_get_idx(spec->args, i)));
	rc |= sandbox_environment(p->s, spec->root, spec->envs, &strings);
	if (rc < 0) {
		buf_free(&strings);
		return -E2BIG;
	}
	if (spec->stdin_open)
		rc |= make_pipe(&p->in, &in, false);
	else
		in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc |= make_pipe(&p->pipes[OUT].fd, &out, true) | make_pipe(&p->pipes[ERR].fd, &err, true);
	const int fds[] = { in, out, err };
	if (rc == 0 && in >= 0)
		p->id = agent_call(p->s->agent, msg, strings.p, strings.len, fds, 3, on_spawned, p);
	buf_free(&strings);
	return p->id ? 0 : -EMFILE;
}

static int running(const struct sandbox *s)
{
	int n = 0;
	for (const struct proc *p = s->procs; p; p = p->next)
		n += !p->finished;
	return n;
}

void proc_start(struct sandbox *s, const struct proc_spec *spec, struct req *r)
{
	if (running(s) >= PROCS_MAX) {
		if (r)
			answer_connect(r, CONNECT_RESOURCE_EXHAUSTED,
				       "error starting process: %d processes are running",
				       PROCS_MAX);
		return;
	}
	struct proc *p = new_proc(s, spec);
	int rc = p ? spawn(p, spec) : -ENOMEM;
	if (rc < 0) {
		if (p)
			free_proc(p);
		if (r)
			answer_connect(r, CONNECT_INVALID_ARGUMENT, "error starting process: %s",
				       strerror(-rc));
		return;
	}
	if (r)
		req_hold(r, &p->starter);
}

void proc_start_command(struct sandbox *s, const char *command)
{
	struct json_object *args = json_object_new_array();
	json_object_array_add(args, json_object_new_string("-l"));
	json_object_array_add(args, json_object_new_string("-c"));
	json_object_array_add(args, json_object_new_string(command));
	const struct proc_spec spec = { .cmd = "/bin/bash", .cwd = AGENT_HOME, .args = args };
	proc_start(s, &spec, NULL);
	json_object_put(args);
}

struct proc *proc_find(struct sandbox *s, int64_t pid, const char *tag)
{
	for (struct proc *p = s->procs; p; p = p->next)
		if (p->pid && (pid ? p->pid == pid : p->tag && tag && !strcmp(p->tag, tag)))
			return p;
	return NULL;
}

struct json_object *procs_list(struct sandbox *s)
{
	struct json_object *all = json_object_new_array();
	for (struct proc *p = s->procs; p; p = p->next) {
		if (!p->pid || p->exited)
			continue;
		struct json_object *o = json_object_new_object();
		json_object_object_add(o, "config", json_object_get(p->config));
		json_object_object_add(o, "pid", json_object_new_int(p->pid));
		if (p->tag)
			json_object_object_add(o, "tag", json_object_new_string(p->tag));
		json_object_array_add(all, o);
	}
	return all;
}

void procs_cut(struct sandbox *s)
{
	for (struct proc *p = s->procs; p; p = p->next) {
		if (p->starter)
			req_cut(p->starter);
		p->starter = NULL;
		while (p->subs) {
			struct req *r = p->subs->req;
			free_sub(p->subs);
			req_cut(r);
		}
		set_reading(p);
	}
}

void procs_end(struct sandbox *s)
{
	procs_cut(s);
	for (struct proc *p = s->procs; p; p = p->next)
		agent_forget(s->agent, p->id);
	while (s->procs)
		free_proc(s->procs);
}
