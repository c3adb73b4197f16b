#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/handlers.h"
#include "api/sandbox.h"
#include "base/clock.h"
#include "core/upload.h"
#include "e2b/remote_files.h"
#include "wire/disposition.h"
#include "wire/httpfield.h"
#include "wire/path.h"
#include "wire/uri.h"

#define LINK_SECS  60          /* a handed-over download must begin within this */
#define FORM_BYTES (64u << 10) /* of a form around its file */

/* ---- paths and failures ---- */

/* ?path=, or the fallback when there is none. -1: the call has been answered. */
static int read_path(struct call *c, char out[PATH_TEXT], const char *fallback)
{
	char given[PATH_TEXT];
	struct err err = { 0 };
	int found = query_get(c->query, "path", given, sizeof given);
	if (found == 0 && !fallback)
		err_set(&err, ERR_INVALID, "the query parameter 'path' is missing");
	else if (found < 0)
		err_set(&err, ERR_INVALID, "'path' is too long, or wrongly encoded");
	else if (path_strict(out, found ? given : fallback, &err) == 0)
		return 0;
	answer_problem(c, BAD_PATH, "%s", err.text);
	return -1;
}

/* The provider names its own procedures, which tells a caller nothing. */
static void answer_bad_path(struct call *c, const struct err *err)
{
	snprintf(c->inner, sizeof c->inner, "%s", err->text);
	answer_problem(c, BAD_PATH, "%s",
		       err->remote ? "it is no directory, or a part of it is none" : err->text);
}

/* A call to the sandbox failed. True: the call has been answered. False: the sandbox was only
 * asleep and is there again, so that one more try is worth it. */
static bool answer_failure(struct call *c, struct sandbox_row *row, const struct err *err,
			   bool first)
{
	bool no_sandbox = e2b_last(c->w->core.e2b)->why == E2B_WHY_NO_SANDBOX;
	if (no_sandbox && call_lost(c, row))
		answer_problem(c, SANDBOX_NOT_FOUND, "it is gone; start a new one");
	else if (no_sandbox && first)
		return false;
	else if (err->code == ERR_NOT_FOUND && !no_sandbox)
		answer_problem(c, FILE_NOT_FOUND, "there is no such file or directory");
	else if (err->code == ERR_INVALID || err->code == ERR_CONFLICT)
		answer_bad_path(c, err);
	else
		answer_err(c, err);
	return true;
}

/* ---- upload ---- */

/* What has arrived; never waits. */
static ssize_t read_arrived(void *ctx, char *p, size_t n)
{
	struct web_req *web = ctx;
	struct pollfd fd = { .fd = web_fd(web), .events = POLLIN };
	if (!web_buffered(web) && poll(&fd, 1, 0) == 0)
		return E2B_PULL_LATER;
	return web_read(web, p, n);
}

static struct json_object *file_json(const char *path, int64_t size, bool directory, unsigned mode,
				     int64_t modified_us)
{
	struct json_object *o = json_object_new_object();
	char octal[8];
	snprintf(octal, sizeof octal, "%04o", mode & 07777u);
	json_object_object_add(o, "path", json_object_new_string(path));
	json_object_object_add(o, "size", json_object_new_int64(size));
	json_object_object_add(o, "is_directory", json_object_new_boolean(directory));
	json_object_object_add(o, "modified_at", json_time(modified_us));
	json_object_object_add(o, "mode", json_object_new_string(octal));
	return o;
}

static void answer_upload(struct call *c, const struct upload_report *file)
{
	struct json_object *o;
	if (c->route->dialect == DIALECT_B) {
		o = file_json(file->path, file->size, false, file->mode, file->modified_us);
	} else {
		o = json_object_new_object();
		json_object_object_add(o, "path", json_object_new_string(file->path));
		json_object_object_add(o, "size", json_object_new_int64(file->size));
	}
	json_object_object_add(o, "sha256", json_object_new_string(file->sha256));
	answer_json(c, 200, o);
}

static void answer_upload_lost(struct call *c, struct sandbox_row *row, const struct err *err)
{
	struct err ignored;
	bool lost;
	snprintf(c->inner, sizeof c->inner, "%s", err->text);
	session_check(&c->w->core, row, &lost, &ignored);
	answer_problem(c, PROVIDER_ERROR,
		       "the sandbox was lost during the upload; send the file again");
}

static void answer_upload_failure(struct call *c, const struct err *err)
{
	snprintf(c->inner, sizeof c->inner, "%s", err->text);
	if (err->code == ERR_LIMIT && !err->remote)
		answer_problem(c, TOO_LARGE, "a file may have %lld bytes",
			       (long long)c->w->settings->upload_max);
	else if (err->code == ERR_CONFLICT)
		answer_problem(c, CONFLICT, "%s", err->text);
	else if (err->code == ERR_TIMEOUT && !err->remote)
		answer_problem(c, BAD_REQUEST, "%s", err->text);
	else
		answer_err(c, err);
}

static bool acceptable(struct call *c)
{
	const char *length = web_param(c->web, "CONTENT_LENGTH");
	const char *type = web_param(c->web, "CONTENT_TYPE");
	if (!type || !http_type_is(type, "multipart/form-data")) {
		answer_problem(c, UNSUPPORTED_MEDIA_TYPE,
			       "send multipart/form-data with a part 'file'");
		return false;
	}
	/* Known before a byte of it is read, it need not be read. */
	if (length && strtoll(length, NULL, 10) - FORM_BYTES > c->w->settings->upload_max) {
		answer_problem(c, TOO_LARGE, "a file may have %lld bytes",
			       (long long)c->w->settings->upload_max);
		return false;
	}
	return true;
}

void op_upload(struct call *c)
{
	const struct session want = call_session(c);
	struct upload *u;
	struct sandbox_row row;
	struct upload_report file;
	struct err err = { 0 };
	char dir[PATH_TEXT];
	const bool a = c->route->dialect == DIALECT_A;
	if (!acceptable(c) || read_path(c, dir, a ? "/home/user/upload" : "/home/user") < 0)
		return;
	const struct upload_request req = { .dir = dir,
					    .content_type = web_param(c->web, "CONTENT_TYPE"),
					    .max_bytes = c->w->settings->upload_max,
					    .read = read_arrived,
					    .ctx = c->web,
					    .fd = web_fd(c->web) };
	if (upload_new(&u, &c->w->core, &req, &err) < 0) {
		answer_upload_failure(c, &err);
		return;
	}
	if (call_ensure_alive(c, &want, &row) == 0) {
		if (upload_run(u, &row, &file, &err) == 0)
			answer_upload(c, &file);
		else if (file.sandbox_gone)
			answer_upload_lost(c, &row, &err);
		else
			answer_upload_failure(c, &err);
	}
	upload_free(u);
}

/* ---- download ---- */

static int note_type(void *ctx, const struct e2b_entry *entry)
{
	*(enum e2b_file_type *)ctx = entry->type;
	return 0;
}

/* nginx moves the bytes: it is given the provider's address of the file, which carries a signature
 * that soon ends instead of a token. */
static void hand_over(struct call *c, const struct e2b_sandbox *sb, const char *path)
{
	struct buf url = BUF(64u << 10), to = BUF(64u << 10), name = BUF(4096);
	struct err err = { 0 };
	int64_t until = clock_real_us() / SECOND_US + LINK_SECS;
	int rc = e2b_file_url(c->w->core.e2b, sb, path, false, until, &url, &err);
	const char *host = rc == 0 ? strstr(url.p, "://") : NULL;
	const char *query = host ? strchr(host, '?') : NULL;
	rc = !query || disposition_attachment(&name, path_name(path)) < 0 ||
	     buf_addf(&to, "/_sandgate/download/%.*s/%.*s/%s/", (int)(host - url.p), url.p,
		      (int)strcspn(host + 3, "/"), host + 3, sb->id) < 0 ||
	     uri_encode(&to, name.p, name.len) < 0 || buf_adds(&to, query) < 0;
	if (rc) {
		snprintf(c->inner, sizeof c->inner, "no address: %.400s", err.text);
		answer_problem(c, INTERNAL, "%s", "");
	} else {
		web_header(c->web, "X-Accel-Redirect", to.p);
		answer_empty(c, 200);
	}
	buf_free(&url);
	buf_free(&to);
	buf_free(&name);
}

/* What nginx was answered when it asked for the file; 502 and 504 are its own words, too. */
static enum problem download_problem(int status)
{
	switch (status) {
	case 401:
	case 403:
		return PROVIDER_AUTH;
	case 429:
		return PROVIDER_QUOTA;
	case 502:
	case 503:
		return PROVIDER_UNAVAILABLE;
	case 504:
		return PROVIDER_TIMEOUT;
	default:
		return PROVIDER_ERROR;
	}
}

static void download(struct call *c, const struct e2b_sandbox *sb, enum e2b_file_type type,
		     const char *path)
{
	const char *failed = web_param(c->web, "SANDGATE_DOWNLOAD_STATUS");
	if (type == E2B_FILE_DIRECTORY) {
		answer_problem(c, BAD_PATH, "it is a directory; name a file");
	} else if (type != E2B_FILE_REGULAR) {
		answer_problem(c, BAD_PATH, "it is no regular file");
	} else if (failed) {
		/* nginx has tried, and sandbox and file are there. */
		snprintf(c->inner, sizeof c->inner, "nginx's download ended with %.16s", failed);
		answer_problem(c, download_problem((int)strtol(failed, NULL, 10)),
			       "the file could not be read");
	} else {
		hand_over(c, sb, path);
	}
}

void op_download(struct call *c)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	enum e2b_file_type type = E2B_FILE_OTHER;
	char path[PATH_TEXT];
	if (read_path(c, path, NULL) < 0 || call_existing(c, &row) < 0)
		return;
	for (bool first = true;; first = false) {
		struct err err = { 0 };
		session_address(&row, &sb);
		if (e2b_stat(c->w->core.e2b, &sb, path, note_type, &type, NULL, &err) == 0)
			break;
		if (answer_failure(c, &row, &err, first))
			return;
	}
	download(c, &sb, type, path);
}

/* ---- files ---- */

static int add_file(void *ctx, const struct e2b_entry *e)
{
	struct json_object *o =
		file_json(e->path, e->size, e->type == E2B_FILE_DIRECTORY, e->mode, e->modified_us);
	return json_object_array_add(ctx, o);
}

static int by_path(const void *a, const void *b)
{
	struct json_object *pa, *pb;
	json_object_object_get_ex(*(struct json_object *const *)a, "path", &pa);
	json_object_object_get_ex(*(struct json_object *const *)b, "path", &pb);
	return strcmp(json_object_get_string(pa), json_object_get_string(pb));
}

void op_files(struct call *c)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	char dir[PATH_TEXT];
	const bool a = c->route->dialect == DIALECT_A;
	if (read_path(c, dir, a ? "/" : "/home/user") < 0 || call_existing(c, &row) < 0)
		return;
	for (bool first = true;; first = false) {
		struct json_object *list = json_object_new_array();
		struct err err = { 0 };
		session_address(&row, &sb);
		if (e2b_list_files(c->w->core.e2b, &sb, dir, 1, add_file, list, NULL, &err) == 0) {
			json_object_array_sort(list, by_path);
			answer_json(c, 200, list);
			return;
		}
		json_object_put(list);
		if (answer_failure(c, &row, &err, first))
			return;
	}
}
