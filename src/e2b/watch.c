#include "e2b/watch.h"

#include <json-c/json.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/rpc.h"

static enum e2b_change_type type_of(const char *name)
{
	static const char *const names[] = {
		[E2B_CREATED] = "EVENT_TYPE_CREATE", [E2B_WRITTEN] = "EVENT_TYPE_WRITE",
		[E2B_REMOVED] = "EVENT_TYPE_REMOVE", [E2B_RENAMED] = "EVENT_TYPE_RENAME",
		[E2B_CHMODDED] = "EVENT_TYPE_CHMOD",
	};
	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
		if (names[i] && !strcmp(name, names[i]))
			return (enum e2b_change_type)i;
	return E2B_CHANGE_OTHER;
}

int e2b_watch_create(struct e2b *c, const struct e2b_sandbox *sb, const char *path, bool recursive,
		     char id[E2B_WATCHER_ID], const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	_cleanup_(json_drop) struct json_object *answer = NULL;
	char text[E2B_WATCHER_ID] = "";
	struct buf body = BUF(64u << 10);
	int rc = body_watch(&body, path, recursive);
	if (rc)
		rc = err_set(err, ERR_INVALID, "the path is too long");
	else
		rc = rpc_call(c, sb, RPC_FILESYSTEM "CreateWatcher", &body, false, &answer, wait,
			      err);
	if (rc == 0 && (json_copy(answer, "watcherId", text, sizeof text) < 0 || !*text))
		rc = err_set(err, ERR_INTERNAL, "a watcher without an id");
	if (rc == 0)
		memcpy(id, text, sizeof text);
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}

static int give(struct json_object *o, e2b_change_fn *fn, void *ctx, struct err *err)
{
	const struct e2b_change change = { .type = type_of(json_text(o, "type")),
					   .name = json_text(o, "name") };
	if (!change.name)
		return err_set(err, ERR_INTERNAL, "a change without a name");
	return fn(ctx, &change) < 0 ? err_set(err, ERR_ABANDONED, "given up by the caller") : 0;
}

/* A call on one watcher. */
static int call_on(struct e2b *c, const struct e2b_sandbox *sb, const char *method, const char *id,
		   bool repeatable, struct json_object **answer, const struct e2b_wait *wait,
		   struct err *err)
{
	struct buf body = BUF(4096);
	int rc = body_texts(&body, "watcherId", id, NULL, NULL);
	if (rc)
		rc = err_set(err, ERR_INVALID, "the watcher's id is too long");
	else
		rc = rpc_call(c, sb, method, &body, repeatable, answer, wait, err);
	buf_free(&body);
	return rc;
}

int e2b_watch_events(struct e2b *c, const struct e2b_sandbox *sb, const char *id, e2b_change_fn *fn,
		     void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	_cleanup_(json_drop) struct json_object *answer = NULL;
	int rc = call_on(c, sb, RPC_FILESYSTEM "GetWatcherEvents", id, false, &answer, wait, err);
	struct json_object *all = json_member(answer, "events");
	size_t n = json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0;
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = give(json_object_array_get_idx(all, i), fn, ctx, err);
	return client_end(c, since, sb, rc, err);
}

int e2b_watch_remove(struct e2b *c, const struct e2b_sandbox *sb, const char *id,
		     const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	_cleanup_(json_drop) struct json_object *answer = NULL;
	struct err why = { 0 };
	int rc = call_on(c, sb, RPC_FILESYSTEM "RemoveWatcher", id, true, &answer, wait, &why);
	if (rc && why.code == ERR_NOT_FOUND && c->last.why != E2B_WHY_NO_SANDBOX)
		rc = 0;
	else if (rc && err)
		*err = why;
	return client_end(c, since, sb, rc, err);
}
