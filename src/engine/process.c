/* process.Process: the calls on processes, as envd answers them. */
#include "engine/surface.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/proc.h"
#include "engine/rpc.h"
#include "wire/base64.h"
#include "wire/path.h"

#define TAG_MAX   1024
#define INPUT_MAX (32u << 20)

static void invalid(struct req *r, const char *text)
{
	answer_connect(r, CONNECT_INVALID_ARGUMENT, "%s", text);
}

static int strings_only(struct json_object *process, struct json_object **args, struct err *err)
{
	if (!json_object_object_get_ex(process, "args", args) || !*args)
		return 0;
	if (!json_object_is_type(*args, json_type_array))
		return err_set(err, ERR_INVALID, "args must be a list of strings");
	for (size_t i = 0; i < json_object_array_length(*args); i++) {
		struct json_object *v = json_object_array_get_idx(*args, i);
		if (!json_object_is_type(v, json_type_string) ||
		    strlen(json_object_get_string(v)) != (size_t)json_object_get_string_len(v))
			return err_set(err, ERR_INVALID,
				       "args must be a list of strings without NUL");
	}
	return 0;
}

/* Read the size of a terminal's window. */
static int window_size(struct json_object *pty, uint32_t *out, struct err *err)
{
	struct json_object *size = NULL;
	int64_t cols = 0, rows = 0;
	if (field_object(pty, "size", &size, err) < 0 ||
	    (size && (field_int(size, "cols", 1, UINT16_MAX, &cols, err) < 0 ||
		      field_int(size, "rows", 1, UINT16_MAX, &rows, err) < 0)))
		return -1;
	if (!cols || !rows)
		return err_set(err, ERR_INVALID, "pty.size.cols and pty.size.rows are required");
	*out = AGENT_WINDOW(cols, rows);
	return 0;
}

static void start(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	struct proc_spec spec = { .root = root,
				  .stdin_open = true,
				  .keepalive_secs = rpc_keepalive_secs(r) };
	struct json_object *process = NULL, *pty = NULL;
	char cwd[PATH_TEXT];
	const char *dir = "";
	struct err err;
	if (!connect_is_stream(r)) {
		answer_error(r, 415, "Start is a streaming call: application/connect+json");
		return;
	}
	if (field_object(body, "process", &process, &err) < 0 ||
	    field_object(body, "pty", &pty, &err) < 0 ||
	    (pty && window_size(pty, &spec.window, &err) < 0) ||
	    (process && (field_string(process, "cmd", &spec.cmd, &err) < 0 ||
			 field_string(process, "cwd", &dir, &err) < 0 ||
			 field_strings(process, "envs", true, &spec.envs, &err) < 0 ||
			 strings_only(process, &spec.args, &err) < 0)) ||
	    field_string(body, "tag", &spec.tag, &err) < 0 ||
	    field_bool(body, "stdin", &spec.stdin_open, &err) < 0 ||
	    path_resolve(cwd, dir, surface_home(root), surface_home(root), &err) < 0) {
		invalid(r, err.text);
		return;
	}
	if (!spec.cmd || !*spec.cmd) {
		invalid(r, "process.cmd is required");
		return;
	}
	if (rpc_timeout_ms(r, &spec.timeout_ms) < 0)
		return;
	if (spec.tag && strlen(spec.tag) > TAG_MAX) {
		invalid(r, "tag is too long");
		return;
	}
	spec.pty = pty != NULL;
	spec.cwd = cwd;
	proc_start(s, &spec, r);
}

/* The process that a request's selector means, or NULL with the answer given. */
static struct proc *selected(struct sandbox *s, struct req *r, struct json_object *body)
{
	struct json_object *which = NULL;
	const char *tag = NULL;
	int64_t pid = 0;
	struct err err;
	if (field_object(body, "process", &which, &err) < 0 ||
	    (which && (field_int(which, "pid", 0, UINT32_MAX, &pid, &err) < 0 ||
		       field_string(which, "tag", &tag, &err) < 0))) {
		invalid(r, err.text);
		return NULL;
	}
	if (!pid && !tag) {
		invalid(r, "process selector is required: pid or tag");
		return NULL;
	}
	struct proc *p = proc_find(s, pid, tag);
	if (!p && pid)
		answer_connect(r, CONNECT_NOT_FOUND, "process with pid %lld not found",
			       (long long)pid);
	else if (!p)
		answer_connect(r, CONNECT_NOT_FOUND, "process with tag %s not found", tag);
	return p;
}

static void connect_proc(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	(void)root;
	if (!connect_is_stream(r)) {
		answer_error(r, 415, "Connect is a streaming call: application/connect+json");
		return;
	}
	int64_t timeout_ms = 0;
	struct proc *p = selected(s, r, body);
	if (p && rpc_timeout_ms(r, &timeout_ms) == 0)
		proc_subscribe(p, r, rpc_keepalive_secs(r), timeout_ms);
}

static void list(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	(void)body;
	(void)root;
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "processes", procs_list(s));
	answer_json(r, 200, o);
}

static void send_input(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	struct json_object *input = NULL;
	const char *text = NULL, *pty = NULL;
	struct err err;
	(void)root;
	if (field_object(body, "input", &input, &err) < 0 ||
	    (input && (field_string(input, "stdin", &text, &err) < 0 ||
		       field_string(input, "pty", &pty, &err) < 0))) {
		invalid(r, err.text);
		return;
	}
	struct proc *p = selected(s, r, body);
	if (!p)
		return;
	struct buf data = BUF(INPUT_MAX);
	const char *sent = pty ? pty : text;
	if (!sent || (pty && text) || base64_get(&data, sent, strlen(sent)) < 0)
		invalid(r, "input.stdin or input.pty must be there, in base64");
	else if (proc_input(p, pty != NULL, data.p, data.len, &err) < 0)
		answer_connect(
			r, err.code == ERR_LIMIT ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INTERNAL,
			"%s", err.text);
	else
		req_reply(r, 200, "application/json", "{}", 2);
	buf_free(&data);
}

static void close_stdin(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	struct err err;
	(void)root;
	struct proc *p = selected(s, r, body);
	if (!p)
		return;
	if (proc_close_input(p, &err) < 0)
		answer_connect(r, CONNECT_UNKNOWN, "error closing stdin: %s", err.text);
	else
		req_reply(r, 200, "application/json", "{}", 2);
}

static void update(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	struct json_object *pty = NULL;
	uint32_t window = 0;
	struct err err;
	(void)root;
	if (field_object(body, "pty", &pty, &err) < 0 ||
	    (pty && window_size(pty, &window, &err) < 0)) {
		invalid(r, err.text);
		return;
	}
	struct proc *p = selected(s, r, body);
	if (!p)
		return;
	if (pty && proc_resize(p, window, &err) < 0)
		answer_connect(r, CONNECT_INTERNAL, "error resizing tty: %s", err.text);
	else
		req_reply(r, 200, "application/json", "{}", 2);
}

static void on_signalled(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct req **r = ctx;
	(void)payload;
	(void)n;
	close_fd(&fd);
	if (*r && value == -ECONNRESET)
		req_cut(*r);
	else if (*r && value == -ESRCH)
		answer_connect(*r, CONNECT_NOT_FOUND, "process already finished");
	else if (*r && value < 0)
		answer_connect(*r, CONNECT_INTERNAL, "error sending signal: %s", strerror(-value));
	else if (*r)
		req_reply(*r, 200, "application/json", "{}", 2);
	free(r);
}

static void send_signal(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	struct json_object *which = NULL;
	int sig = 0;
	(void)root;
	if (json_object_object_get_ex(body, "signal", &which) && which) {
		const char *name = json_object_get_string(which);
		if (!strcmp(name, "SIGNAL_SIGKILL") || !strcmp(name, "9"))
			sig = SIGKILL;
		else if (!strcmp(name, "SIGNAL_SIGTERM") || !strcmp(name, "15"))
			sig = SIGTERM;
	}
	struct proc *p = selected(s, r, body);
	if (!p)
		return;
	if (!sig) {
		answer_connect(r, CONNECT_UNIMPLEMENTED,
			       "invalid signal: use SIGNAL_SIGKILL or SIGNAL_SIGTERM");
		return;
	}
	struct req **keep = malloc(sizeof *keep);
	if (keep)
		req_hold(r, keep);
	if (!keep || proc_signal(p, sig, on_signalled, keep) < 0) {
		answer_connect(r, CONNECT_INTERNAL, "error sending signal");
		free(keep);
	}
}

void process_route(struct sandbox *s, struct req *r, const char *method)
{
	static const struct rpc_method table[] = {
		{ "Start", start },
		{ "Connect", connect_proc },
		{ "List", list },
		{ "SendInput", send_input },
		{ "CloseStdin", close_stdin },
		{ "SendSignal", send_signal },
		{ "Update", update },
		{ "StreamInput", NULL },
	};
	rpc_dispatch(s, r, table, sizeof table / sizeof *table, method);
}
