#include "engine/proc_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/packet.h"
#include "wire/base64.h"

#define READ_MAX     (32u << 10)
#define PTY_READ_MAX (16u << 10)
#define PROCS_MAX    256 /* of one sandbox: each costs the engine three descriptors */
#define LINGER_SECS  30  /* a process that ended can still be connected to this long */

static void finish(struct proc *p);

/* ---- the sandbox's log ---- */

/* Its arguments stay out of the log: people write passwords there. */
static void log_start(const struct proc *p)
{
	struct json_object *cmd;
	json_object_object_get_ex(p->config, "cmd", &cmd);
	logs_add(p->s->log, LOGS_INFO, "Process started", "pid", LOGS_INT(p->pid), "cmd",
		 json_object_get_string(cmd), "user", p->root ? "root" : AGENT_USER, NULL);
}

static void log_end(const struct proc *p)
{
	int sig = WIFSIGNALED(p->status) ? WTERMSIG(p->status) : 0;
	logs_add(p->s->log, LOGS_INFO, "Process ended", "pid", LOGS_INT(p->pid),
		 sig ? "signal" : "exitCode",
		 sig ? proc_signal_name(sig) : LOGS_INT(WEXITSTATUS(p->status)), NULL);
}

/* ---- output and end ---- */

static void on_output(void *ctx, uint32_t events)
{
	struct pipe *pipe = ctx;
	struct proc *p = pipe->proc;
	char data[READ_MAX];
	const char *name = p->pty ? "pty" : pipe == &p->pipes[OUT] ? "stdout" : "stderr";
	(void)events;
	ssize_t n = read(pipe->fd, data, p->pty ? PTY_READ_MAX : READ_MAX);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* of a terminal that nobody has open any more: EIO */
		if (p->logged)
			logs_lines_end(&p->logged[pipe - p->pipes], p->s->log);
		watch_del(&pipe->watch);
		close_fd(&pipe->fd);
		finish(p);
		return;
	}
	if (p->logged)
		logs_lines_feed(&p->logged[pipe - p->pipes], p->s->log, data, (size_t)n);
	if (!p->subs || p->muted)
		return;
	struct buf json = BUF(2 * READ_MAX);
	buf_addf(&json, "{\"event\":{\"data\":{\"%s\":\"", name);
	base64_put(&json, data, (size_t)n);
	buf_adds(&json, "\"}}}");
	subs_send(p, json.p, json.len);
	buf_free(&json);
	subs_set_reading(p);
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
	input_close(p);
	timer_stop(&p->timer);
	buf_free(&p->input);
	json_object_put(p->config);
	free(p->logged);
	free(p->tag);
	free(p);
}

/* Over when it has exited and its pipes are at their end; a grandchild may hold them open for long,
 * unless the process was killed by a client. */
static void finish(struct proc *p)
{
	bool open = p->pipes[OUT].fd >= 0 || p->pipes[ERR].fd >= 0;
	if (p->finished || !p->exited || (open && !p->muted))
		return;
	p->finished = true;
	for (int i = 0; i < PIPES; i++) {
		watch_del(&p->pipes[i].watch);
		close_fd(&p->pipes[i].fd);
	}
	input_close(p);
	buf_free(&p->input);
	json_object_put(p->config);
	p->config = NULL;
	if (!p->timed_out)
		subs_send_end(p);
	subs_end(p, p->timed_out);
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
		log_end(p);
		finish(p);
		return true;
	}
	return false;
}

/* The limit bounds the process itself, not only the wait for it. */
static void on_time_limit(void *ctx)
{
	struct proc *p = ctx;
	p->muted = p->timed_out = true;
	proc_signal(p, SIGKILL, NULL, NULL);
	finish(p); /* at once if only a grandchild holds the pipes; else when its exit is reported
		    */
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

static void answer_failure(const struct proc *p, struct req *r, int error)
{
	struct json_object *cwd;
	json_object_object_get_ex(p->config, "cwd", &cwd);
	if (error == ECONNRESET)
		req_cut(r);
	else if (error == ENOENT || error == ENOTDIR)
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist",
			       json_object_get_string(cwd));
	else if (error == ENOSPC && p->pty)
		answer_connect(r, CONNECT_RESOURCE_EXHAUSTED,
			       "error starting process: too many terminals are open");
	else
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "error starting process: %s",
			       strerror(error));
}

static void on_spawned(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct proc *p = ctx;
	struct req *r = p->starter;
	_close_ int f = fd;
	(void)payload;
	(void)n;
	p->starter = NULL;
	if (value > 0 && p->pty && pty_take(p, &f) < 0) {
		proc_signal(p, SIGKILL, NULL, NULL); /* whatever it is, nobody can talk to it */
		value = -EIO;
	}
	if (value <= 0) {
		if (r)
			answer_failure(p, r, -value);
		free_proc(p);
		return;
	}
	struct loop *loop = p->s->engine->loop;
	p->pid = value;
	log_start(p);
	if (r)
		proc_subscribe(p, r, p->keepalive_secs, 0);
	if (p->timeout_ms > 0)
		timer_at(&p->timer, loop, clock_mono_us() + p->timeout_ms * 1000, on_time_limit, p);
	for (int i = 0; i < PIPES; i++)
		if (p->pipes[i].fd >= 0)
			watch_add(&p->pipes[i].watch, loop, p->pipes[i].fd, EPOLLIN, on_output,
				  &p->pipes[i]);
	if (p->in >= 0)
		input_begin(p, loop);
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
			    .pty = spec->pty,
			    .input = BUF(INPUT_MAX),
			    .timeout_ms = spec->timeout_ms,
			    .keepalive_secs = spec->keepalive_secs,
			    .root = spec->root,
			    .logged = spec->logged ? calloc(PIPES, sizeof *p->logged) : NULL,
			    .tag = spec->tag ? strdup(spec->tag) : NULL,
			    .config = json_object_new_object() };
	for (int i = 0; i < PIPES; i++)
		p->pipes[i] = (struct pipe){ .proc = p, .fd = -1 };
	if (p->logged) {
		p->logged[OUT].level = LOGS_INFO;
		p->logged[ERR].level = LOGS_ERROR;
	}
	json_object_object_add(p->config, "cmd", json_object_new_string(spec->cmd));
	if (spec->args && json_object_array_length(spec->args))
		json_object_object_add(p->config, "args", json_object_get(spec->args));
	if (spec->envs && json_object_object_length(spec->envs))
		json_object_object_add(p->config, "envs", json_object_get(spec->envs));
	json_object_object_add(p->config, "cwd", json_object_new_string(spec->cwd));
	s->procs = p;
	return p;
}

/* Pipes for its three streams; theirs are what the process gets. */
static int make_pipes(struct proc *p, bool stdin_open, int theirs[3])
{
	int rc = 0;
	if (stdin_open)
		rc |= make_pipe(&p->in, &theirs[0], false);
	else
		theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc |= make_pipe(&p->pipes[OUT].fd, &theirs[1], true);
	rc |= make_pipe(&p->pipes[ERR].fd, &theirs[2], true);
	return rc < 0 || theirs[0] < 0 ? -1 : 0;
}

static int put_strings(struct buf *strings, const struct proc *p, const struct proc_spec *spec,
		       size_t nargs)
{
	int rc = put_string(strings, spec->cwd) | put_string(strings, spec->cmd);
	for (size_t i = 0; i < nargs; i++)
		rc |= put_string(strings,
				 json_object_get_string(json_object_array_get_idx(spec->args, i)));
	return rc | sandbox_environment(p->s, spec->root, spec->envs, strings);
}

static int spawn(struct proc *p, const struct proc_spec *spec)
{
	struct buf strings = BUF(PACKET_MAX - sizeof(struct agent_msg));
	size_t nargs = spec->args ? json_object_array_length(spec->args) : 0;
	struct agent_msg msg = { .op = AGENT_SPAWN,
				 .value = (int)nargs + 1,
				 .flags = (spec->root ? AGENT_AS_ROOT : 0u) |
					  (spec->pty ? AGENT_PTY : 0u),
				 .target = spec->window };
	int theirs[3] = { -1, -1, -1 };
	int rc = put_strings(&strings, p, spec, nargs) < 0 ? -E2BIG : 0;
	if (rc == 0 && !spec->pty && make_pipes(p, spec->stdin_open, theirs) < 0)
		rc = -EMFILE;
	if (rc == 0)
		p->id = agent_call(p->s->agent, msg, strings.p, strings.len, theirs,
				   spec->pty ? 0 : 3, on_spawned, p);
	if (rc == 0 && !p->id)
		rc = -EMFILE;
	for (int i = 0; i < 3; i++)
		close_fd(&theirs[i]);
	buf_free(&strings);
	return rc;
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
	const struct proc_spec spec = {
		.cmd = "/bin/bash", .cwd = AGENT_HOME, .args = args, .logged = true
	};
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

/* While its sandbox is paused, a process's clock stands still. */
void procs_paused(struct sandbox *s)
{
	for (struct proc *p = s->procs; p; p = p->next) {
		if (p->finished || !p->timer.loop)
			continue;
		int64_t left = p->timer.at - clock_mono_us();
		p->time_left = left > 0 ? left : 1;
		timer_stop(&p->timer);
	}
}

void procs_resumed(struct sandbox *s)
{
	for (struct proc *p = s->procs; p; p = p->next) {
		if (p->time_left)
			timer_at(&p->timer, s->engine->loop, clock_mono_us() + p->time_left,
				 on_time_limit, p);
		p->time_left = 0;
	}
}

void procs_cut(struct sandbox *s)
{
	for (struct proc *p = s->procs; p; p = p->next) {
		if (p->starter)
			req_cut(p->starter);
		p->starter = NULL;
		subs_cut(p);
		subs_set_reading(p);
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
