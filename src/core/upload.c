#include "core/upload.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "core/deadman.h"
#include "e2b/remote_files.h"
#include "store/leases.h"
#include "wire/multipart.h"

#define PIECE       (64u << 10) /* of the body, read and decoded at once */
#define HELD_MAX    128         /* what the decoder may have kept of earlier pieces: a boundary */
#define NONCE_LEN   12
#define FORM_MAX    (1 << 20) /* bytes of a form around its file */
#define LEASE_LEN   20
#define REMOVE_SECS 10 /* to clean up with, when nobody waits for the answer any more */
#define LOOK_MS     1000

/* Where the body is read. */
enum place { BEFORE, INSIDE, BEHIND };

struct upload {
	struct core *c;
	const struct upload_request *req;
	struct upload_report report;
	struct sandbox_row row; /* a copy, since its end at the provider moves */
	struct e2b_sandbox sb;
	struct e2b_wait wait;
	struct multipart *form;
	struct sha256 *hash;
	char *piece;          /* PIECE bytes of the body */
	struct buf ready;     /* bytes of the file that came with the last piece */
	size_t taken;         /* of ready, by the provider */
	int64_t body;         /* bytes of the whole form so far */
	enum place at;        /* before, inside or behind the part `file` */
	bool over;            /* there is nothing more to read: the end, or a reason in why */
	struct err why;       /* why the body is of no use */
	int64_t silent_since; /* 0: the client is not silent */
	int64_t renewed, looked;
	char lease[2 + LEASE_LEN + 1];
	char temporary[PATH_TEXT];
};

/* ---- the form ---- */

/* DIR/.NAME.sg-NONCE, with as much of the name as fits. */
static int set_paths(struct upload *u, const char *name, struct err *err)
{
	const char *dir = strcmp(u->req->dir, "/") != 0 ? u->req->dir : "";
	char nonce[NONCE_LEN + 1];
	size_t n = strlen(name), most = PATH_NAME - 1 - strlen("..sg-") - NONCE_LEN;
	if (n > most)
		for (n = most; ((unsigned char)name[n] & 0xc0) == 0x80;)
			n--;
	id_alnum(nonce, NONCE_LEN);
	int full = snprintf(u->report.path, PATH_TEXT, "%s/%s", dir, name),
	    aside = snprintf(u->temporary, PATH_TEXT, "%s/.%.*s.sg-%s", dir, (int)n, name, nonce);
	if (full >= PATH_TEXT || aside >= PATH_TEXT)
		return err_set(err, ERR_INVALID,
			       "the path of the folder is too long: nothing fits into it");
	return 0;
}

static int on_begin(void *ctx, const char *name, const char *filename, struct err *err)
{
	struct upload *u = ctx;
	char safe[PATH_NAME];
	if (strcmp(name, "file") != 0)
		return 0;
	if (u->at != BEFORE)
		return err_set(err, ERR_INVALID,
			       "one file per upload: the form has two parts named 'file'");
	if (!filename)
		return err_set(err, ERR_INVALID,
			       "the part 'file' has no file name: send it as a file, for instance "
			       "with curl -F file=@NAME");
	if (path_upload_name(safe, filename, err) < 0 || set_paths(u, safe, err) < 0)
		return -1;
	u->at = INSIDE;
	return 0;
}

static int on_data(void *ctx, const char *p, size_t n, struct err *err)
{
	struct upload *u = ctx;
	if (u->at != INSIDE)
		return 0;
	if ((int64_t)n > u->req->max_bytes - u->report.size)
		return err_set(err, ERR_LIMIT, "the file is larger than %lld bytes",
			       (long long)u->req->max_bytes);
	u->report.size += (int64_t)n;
	sha256_add(u->hash, p, n);
	return buf_add(&u->ready, p, n) ? err_set(err, ERR_INTERNAL, "no memory") : 0;
}

static int on_end(void *ctx, struct err *err)
{
	struct upload *u = ctx;
	(void)err;
	if (u->at == INSIDE)
		u->at = BEHIND;
	return 0;
}

static const struct multipart_ops ops = { on_begin, on_data, on_end };

/* ---- the body ---- */

static void check_end(struct upload *u)
{
	if (multipart_finish(u->form, &u->why) == 0 && u->at == BEFORE)
		err_set(&u->why, ERR_INVALID, "the form has no part named 'file'");
}

static void check_silence(struct upload *u)
{
	int64_t now = clock_mono_us();
	int secs = u->req->idle_secs ? u->req->idle_secs : UPLOAD_IDLE_SECS;
	if (!u->silent_since)
		u->silent_since = now;
	else if (now - u->silent_since >= secs * SECOND_US)
		err_set(&u->why, ERR_TIMEOUT, "the client sent nothing for %d seconds", secs);
}

/* Read and decode one piece. False: nothing is there now. */
static bool step(struct upload *u)
{
	ssize_t n = u->req->read(u->req->ctx, u->piece, PIECE);
	u->taken = u->ready.len = 0;
	if (n == E2B_PULL_LATER) {
		check_silence(u);
		u->over = u->why.code != ERR_NONE;
		return u->over;
	}
	u->silent_since = 0;
	u->body += n > 0 ? n : 0;
	if (u->body - FORM_MAX > u->req->max_bytes)
		err_set(&u->why, ERR_LIMIT, "the form is larger than its file may be");
	else if (n > 0)
		multipart_feed(u->form, u->piece, (size_t)n, &u->why);
	else if (n == 0)
		check_end(u);
	else
		err_set(&u->why, ERR_ABANDONED, "the client broke off the upload");
	u->over = n <= 0 || u->why.code != ERR_NONE;
	return true;
}

/* A sandbox that was stopped takes no more; the provider may not say so until the end. */
static void check_sandbox(struct upload *u)
{
	struct sandbox_fate now;
	struct err ignored;
	if (sandbox_fate(u->c->store, u->row.id, &now, &ignored) == 0 &&
	    now.status != SANDBOX_RUNNING && now.status != SANDBOX_PAUSED) {
		err_set(&u->why, ERR_CONFLICT, "the sandbox was stopped during the upload");
		u->over = true;
	}
}

/* The lease, and the provider's own timeout, which a long transfer would outlast. */
static void keep(struct upload *u)
{
	int64_t now = clock_mono_us();
	struct err ignored;
	if (now - u->looked >= SECOND_US) {
		u->looked = now;
		check_sandbox(u);
	}
	if (now - u->renewed < LEASE_RENEW_US)
		return;
	u->renewed = now;
	lease_renew(u->c->store, u->lease, u->row.id, &ignored);
	deadman_renew(u->c, &u->row, 0, &ignored);
}

/* Until the part begins there is nothing to tell the provider. */
static int find_file(struct upload *u, struct err *err)
{
	struct pollfd fd = { .fd = u->req->fd, .events = POLLIN };
	while (u->at == BEFORE && !u->over)
		if (!step(u))
			poll(&fd, fd.fd >= 0, LOOK_MS);
	if (u->why.code == ERR_NONE)
		return 0;
	*err = u->why;
	return -1;
}

/* ---- the transfer ---- */

static int64_t seconds_from_now(int64_t secs)
{
	return clock_mono_us() + secs * SECOND_US;
}

static int on_tick(void *ctx, unsigned ready)
{
	struct upload *u = ctx;
	/* pull asks for it again. Until then the provider may have to take something first, and a
	 * descriptor that is ready would make every wait a short one. */
	if (ready)
		u->wait.nfds = 0;
	keep(u);
	return 0;
}

/* How long the provider may be silent from now on. */
static void set_wait(struct upload *u)
{
	u->wait = (struct e2b_wait){
		.deadline_mono_us = seconds_from_now(u->c->settings->provider_timeout),
		.fds = { u->req->fd },
		.tick = on_tick,
		.ctx = u,
	};
}

/* What is there of the file without waiting, n bytes at most: it comes in small pieces, and is sent
 * in large ones. */
static size_t gather(struct upload *u, char *p, size_t n)
{
	size_t got = 0;
	do {
		size_t there = u->ready.len - u->taken;
		if (there > n - got)
			there = n - got;
		if (there)
			memcpy(p + got, u->ready.p + u->taken, there);
		u->taken += there;
		got += there;
	} while (got < n && !u->over && step(u));
	return got;
}

/* A body that turns out to be of no use is ended in an orderly way, too: the provider's answer then
 * says that it has closed the file. Had the connection been cut instead, the file could come into
 * being after it was removed. */
static ssize_t pull(void *ctx, char *p, size_t n)
{
	struct upload *u = ctx;
	set_wait(u);
	size_t got = gather(u, p, n);
	if (u->why.code != ERR_NONE) {
		u->wait.deadline_mono_us = seconds_from_now(REMOVE_SECS);
		return 0;
	}
	if (got || u->over)
		return (ssize_t)got;
	u->wait.nfds = u->req->fd >= 0;
	return E2B_PULL_LATER;
}

/* Every call to the provider overwrites what the one before has said. */
static void note_loss(struct upload *u)
{
	if (e2b_last(u->c->e2b)->why == E2B_WHY_NO_SANDBOX)
		u->report.sandbox_gone = true;
}

static int transfer(struct upload *u, struct err *err)
{
	set_wait(u);
	int rc = e2b_write(u->c->e2b, &u->sb, u->temporary, -1, pull, u, &u->wait, err);
	note_loss(u);
	if (u->why.code != ERR_NONE) {
		*err = u->why;
		return -1;
	}
	if (rc < 0 && err->code == ERR_INTERNAL && strstr(err->text, "path is a file"))
		err_set(err, ERR_CONFLICT,
			"a file is in the way: it, or what is above it, is no directory");
	if (rc < 0 && err->code == ERR_INTERNAL &&
	    (strcasestr(err->text, "read-only file system") ||
	     strcasestr(err->text, "permission denied")))
		err_set(err, ERR_CONFLICT, "the sandbox does not allow to write there");
	return rc;
}

/* ---- into its place ---- */

struct seen {
	enum e2b_file_type type;
	int64_t size, modified_us;
	unsigned mode;
};

static int on_entry(void *ctx, const struct e2b_entry *entry)
{
	struct seen *s = ctx;
	*s = (struct seen){ .type = entry->type,
			    .size = entry->size,
			    .modified_us = entry->modified_us,
			    .mode = entry->mode };
	return 0;
}

/* Only a sandbox that is gone is "not found" to the caller: nobody asked for the temporary file. */
static int not_placed(struct upload *u, struct err *err)
{
	note_loss(u);
	if (err->code == ERR_NOT_FOUND && !u->report.sandbox_gone)
		err_set(err, ERR_CONFLICT, "the file was taken away in the sandbox while it came");
	return -1;
}

/* The provider says no more than that a rename failed, so its most likely cause is looked for. */
static int not_moved(struct upload *u, struct err *err)
{
	struct seen there;
	struct err ignored;
	not_placed(u, err);
	if (err->code != ERR_INTERNAL)
		return -1;
	set_wait(u);
	if (e2b_stat(u->c->e2b, &u->sb, u->report.path, on_entry, &there, &u->wait, &ignored) ==
		    0 &&
	    there.type == E2B_FILE_DIRECTORY)
		err_set(err, ERR_CONFLICT, "'%s' is a directory there: choose another name",
			path_name(u->report.path));
	return -1;
}

static int settle(struct upload *u, struct err *err)
{
	struct e2b *e2b = u->c->e2b;
	struct seen seen;
	set_wait(u);
	if (e2b_stat(e2b, &u->sb, u->temporary, on_entry, &seen, &u->wait, err) < 0)
		return not_placed(u, err);
	if (seen.type != E2B_FILE_REGULAR || seen.size != u->report.size) {
		err_set(err, ERR_INTERNAL, "the sandbox has %lld bytes of %lld",
			(long long)seen.size, (long long)u->report.size);
		err->remote = true;
		return -1;
	}
	set_wait(u);
	if (e2b_move(e2b, &u->sb, u->temporary, u->report.path, on_entry, &seen, &u->wait, err) < 0)
		return not_moved(u, err);
	sha256_finish(u->hash, u->report.sha256);
	u->report.mode = seen.mode;
	u->report.modified_us = seen.modified_us;
	return 0;
}

/* Also when the caller is gone, and with a deadline of its own. */
static void remove_temporary(struct upload *u)
{
	const struct e2b_wait wait = { .deadline_mono_us = seconds_from_now(REMOVE_SECS) };
	struct err ignored;
	if (u->report.sandbox_gone)
		return;
	e2b_remove(u->c->e2b, &u->sb, u->temporary, &wait, &ignored);
	note_loss(u);
}

/* ---- the whole ---- */

int upload_new(struct upload **out, struct core *c, const struct upload_request *req,
	       struct err *err)
{
	const char *type = req->content_type ? req->content_type : "";
	struct upload *u = calloc(1, sizeof *u);
	if (!u)
		return err_set(err, ERR_INTERNAL, "no memory for an upload");
	*u = (struct upload){ .c = c, .req = req, .ready = BUF(PIECE + HELD_MAX) };
	u->piece = malloc(PIECE);
	u->hash = sha256_new();
	int rc = u->piece && u->hash ? multipart_new(&u->form, type, &ops, u, err)
				     : err_set(err, ERR_INTERNAL, "no memory for an upload");
	if (rc == 0)
		rc = find_file(u, err);
	if (rc == 0)
		*out = u;
	else
		upload_free(u);
	return rc;
}

void upload_free(struct upload *u)
{
	if (!u)
		return;
	multipart_free(u->form);
	sha256_free(u->hash);
	free(u->piece);
	buf_free(&u->ready);
	free(u);
}

static int take_lease(struct upload *u, struct err *err)
{
	memcpy(u->lease, "u_", 2);
	id_alnum(u->lease + 2, LEASE_LEN);
	u->renewed = u->looked = clock_mono_us();
	return lease_take(u->c->store, u->lease, u->row.id, err);
}

static int carry_out(struct upload *u, struct err *err)
{
	struct err ignored;
	deadman_renew(u->c, &u->row, 0, &ignored); /* if it is gone, the transfer will say so */
	int rc = transfer(u, err);
	if (rc == 0)
		rc = settle(u, err);
	if (rc < 0)
		remove_temporary(u);
	sandbox_touch(u->c->store, u->row.id, u->c->settings->idle_timeout * SECOND_US, &ignored);
	lease_release(u->c->store, u->lease, &ignored);
	return rc;
}

int upload_run(struct upload *u, const struct sandbox_row *row, struct upload_report *out,
	       struct err *err)
{
	struct err local;
	if (!err)
		err = &local;
	u->row = *row;
	session_address(&u->row, &u->sb);
	int rc = take_lease(u, err);
	if (rc == 0)
		rc = carry_out(u, err);
	*out = rc == 0 ? u->report
		       : (struct upload_report){ .sandbox_gone = u->report.sandbox_gone };
	return rc;
}
