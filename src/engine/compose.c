/* POST /files/compose: several files become one, inside the sandbox. */
#include "engine/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/packet.h"
#include "engine/surface.h"

#define BODY_MAX (1u << 20)

struct composing {
	struct req *req;
	char destination[PATH_TEXT];
};

static void answer_failure(struct req *r, int error, const char *payload, size_t n)
{
	size_t pos = 0;
	const char *text = agent_string(payload, n, &pos);
	char step = text ? *text : 0;
	const char *path = step ? text + 1 : "";
	if (!step) /* it did not come so far */
		answer_error(r, 500, "error composing files: %s", strerror(error));
	else if (step == AGENT_COMPOSE_REMOVE)
		answer_error(r, 500, "error removing source '%s': %s", path, strerror(error));
	else
		files_failed(r, error, path, step == AGENT_COMPOSE_WRITE);
}

static void on_composed(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct composing *c = ctx;
	close_fd(&fd);
	if (c->req && value == -ECONNRESET)
		req_cut(c->req);
	else if (c->req && value < 0)
		answer_failure(c->req, -value, payload, n);
	else if (c->req)
		answer_json(c->req, 200, files_entry(c->destination, NULL));
	free(c);
}

static int put_path(struct buf *strings, struct json_object *o, bool root, char out[PATH_TEXT],
		    struct err *err)
{
	const char *text = json_object_get_string(o), *home = surface_home(root);
	if (!json_object_is_type(o, json_type_string) || !*text ||
	    strlen(text) != (size_t)json_object_get_string_len(o))
		return err_set(err, ERR_INVALID, "every path must be a string, not empty, no NUL");
	if (path_resolve(out, text, home, home, err) < 0)
		return -1;
	if (buf_add(strings, out, strlen(out) + 1) < 0)
		return err_set(err, ERR_INVALID, "too many source paths");
	return 0;
}

/* The destination and the sources, resolved, as the agent wants them. */
static int read_paths(struct json_object *body, bool root, struct buf *strings,
		      char destination[PATH_TEXT], struct err *err)
{
	struct json_object *sources, *to;
	char path[PATH_TEXT];
	if (!json_object_object_get_ex(body, "destination", &to))
		return err_set(err, ERR_INVALID, "destination is required");
	if (!json_object_object_get_ex(body, "source_paths", &sources) ||
	    !json_object_is_type(sources, json_type_array) || !json_object_array_length(sources))
		return err_set(err, ERR_INVALID, "source_paths must be a list of paths, not empty");
	if (put_path(strings, to, root, destination, err) < 0)
		return -1;
	for (size_t i = 0; i < json_object_array_length(sources); i++)
		if (put_path(strings, json_object_array_get_idx(sources, i), root, path, err) < 0)
			return -1;
	return 0;
}

static void ask(struct sandbox *s, struct req *r, bool root, const struct buf *strings,
		const char *destination)
{
	struct agent_msg msg = { .op = AGENT_COMPOSE, .flags = root ? AGENT_AS_ROOT : 0 };
	struct composing *c = calloc(1, sizeof *c);
	if (c)
		memcpy(c->destination, destination, strlen(destination) + 1);
	if (!c || !agent_call(s->agent, msg, strings->p, strings->len, NULL, 0, on_composed, c)) {
		free(c);
		answer_error(r, 500, "too many calls to this sandbox");
		return;
	}
	req_hold(r, &c->req);
}

static void compose(struct sandbox *s, struct req *r, struct json_object *body)
{
	struct buf strings = BUF(PACKET_MAX - sizeof(struct agent_msg));
	char destination[PATH_TEXT];
	const char *user = NULL;
	struct err err;
	bool root;
	if (field_string(body, "username", &user, &err) < 0)
		answer_error(r, 400, "%s", err.text);
	else if (!surface_user(s, user, &root))
		answer_error(r, 401, "error looking up user '%.64s': user: unknown user %.64s",
			     user, user);
	else if (read_paths(body, root, &strings, destination, &err) < 0)
		answer_error(r, 400, "%s", err.text);
	else
		ask(s, r, root, &strings, destination);
	buf_free(&strings);
}

static void on_body(struct sandbox *s, struct req *r, const struct buf *text, void (*arg)(void))
{
	struct json_object *body = NULL;
	struct err err;
	(void)arg;
	if (field_root(&body, text->p ? text->p : "", text->len, &err) < 0)
		answer_error(r, 400, "%s", err.text);
	else
		compose(s, r, body);
	json_object_put(body);
}

void compose_route(struct sandbox *s, struct req *r)
{
	if (strcmp(req_method(r), "POST") != 0)
		answer_error(r, 405, "method not allowed");
	else
		surface_collect(s, r, BODY_MAX, on_body, NULL);
}
