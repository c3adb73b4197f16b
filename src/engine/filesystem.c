/* filesystem.Filesystem: the calls on files, carried out by the agent inside the sandbox. */
#include "engine/surface.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/rpc.h"
#include "engine/watcher.h"
#include "wire/path.h"

#define LIST_MAX (64 << 20)

/* A call that waits for the agent. */
struct call {
	struct req *req;
	enum agent_op op;
	char path[PATH_TEXT];
	void (*failed)(struct call *c, int error);
};

static void answer_entry(struct req *r, const char *entry, size_t n)
{
	struct buf json = BUF(n + 32);
	buf_adds(&json, "{\"entry\":");
	buf_add(&json, entry, n);
	buf_adds(&json, "}");
	req_reply(r, 200, "application/json", json.p, json.len);
	buf_free(&json);
}

/* A listing comes as a file in memory, and is sent from there. The agent made it, but it is checked
 * all the same. */
static void answer_listing(struct req *r, int *fd)
{
	struct stat st;
	if (*fd < 0 || fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > LIST_MAX)
		answer_connect(r, CONNECT_INTERNAL, "error reading directory");
	else
		req_reply_file(r, 200, "application/json", steal_fd(fd), 0, (uint64_t)st.st_size);
}

static void on_reply(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct call *c = ctx;
	_close_ int f = fd;
	struct req *r = c->req;
	if (r && value == -ECONNRESET)
		req_cut(r);
	else if (r && value < 0)
		c->failed(c, -value);
	else if (r && c->op == AGENT_LIST)
		answer_listing(r, &f);
	else if (r && c->op == AGENT_REMOVE)
		req_reply(r, 200, "application/json", "{}", 2);
	else if (r)
		answer_entry(r, payload, n);
	free(c);
}

static void failed_plainly(struct call *c, int error, const char *what)
{
	if (error == ENOSPC || error == EDQUOT)
		answer_connect(c->req, CONNECT_RESOURCE_EXHAUSTED,
			       "%s: not enough disk space available", what);
	else
		answer_connect(c->req, CONNECT_INTERNAL, "%s: %s", what, strerror(error));
}

static void stat_failed(struct call *c, int error)
{
	if (error == ENOENT || error == ENOTDIR)
		answer_connect(c->req, CONNECT_NOT_FOUND, "file not found: lstat %s: %s", c->path,
			       error == ENOENT ? "no such file or directory" : "not a directory");
	else
		failed_plainly(c, error, "error getting file info");
}

static void mkdir_failed(struct call *c, int error)
{
	if (error == EEXIST)
		answer_connect(c->req, CONNECT_ALREADY_EXISTS, "directory already exists: %s",
			       c->path);
	else if (error == ENOTEMPTY)
		answer_connect(c->req, CONNECT_INVALID_ARGUMENT,
			       "path already exists but it is not a directory: %s", c->path);
	else if (error == ENOTDIR)
		answer_connect(c->req, CONNECT_INTERNAL,
			       "error getting file info: stat %s: not a directory", c->path);
	else
		failed_plainly(c, error, "error creating directory");
}

static void move_failed(struct call *c, int error)
{
	if (error == ENOENT)
		answer_connect(c->req, CONNECT_NOT_FOUND,
			       "source file not found: lstat %s: no such file or directory",
			       c->path);
	else
		failed_plainly(c, error, "error renaming");
}

static void list_failed(struct call *c, int error)
{
	if (error == ENOENT)
		answer_connect(c->req, CONNECT_NOT_FOUND,
			       "path not found: lstat %s: no such file or directory", c->path);
	else if (error == ENOTDIR)
		answer_connect(c->req, CONNECT_INVALID_ARGUMENT, "path is not a directory: %s",
			       c->path);
	else if (error == ELOOP)
		answer_connect(c->req, CONNECT_FAILED_PRECONDITION,
			       "cyclic symlink or chain >255 at %s", c->path);
	else if (error == ENOBUFS)
		answer_connect(c->req, CONNECT_RESOURCE_EXHAUSTED,
			       "too many entries: use a smaller depth");
	else
		failed_plainly(c, error, "error reading directory");
}

static void remove_failed(struct call *c, int error)
{
	failed_plainly(c, error, "error removing file or directory");
}

/* Send op with one path, or two, to the agent; its answer becomes r's. */
static void ask(struct sandbox *s, struct req *r, enum agent_op op, bool root, int value,
		const char *path, const char *second, void (*failed)(struct call *, int))
{
	struct call *c = calloc(1, sizeof *c);
	struct buf strings = BUF(4 * PATH_TEXT);
	struct agent_msg msg = { .op = op, .value = value, .flags = root ? AGENT_AS_ROOT : 0 };
	buf_add(&strings, path, strlen(path) + 1);
	if (second)
		buf_add(&strings, second, strlen(second) + 1);
	if (c) {
		*c = (struct call){ .op = op, .failed = failed };
		snprintf(c->path, sizeof c->path, "%s", path);
	}
	if (!c || !agent_call(s->agent, msg, strings.p, strings.len, NULL, 0, on_reply, c)) {
		free(c);
		answer_connect(r, CONNECT_RESOURCE_EXHAUSTED, "too many calls to this sandbox");
	} else {
		req_hold(r, &c->req);
	}
	buf_free(&strings);
}

static void stat_it(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	char path[PATH_TEXT];
	if (rpc_path(r, body, "path", root, path) == 0)
		ask(s, r, AGENT_STAT, root, 0, path, NULL, stat_failed);
}

static void make_dir(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	char path[PATH_TEXT];
	if (rpc_path(r, body, "path", root, path) == 0)
		ask(s, r, AGENT_MKDIR, root, 0, path, NULL, mkdir_failed);
}

static void move_it(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	char from[PATH_TEXT], to[PATH_TEXT];
	if (rpc_path(r, body, "source", root, from) == 0 &&
	    rpc_path(r, body, "destination", root, to) == 0)
		ask(s, r, AGENT_MOVE, root, 0, from, to, move_failed);
}

static void list_dir(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	char path[PATH_TEXT];
	int64_t depth = 1;
	struct err err;
	if (field_int(body, "depth", 0, UINT32_MAX, &depth, &err) < 0)
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "%s", err.text);
	else if (rpc_path(r, body, "path", root, path) == 0)
		ask(s, r, AGENT_LIST, root, depth > 1000 ? 1000 : (int)depth, path, NULL,
		    list_failed);
}

static void remove_it(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	char path[PATH_TEXT];
	if (rpc_path(r, body, "path", root, path) == 0)
		ask(s, r, AGENT_REMOVE, root, 0, path, NULL, remove_failed);
}

void filesystem_route(struct sandbox *s, struct req *r, const char *method)
{
	static const struct rpc_method table[] = {
		{ "Stat", stat_it },
		{ "MakeDir", make_dir },
		{ "Move", move_it },
		{ "ListDir", list_dir },
		{ "Remove", remove_it },
		{ "WatchDir", watcher_stream },
		{ "CreateWatcher", watcher_create },
		{ "GetWatcherEvents", watcher_events },
		{ "RemoveWatcher", watcher_remove },
	};
	rpc_dispatch(s, r, table, sizeof table / sizeof *table, method);
}
