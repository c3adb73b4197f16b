/* envd's /files: what download and upload share. */
#ifndef ENGINE_FILES_H
#define ENGINE_FILES_H

#include "engine/answer.h"
#include "engine/sandbox.h"
#include "wire/path.h"

/* One request on a file, checked. */
struct file_call {
	struct engine *e;
	char id[SANDBOX_ID]; /* the sandbox may end while bytes flow: it is looked up again */
	bool root;
	bool has_path;
	char path[PATH_TEXT]; /* resolved; when has_path */
};

/* Answer an errno of the agent's. */
void files_failed(struct req *r, int error, const char *path, bool writing);

/* The metadata that r's headers bring, as pairs (wire/filemeta.h); and pairs as JSON, or NULL when
 * there are none. */
int files_metadata(struct req *r, struct buf *pairs, struct err *err);
struct json_object *files_metadata_json(const struct buf *pairs);

/* What an upload or a compose answers of a file: EntryInfo. metadata may be NULL, else its
 * reference is taken. */
struct json_object *files_entry(const char *path, struct json_object *metadata);

/* Start the upload of r's body. */
void upload_start(struct sandbox *s, struct req *r, const struct file_call *call);

/* POST /files/compose, with the access token checked. */
void compose_route(struct sandbox *s, struct req *r);

#endif
