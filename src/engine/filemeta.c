/* Metadata of files between HTTP and the agent. */
#include "engine/files.h"

#include "wire/filemeta.h"

struct gathering {
	struct buf *pairs;
	struct err *err;
};

static int on_header(void *ctx, const char *key, const char *value)
{
	struct gathering *g = ctx;
	return filemeta_add(g->pairs, key, value, g->err);
}

int files_metadata(struct req *r, struct buf *pairs, struct err *err)
{
	struct gathering g = { pairs, err };
	return req_each_header(r, FILEMETA_HEADER, on_header, &g);
}

struct json_object *files_metadata_json(const struct buf *pairs)
{
	struct json_object *o = pairs->len ? json_object_new_object() : NULL;
	for (size_t pos = 0; pos < pairs->len;) {
		const char *key = agent_string(pairs->p, pairs->len, &pos);
		const char *value = agent_string(pairs->p, pairs->len, &pos);
		json_object_object_add(o, key, json_object_new_string(value));
	}
	return o;
}

struct json_object *files_entry(const char *path, struct json_object *metadata)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "name", json_object_new_string(path_name(path)));
	json_object_object_add(o, "type", json_object_new_string("file"));
	json_object_object_add(o, "path", json_object_new_string(path));
	if (metadata)
		json_object_object_add(o, "metadata", metadata);
	return o;
}
