#include "e2b/remote_files.h"

#include <json-c/json.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/rpc.h"

static enum e2b_file_type type_of(const char *name)
{
	static const char *const names[] = {
		[E2B_FILE_REGULAR] = "FILE_TYPE_FILE",
		[E2B_FILE_DIRECTORY] = "FILE_TYPE_DIRECTORY",
		[E2B_FILE_SYMLINK] = "FILE_TYPE_SYMLINK",
	};
	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
		if (names[i] && !strcmp(name, names[i]))
			return (enum e2b_file_type)i;
	return E2B_FILE_OTHER;
}

static int give(struct json_object *o, e2b_entry_fn *fn, void *ctx, struct err *err)
{
	struct e2b_entry entry = { .name = json_text(o, "name"),
				   .path = json_text(o, "path"),
				   .link_target = json_text(o, "symlinkTarget"),
				   .type = type_of(json_text(o, "type")),
				   .size = json_integer(o, "size", 0),
				   .mode = (unsigned)json_integer(o, "mode", 0) & 07777,
				   .modified_us = json_time_us(o, "modifiedTime") };
	if (!entry.name || !entry.path)
		return err_set(err, ERR_INTERNAL, "a file without a name or a path");
	if (fn && fn(ctx, &entry) < 0)
		return err_set(err, ERR_ABANDONED, "given up by the caller");
	return 0;
}

/* A call whose answer is one entry. */
static int one(struct e2b *c, const struct e2b_sandbox *sb, const char *method, struct buf *body,
	       bool repeatable, e2b_entry_fn *fn, void *ctx, const struct e2b_wait *wait,
	       struct err *err)
{
	_cleanup_(json_drop) struct json_object *answer = NULL;
	if (rpc_call(c, sb, method, body, repeatable, &answer, wait, err) < 0)
		return -1;
	return fn ? give(json_member(answer, "entry"), fn, ctx, err) : 0;
}

int e2b_stat(struct e2b *c, const struct e2b_sandbox *sb, const char *path, e2b_entry_fn *fn,
	     void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct buf body = BUF(64u << 10);
	int rc = body_texts(&body, "path", path, NULL, NULL);
	if (rc)
		rc = err_set(err, ERR_INVALID, "the path is too long");
	else
		rc = one(c, sb, RPC_FILESYSTEM "Stat", &body, true, fn, ctx, wait, err);
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}

int e2b_move(struct e2b *c, const struct e2b_sandbox *sb, const char *from, const char *to,
	     e2b_entry_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct buf body = BUF(64u << 10);
	int rc = body_texts(&body, "source", from, "destination", to);
	if (rc)
		rc = err_set(err, ERR_INVALID, "the path is too long");
	else
		rc = one(c, sb, RPC_FILESYSTEM "Move", &body, false, fn, ctx, wait, err);
	/* A move that was sent and not answered may have happened. */
	if (rc && err && err->code == ERR_UNAVAILABLE && !c->last.status &&
	    c->last.why != E2B_WHY_NOT_SENT)
		err->code = ERR_UNKNOWN_OUTCOME;
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}

int e2b_remove(struct e2b *c, const struct e2b_sandbox *sb, const char *path,
	       const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct buf body = BUF(64u << 10);
	int rc = body_texts(&body, "path", path, NULL, NULL);
	if (rc)
		rc = err_set(err, ERR_INVALID, "the path is too long");
	else
		rc = one(c, sb, RPC_FILESYSTEM "Remove", &body, true, NULL, NULL, wait, err);
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}

int e2b_list_files(struct e2b *c, const struct e2b_sandbox *sb, const char *path, int depth,
		   e2b_entry_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	_cleanup_(json_drop) struct json_object *answer = NULL;
	struct buf body = BUF(64u << 10);
	int rc = body_list(&body, path, depth);
	if (rc)
		rc = err_set(err, ERR_INVALID, "the path is too long");
	else
		rc = rpc_call(c, sb, RPC_FILESYSTEM "ListDir", &body, true, &answer, wait, err);
	struct json_object *all = json_member(answer, "entries");
	size_t n = json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0;
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = give(json_object_array_get_idx(all, i), fn, ctx, err);
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}
