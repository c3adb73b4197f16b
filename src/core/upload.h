/* An upload: the part `file` of a form, streamed into the sandbox. It is written beside its place
 * under a name of its own, its size is verified, and only then is it moved there: whoever looks
 * finds the old file or the new one, never a half, and what fails leaves nothing behind. A link of
 * the file's name is replaced, not followed. Memory stays flat whatever the size. */
#ifndef CORE_UPLOAD_H
#define CORE_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sha256.h"
#include "core/session.h"
#include "wire/path.h"

#define UPLOAD_IDLE_SECS 60

struct upload_request {
	const char *dir;          /* clean and absolute; it and its parents are made */
	const char *content_type; /* of the request; NULL: it has none */
	int64_t max_bytes;        /* of the file */
	/* The body of the request: how many bytes, 0 at its end, -1 when the client broke off, or
	 * E2B_PULL_LATER when nothing is there now. It must not call e2b. */
	ssize_t (*read)(void *ctx, char *p, size_t n);
	void *ctx;
	int fd;        /* readable when read has something again; -1: it is asked every second */
	int idle_secs; /* how long the client may be silent; 0 is UPLOAD_IDLE_SECS */
};

struct upload_report {
	char path[PATH_TEXT];    /* DIR/NAME */
	int64_t size;            /* counted here and seen by the sandbox */
	char sha256[SHA256_HEX]; /* of what the client sent */
	unsigned mode;           /* permission bits */
	int64_t modified_us;     /* CLOCK_REALTIME */
	bool sandbox_gone;       /* also set on -1: the provider does not know the sandbox */
};

struct upload;

/* Read the form up to its file, so that a bad one costs no sandbox. req must outlive the upload. */
int upload_new(struct upload **out, struct core *c, const struct upload_request *req,
	       struct err *err);
void upload_free(struct upload *u); /* NULL is fine */

/* Carry it into that running sandbox. There is no total deadline, but the client may be silent for
 * idle_secs only, and the provider for the configured provider_timeout. A lease protects the
 * sandbox meanwhile. *out is zero on -1, but for sandbox_gone, which must be looked at first,
 * whatever the code. Both:
 *
 * ERR_INVALID: no multipart/form-data, no boundary, broken, or ended before its closing boundary;
 * no part `file`, two of them, one without a file name, or a name that path_upload_name refuses ·
 * ERR_ABANDONED: read said -1 · ERR_TIMEOUT: the client was silent, or the provider · ERR_LIMIT:
 * more than max_bytes · ERR_NO_SPACE: the sandbox's disk is full · ERR_CONFLICT: a directory has
 * the file's name, a file is where a directory is needed, the file was taken away before it was in
 * its place, or the sandbox is not running (any more) · ERR_UNKNOWN_OUTCOME: it may be in its place
 * · else what the provider said. */
int upload_run(struct upload *u, const struct sandbox_row *row, struct upload_report *out,
	       struct err *err);

#endif
