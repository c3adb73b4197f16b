#include "engine/watcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/packet.h"
#include "wire/jsontext.h"

#define WATCHERS_MAX 64         /* of one sandbox */
#define ANSWER_MAX   (8u << 20) /* bytes of events in one answer; the rest waits for the next */
#define JSON_GROWTH  12         /* an event in JSON against the same in the agent's words */
#define WATCHER_ID   22         /* "w" and 20 of [a-z0-9] */

struct watcher {
	struct watcher *next;
	struct sandbox *s;
	char id[WATCHER_ID];
	uint32_t key;  /* the agent's name for it */
	uint32_t call; /* the call that waits for the agent, or 0 */
	bool stream;
	struct req *req; /* waits for the watcher, or is its stream; NULL when there is none */
	struct timer keepalive, deadline;
	int64_t interval, timeout; /* microseconds; timeout 0: none */
	char path[PATH_TEXT];
};

/* A GetWatcherEvents under way. */
struct reading {
	struct req *req;
	struct sandbox *s;
	uint32_t key;
	struct buf json;
	char path[PATH_TEXT];
};

static void free_watcher(struct watcher *w)
{
	for (struct watcher **at = &w->s->watchers; *at; at = &(*at)->next) {
		if (*at == w) {
			*at = w->next;
			break;
		}
	}
	timer_stop(&w->keepalive);
	timer_stop(&w->deadline);
	agent_forget(w->s->agent, w->call);
	if (w->key)
		logs_add(w->s->log, LOGS_DEBUG, "Watcher ended", "path", w->path, NULL);
	/* One whose making is not answered yet will have that call's id. */
	struct agent_msg msg = { .op = AGENT_UNWATCH, .target = w->key ? w->key : w->call };
	if (msg.target)
		agent_call(w->s->agent, msg, NULL, 0, NULL, 0, NULL, NULL);
	free(w);
}

void watchers_end(struct sandbox *s)
{
	while (s->watchers) {
		struct req *r = s->watchers->req;
		free_watcher(s->watchers);
		if (r)
			req_cut(r);
	}
}

/* What the agent could not do, or could not go on doing. */
static void refuse(struct req *r, const char *path, int error)
{
	if (error == ECONNRESET)
		req_cut(r);
	else if (error == ENOENT)
		answer_connect(r, CONNECT_NOT_FOUND,
			       "path %s not found: stat %s: no such file or directory", path, path);
	else if (error == ENOTDIR)
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "path %s not a directory", path);
	else if (error == EOVERFLOW)
		answer_connect(r, CONNECT_RESOURCE_EXHAUSTED,
			       "events of %s were lost: too much changed at once", path);
	else if (error == ENOSPC)
		answer_connect(r, CONNECT_RESOURCE_EXHAUSTED,
			       "too many directories to watch below %s", path);
	else if (error == EMFILE || error == ENFILE || error == ENOMEM)
		answer_connect(r, CONNECT_RESOURCE_EXHAUSTED, "cannot watch %s: %s", path,
			       strerror(error));
	else
		answer_connect(r, CONNECT_INTERNAL, "error watching path %s: %s", path,
			       strerror(error));
}

/* ---- events ---- */

/* The next event of a payload as JSON behind json. 1, or 0 at the end, or -1 when it is not what an
 * agent says, or json is full. */
static int put_event(struct buf *json, const char *payload, size_t n, size_t *pos)
{
	static const char *const types[] = {
		[AGENT_CREATED] = "CREATE", [AGENT_WRITTEN] = "WRITE",  [AGENT_REMOVED] = "REMOVE",
		[AGENT_RENAMED] = "RENAME", [AGENT_CHMODDED] = "CHMOD",
	};
	if (*pos == n)
		return 0;
	const char *change = agent_string(payload, n, pos);
	const char *entry = agent_string(payload, n, pos);
	if (!change || !entry || *change < AGENT_CREATED || *change > AGENT_CHMODDED ||
	    !change[1] || strlen(change) > PATH_TEXT ||
	    (*entry && !json_is_ascii_object(entry, strlen(entry))))
		return -1;
	if (buf_adds(json, "{\"name\":") < 0 ||
	    json_put_string(json, change + 1, strlen(change + 1)) < 0 ||
	    buf_addf(json, ",\"type\":\"EVENT_TYPE_%s\"", types[(int)*change]) < 0 ||
	    (*entry && buf_addf(json, ",\"entry\":%s", entry) < 0))
		return -1;
	return buf_adds(json, "}") < 0 ? -1 : 1;
}

static uint32_t ask(struct sandbox *s, uint32_t key, bool wait, agent_fn *fn, void *ctx)
{
	struct agent_msg msg = { .op = AGENT_CHANGES,
				 .target = key,
				 .flags = wait ? AGENT_WAIT : 0 };
	return agent_call(s->agent, msg, NULL, 0, NULL, 0, fn, ctx);
}

/* ---- the stream ---- */

static void stream_fail(struct watcher *w, int error)
{
	struct req *r = w->req;
	char path[PATH_TEXT];
	memcpy(path, w->path, sizeof path);
	free_watcher(w);
	refuse(r, path, error);
}

static void on_keepalive(void *ctx)
{
	static const char event[] = "{\"keepalive\":{}}";
	struct watcher *w = ctx;
	timer_at(&w->keepalive, w->s->engine->loop, clock_mono_us() + w->interval, on_keepalive, w);
	connect_message(w->req, event, sizeof event - 1);
}

static void on_deadline(void *ctx)
{
	struct watcher *w = ctx;
	struct req *r = w->req;
	free_watcher(w);
	connect_fail(r, CONNECT_DEADLINE_EXCEEDED, "context deadline exceeded");
}

static int send_events(struct watcher *w, const char *payload, size_t n)
{
	struct buf json = BUF(JSON_GROWTH * PACKET_MAX);
	size_t pos = 0;
	int rc;
	for (;;) {
		json.len = 0;
		buf_adds(&json, "{\"filesystem\":");
		rc = put_event(&json, payload, n, &pos);
		if (rc <= 0)
			break;
		buf_adds(&json, "}");
		connect_message(w->req, json.p, json.len);
	}
	buf_free(&json);
	return rc;
}

static void on_changes(void *ctx, int value, const char *payload, size_t n, int fd);

/* Ask for more exactly while the client has room. */
static void go_on(void *ctx)
{
	struct watcher *w = ctx;
	if (w->call || req_backlog(w->req) >= REQ_BACKLOG)
		return;
	w->call = ask(w->s, w->key, true, on_changes, w);
	if (!w->call)
		stream_fail(w, ENOMEM);
}

static void on_changes(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct watcher *w = ctx;
	close_fd(&fd);
	w->call = 0;
	if (value < 0) {
		stream_fail(w, -value);
		return;
	}
	if (!n || send_events(w, payload, n) < 0) { /* "nothing" for ever would keep us busy */
		stream_fail(w, EPROTO);
		return;
	}
	timer_at(&w->keepalive, w->s->engine->loop, clock_mono_us() + w->interval, on_keepalive, w);
	go_on(w);
}

static void on_gone(void *ctx)
{
	free_watcher(ctx);
}

static void begin_stream(struct watcher *w)
{
	static const struct req_owner owner = { .gone = on_gone, .drained = go_on };
	static const char event[] = "{\"start\":{}}";
	struct loop *loop = w->s->engine->loop;
	req_own(w->req, &owner, w);
	connect_begin(w->req);
	connect_message(w->req, event, sizeof event - 1);
	timer_at(&w->keepalive, loop, clock_mono_us() + w->interval, on_keepalive, w);
	if (w->timeout)
		timer_at(&w->deadline, loop, clock_mono_us() + w->timeout, on_deadline, w);
	go_on(w);
}

/* ---- making one ---- */

static void answer_id(struct watcher *w)
{
	char json[64];
	struct req *r = w->req;
	w->req = NULL;
	int n = snprintf(json, sizeof json, "{\"watcherId\":\"%s\"}", w->id);
	req_reply(r, 200, "application/json", json, (size_t)n);
}

static void on_watching(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct watcher *w = ctx;
	(void)payload;
	(void)n;
	close_fd(&fd);
	if (value >= 0) {
		w->key = w->call;
		logs_add(w->s->log, LOGS_DEBUG, "Watcher started", "path", w->path, NULL);
	}
	w->call = 0;
	if (value < 0 && w->req)
		stream_fail(w, -value);
	else if (!w->req) /* nobody is there to be told of it */
		free_watcher(w);
	else if (w->stream)
		begin_stream(w);
	else
		answer_id(w);
}

static size_t count(const struct sandbox *s)
{
	size_t n = 0;
	for (const struct watcher *w = s->watchers; w; w = w->next)
		n++;
	return n;
}

static void make(struct sandbox *s, struct req *r, struct json_object *body, bool root, bool stream)
{
	bool recursive = false, entries = false, network = false;
	int64_t timeout_ms = 0;
	char path[PATH_TEXT];
	struct err err;
	if (field_bool(body, "recursive", &recursive, &err) < 0 ||
	    field_bool(body, "includeEntry", &entries, &err) < 0 ||
	    field_bool(body, "allowNetworkMounts", &network, &err) < 0) { /* there are none */
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "%s", err.text);
		return;
	}
	if (rpc_path(r, body, "path", root, path) < 0 || rpc_timeout_ms(r, &timeout_ms) < 0)
		return;
	struct watcher *w = count(s) < WATCHERS_MAX ? calloc(1, sizeof *w) : NULL;
	if (w) {
		*w = (struct watcher){ .next = s->watchers,
				       .s = s,
				       .stream = stream,
				       .interval = rpc_keepalive_secs(r) * SECOND_US,
				       .timeout = timeout_ms * 1000 };
		memcpy(w->path, path, sizeof path);
		w->id[0] = 'w';
		id_alnum(w->id + 1, WATCHER_ID - 2);
		s->watchers = w;
		w->call = agent_call_path(s->agent, AGENT_WATCH,
					  (recursive ? AGENT_RECURSIVE : 0u) |
						  (entries ? AGENT_ENTRIES : 0u),
					  0, path, on_watching, w);
	}
	if (w && w->call) {
		req_hold(r, &w->req);
		return;
	}
	if (w)
		free_watcher(w);
	answer_connect(r, CONNECT_RESOURCE_EXHAUSTED, "too many watchers: %d are at work",
		       WATCHERS_MAX);
}

void watcher_stream(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	if (connect_is_stream(r))
		make(s, r, body, root, true);
	else
		answer_error(r, 415, "WatchDir is a streaming call: application/connect+json");
}

void watcher_create(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	make(s, r, body, root, false);
}

/* ---- calls on one ---- */

/* The watcher that a request names, or NULL with the answer given. */
static struct watcher *named(struct sandbox *s, struct req *r, struct json_object *body)
{
	const char *id = "";
	struct err err;
	if (field_string(body, "watcherId", &id, &err) < 0) {
		answer_connect(r, CONNECT_INVALID_ARGUMENT, "%s", err.text);
		return NULL;
	}
	for (struct watcher *w = s->watchers; w; w = w->next)
		if (w->key && !w->stream && !strcmp(w->id, id))
			return w;
	answer_connect(r, CONNECT_NOT_FOUND, "watcher with id %.256s not found", id);
	return NULL;
}

static void free_reading(struct reading *g)
{
	buf_free(&g->json);
	free(g);
}

static int add_events(struct reading *g, const char *payload, size_t n)
{
	size_t pos = 0;
	int rc = 1;
	while (rc > 0 && pos < n) {
		buf_adds(&g->json, g->json.len ? "," : "{\"events\":[");
		rc = put_event(&g->json, payload, n, &pos);
	}
	return rc < 0 ? -1 : 0;
}

static void answer_events(struct reading *g)
{
	if (g->json.len)
		buf_adds(&g->json, "]}");
	else
		buf_adds(&g->json, "{}");
	req_reply(g->req, 200, "application/json", g->json.p, g->json.len);
}

static void on_events(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct reading *g = ctx;
	close_fd(&fd);
	if (!g->req) {
		free_reading(g);
		return;
	}
	bool ok = value >= 0 && add_events(g, payload, n) == 0;
	if (ok && value > 0 && n && g->json.len < ANSWER_MAX &&
	    ask(g->s, g->key, false, on_events, g))
		return;
	if (ok)
		answer_events(g);
	else
		refuse(g->req, g->path, value < 0 ? -value : EPROTO);
	free_reading(g);
}

void watcher_events(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	(void)root;
	struct watcher *w = named(s, r, body);
	if (!w)
		return;
	struct reading *g = calloc(1, sizeof *g);
	if (g) {
		*g = (struct reading){ .s = s,
				       .key = w->key,
				       .json = BUF(ANSWER_MAX + JSON_GROWTH * PACKET_MAX) };
		memcpy(g->path, w->path, sizeof g->path);
	}
	if (!g || !ask(s, w->key, false, on_events, g)) {
		free(g);
		answer_connect(r, CONNECT_RESOURCE_EXHAUSTED, "too many calls to this sandbox");
		return;
	}
	req_hold(r, &g->req);
}

void watcher_remove(struct sandbox *s, struct req *r, struct json_object *body, bool root)
{
	(void)root;
	struct watcher *w = named(s, r, body);
	if (!w)
		return;
	free_watcher(w);
	req_reply(r, 200, "application/json", "{}", 2);
}
