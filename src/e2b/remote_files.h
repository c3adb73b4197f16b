/* Files inside a sandbox. Paths are envd's: absolute, or relative to the user's home. */
#ifndef E2B_REMOTE_FILES_H
#define E2B_REMOTE_FILES_H

#include <stdbool.h>
#include <sys/types.h>

#include "e2b/e2b.h"

struct buf;

enum e2b_file_type {
	E2B_FILE_OTHER, /* a broken link, a device */
	E2B_FILE_REGULAR,
	E2B_FILE_DIRECTORY,
	E2B_FILE_SYMLINK,
};

/* Of a link, type and mode are its target's. */
struct e2b_entry {
	const char *name, *path;
	const char *link_target; /* NULL when it is no link */
	enum e2b_file_type type;
	int64_t size;
	unsigned mode;       /* permission bits */
	int64_t modified_us; /* CLOCK_REALTIME */
};

/* The entry lives until it returns. -1 ends the call with ERR_ABANDONED. */
typedef int e2b_entry_fn(void *ctx, const struct e2b_entry *entry);

/* fn is called once, and may be NULL. */
int e2b_stat(struct e2b *c, const struct e2b_sandbox *sb, const char *path, e2b_entry_fn *fn,
	     void *ctx, const struct e2b_wait *wait, struct err *err);

/* depth 1 is the folder itself; links are not followed. ERR_INVALID when it is no folder. */
int e2b_list_files(struct e2b *c, const struct e2b_sandbox *sb, const char *path, int depth,
		   e2b_entry_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err);

/* Like rename(2), with the destination's parents made. fn may be NULL. */
int e2b_move(struct e2b *c, const struct e2b_sandbox *sb, const char *from, const char *to,
	     e2b_entry_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err);

/* With all that is in it; what is not there is success. */
int e2b_remove(struct e2b *c, const struct e2b_sandbox *sb, const char *path,
	       const struct e2b_wait *wait, struct err *err);

/* The bytes go to sink as they come; it may say E2B_LATER. */
int e2b_read(struct e2b *c, const struct e2b_sandbox *sb, const char *path, e2b_sink *sink,
	     void *ctx, const struct e2b_wait *wait, struct err *err);

/* Fill p with up to n bytes: how many, 0 at the end, -1 to give up, or E2B_PULL_LATER. */
#define E2B_PULL_LATER (-2)
typedef ssize_t e2b_pull(void *ctx, char *p, size_t n);

/* Parents are made, what is there is replaced. length -1 is "until pull says 0"; a pull that ends
 * before its length is ERR_ABANDONED. A write that fails leaves a part of the file. ERR_NO_SPACE
 * when the disk is full. */
int e2b_write(struct e2b *c, const struct e2b_sandbox *sb, const char *path, int64_t length,
	      e2b_pull *pull, void *ctx, const struct e2b_wait *wait, struct err *err);

/* Append a URL that reads (or writes) one file without any token until unix_expiry; 0 is for ever.
 * e2b_file_query gives the part from "/files?" on, for a host that routes by headers. */
int e2b_file_url(const struct e2b *c, const struct e2b_sandbox *sb, const char *path, bool write,
		 int64_t unix_expiry, struct buf *out, struct err *err);
int e2b_file_query(const struct e2b_sandbox *sb, const char *path, bool write, int64_t unix_expiry,
		   struct buf *out, struct err *err);

/* Whether the sandbox answers: GET /health of envd. ERR_NOT_FOUND with E2B_WHY_NO_SANDBOX when it
 * is gone. */
int e2b_alive(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_wait *wait,
	      struct err *err);

#endif
