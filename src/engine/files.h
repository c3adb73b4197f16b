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

/* Start the upload of r's body. */
void upload_start(struct sandbox *s, struct req *r, const struct file_call *call);

#endif
