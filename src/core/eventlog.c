#include "core/eventlog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define MAGIC 0x45474453u /* "SDGE" */

enum { HEAD, TAIL0, TAIL1, PARTS };

static const char *const suffixes[PARTS] = {
	[HEAD] = "head", [TAIL0] = "tail0", [TAIL1] = "tail1"
};

/* In front of every payload. */
struct record {
	uint32_t magic;
	uint32_t crc;  /* of the rest and of the payload */
	uint64_t seq;  /* from 1, without gaps where nothing was lost */
	uint64_t at;   /* bytes of payload before this one, lost or not */
	uint32_t type; /* enum event_type */
	uint32_t n;    /* bytes of payload */
};

static uint32_t checksum(const struct record *r, const void *payload)
{
	const size_t from = offsetof(struct record, seq);
	uLong crc = crc32(0, (const Bytef *)r + from, (uInt)(sizeof *r - from));
	return (uint32_t)(r->n ? crc32(crc, payload, (uInt)r->n) : crc);
}

static int part_path(char *out, size_t cap, const char *dir, const char *id, int part,
		     struct err *err)
{
	if (strchr(id, '/') ||
	    (size_t)snprintf(out, cap, "%s/%s.%s", dir, id, suffixes[part]) >= cap)
		return err_set(err, ERR_INVALID, "no such event log");
	return 0;
}

/* ---- writing ---- */

struct eventlog {
	char dir[3000], id[128];
	int fd[PARTS]; /* -1 until it is used */
	size_t size[PARTS];
	int part; /* the one that is written */
	uint64_t seq, at;
};

static int open_part(struct eventlog *l, int part, struct err *err)
{
	char path[4096];
	if (part_path(path, sizeof path, l->dir, l->id, part, err) < 0)
		return -1;
	l->fd[part] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	return l->fd[part] < 0 ? err_errno(err, "event log %s", l->id) : 0;
}

int eventlog_create(struct eventlog **out, const char *dir, const char *id, struct err *err)
{
	struct eventlog *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(err, ERR_INTERNAL, "no memory");
	for (int i = 0; i < PARTS; i++)
		l->fd[i] = -1;
	if ((size_t)snprintf(l->dir, sizeof l->dir, "%s", dir) >= sizeof l->dir ||
	    (size_t)snprintf(l->id, sizeof l->id, "%s", id) >= sizeof l->id) {
		eventlog_free(l);
		return err_set(err, ERR_INVALID, "the event log's path is too long");
	}
	if (open_part(l, HEAD, err) < 0) {
		eventlog_free(l);
		return -1;
	}
	*out = l;
	return 0;
}

void eventlog_free(struct eventlog *l)
{
	if (!l)
		return;
	for (int i = 0; i < PARTS; i++)
		close_fd(&l->fd[i]);
	free(l);
}

/* The part for a record of this size. The head once it is full stays as it is; the tails take
 * turns, and the one whose turn it is begins anew. */
static int choose_part(struct eventlog *l, size_t bytes, struct err *err)
{
	if (l->size[l->part] == 0 || l->size[l->part] + bytes <= EVENTLOG_PART)
		return 0;
	int next = l->part == TAIL0 ? TAIL1 : TAIL0;
	close_fd(&l->fd[next]);
	if (open_part(l, next, err) < 0)
		return -1;
	l->size[next] = 0;
	l->part = next;
	return 0;
}

static int append(struct eventlog *l, const struct record *r, const void *p, struct err *err)
{
	size_t bytes = sizeof *r + r->n;
	struct iovec iov[] = { { (void *)r, sizeof *r }, { (void *)p, r->n } };
	if (choose_part(l, bytes, err) < 0)
		return -1;
	ssize_t done = writev(l->fd[l->part], iov, 2);
	if (done == (ssize_t)bytes) {
		l->size[l->part] += bytes;
		return 0;
	}
	int saved = done < 0 ? errno : ENOSPC;
	/* Half a record would hide all that follow. */
	if (ftruncate(l->fd[l->part], (off_t)l->size[l->part]) < 0)
		saved = errno;
	errno = saved;
	return saved == ENOSPC || saved == EDQUOT
		       ? err_set(err, ERR_NO_SPACE, "no space for the event log")
		       : err_errno(err, "event log %s", l->id);
}

int eventlog_add(struct eventlog *l, enum event_type type, const void *p, size_t n, uint64_t *seq,
		 struct err *err)
{
	struct record r = {
		.magic = MAGIC, .seq = ++l->seq, .at = l->at, .type = type, .n = (uint32_t)n
	};
	l->at += n;
	if (seq)
		*seq = r.seq;
	if (n > EVENT_MAX)
		return err_set(err, ERR_LIMIT, "an event of more than %u bytes", EVENT_MAX);
	r.crc = checksum(&r, p);
	return append(l, &r, p, err);
}

int eventlog_remove(const char *dir, const char *id, struct err *err)
{
	char path[4096];
	int rc = 0;
	for (int i = 0; i < PARTS; i++) {
		if (part_path(path, sizeof path, dir, id, i, err) < 0)
			return -1;
		if (unlink(path) < 0 && errno != ENOENT)
			rc = err_errno(err, "%s", path);
	}
	return rc;
}

bool eventlog_is_part(const char *file, char *id, size_t size)
{
	const char *dot = strrchr(file, '.');
	if (!dot || strncmp(file, "x_", 2) != 0 || (size_t)(dot - file) >= size)
		return false;
	for (int i = 0; i < PARTS; i++) {
		if (strcmp(dot + 1, suffixes[i]) != 0)
			continue;
		snprintf(id, size, "%.*s", (int)(dot - file), file);
		return true;
	}
	return false;
}

/* ---- reading ---- */

struct eventreader {
	char dir[3000], id[128];
	int part;
	int fd; /* of that part */
	off_t offset;
	uint64_t next, at; /* the number and the place of what comes next */
	bool placed;       /* at is known: something was read, or everything is asked for */
	struct buf payload;
};

int eventreader_open(struct eventreader **out, const char *dir, const char *id, uint64_t after,
		     struct err *err)
{
	char path[4096];
	struct eventreader *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(err, ERR_INTERNAL, "no memory");
	*r = (struct eventreader){
		.fd = -1, .next = after + 1, .placed = after == 0, .payload = BUF(EVENT_MAX)
	};
	int rc = part_path(path, sizeof path, dir, id, HEAD, err);
	if (rc == 0 && ((size_t)snprintf(r->dir, sizeof r->dir, "%s", dir) >= sizeof r->dir ||
			(size_t)snprintf(r->id, sizeof r->id, "%s", id) >= sizeof r->id))
		rc = err_set(err, ERR_INVALID, "no such event log");
	if (rc == 0) {
		r->fd = open(path, O_RDONLY | O_CLOEXEC);
		if (r->fd < 0)
			rc = errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "no such event log")
					     : err_errno(err, "event log");
	}
	if (rc < 0) {
		eventreader_free(r);
		return -1;
	}
	*out = r;
	return 0;
}

void eventreader_free(struct eventreader *r)
{
	if (!r)
		return;
	close_fd(&r->fd);
	buf_free(&r->payload);
	free(r);
}

/* The whole record at an offset, checked; false at the end, or when the file was begun anew under
 * us. */
static bool read_record(int fd, off_t offset, struct record *h, struct buf *payload)
{
	if (pread(fd, h, sizeof *h, offset) != (ssize_t)sizeof *h || h->magic != MAGIC ||
	    h->n > EVENT_MAX)
		return false;
	payload->len = 0;
	char *p = buf_room(payload, h->n);
	if (!p || pread(fd, p, h->n, offset + (off_t)sizeof *h) != (ssize_t)h->n)
		return false;
	payload->len = h->n;
	payload->p[payload->len] = '\0';
	return checksum(h, payload->p) == h->crc;
}

/* The first number in a part; 0 when it has none. */
static uint64_t first_of(struct eventreader *r, int part, int *fd)
{
	char path[4096];
	struct record h;
	if (part_path(path, sizeof path, r->dir, r->id, part, NULL) < 0)
		return 0;
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	return *fd >= 0 && read_record(*fd, 0, &h, &r->payload) ? h.seq : 0;
}

/* Of two parts, by their first numbers, the one to look for `next` in: it lies in the last that
 * begins at or before it; if there is none, the earliest that is left is where reading goes on. */
static bool better(uint64_t a, uint64_t b, uint64_t next)
{
	if ((a <= next) != (b <= next))
		return a <= next;
	return a <= next ? a > b : a < b;
}

/* Nothing more here: go on where the next number is, or what is left of the log behind it. A tail
 * that begins before that number is the one that was just read, or an older one. */
static bool move_on(struct eventreader *r)
{
	uint64_t first[PARTS] = { 0 };
	int fds[PARTS] = { -1, -1, -1 }, best = HEAD;
	for (int i = TAIL0; i < PARTS; i++) {
		first[i] = first_of(r, i, &fds[i]);
		const bool ahead = first[i] && (r->part == HEAD || first[i] >= r->next);
		if (ahead && (best == HEAD || better(first[i], first[best], r->next)))
			best = i;
	}
	const bool moved = best != HEAD;
	if (moved) {
		close_fd(&r->fd);
		r->fd = steal_fd(&fds[best]);
		r->part = best;
		r->offset = 0;
	}
	for (int i = TAIL0; i < PARTS; i++)
		close_fd(&fds[i]);
	return moved;
}

static void tell_gap(struct eventreader *r, const struct record *h, struct event_gap *gap)
{
	*gap = (struct event_gap){ r->next, h->seq - 1, r->placed ? h->at - r->at : 0 };
	r->next = h->seq;
	r->at = h->at;
	r->placed = true;
}

int eventreader_next(struct eventreader *r, enum event_answer *answer, struct event *event,
		     struct event_gap *gap, struct err *err)
{
	struct record h;
	(void)err;
	for (int moves = 0; moves < 4;) {
		if (!read_record(r->fd, r->offset, &h, &r->payload)) {
			if (!move_on(r))
				break;
			moves++;
			continue;
		}
		if (h.seq < r->next) { /* read before, or not asked for */
			r->at = h.at + h.n;
			r->placed = true;
			r->offset += (off_t)(sizeof h + h.n);
			continue;
		}
		if (h.seq > r->next) {
			tell_gap(r, &h, gap);
			*answer = EVENT_LOST;
			return 0;
		}
		r->offset += (off_t)(sizeof h + h.n);
		r->next = h.seq + 1;
		r->at = h.at + h.n;
		r->placed = true;
		*event = (struct event){ h.seq, (enum event_type)h.type, r->payload.p, h.n };
		*answer = EVENT_NEXT;
		return 0;
	}
	*answer = EVENT_NONE;
	return 0;
}

bool eventreader_rest(const struct eventreader *r, uint64_t last, uint64_t bytes,
		      struct event_gap *gap)
{
	if (r->next >= last)
		return false;
	*gap = (struct event_gap){ r->next, last - 1, r->placed ? bytes - r->at : 0 };
	return true;
}

/* By the heads alone. */
static uint64_t last_in(int fd)
{
	struct record h;
	uint64_t last = 0;
	for (off_t at = 0; pread(fd, &h, sizeof h, at) == (ssize_t)sizeof h && h.magic == MAGIC;
	     at += (off_t)(sizeof h + h.n))
		last = h.seq;
	return last;
}

int eventlog_last(const char *dir, const char *id, uint64_t *seq, struct err *err)
{
	char path[4096];
	uint64_t last = 0;
	bool there = false;
	for (int i = 0; i < PARTS; i++) {
		if (part_path(path, sizeof path, dir, id, i, err) < 0)
			return -1;
		_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
		uint64_t in_part = fd < 0 ? 0 : last_in(fd);
		there |= fd >= 0;
		if (in_part > last)
			last = in_part;
	}
	*seq = last;
	return there ? 0 : err_set(err, ERR_NOT_FOUND, "no such event log");
}
