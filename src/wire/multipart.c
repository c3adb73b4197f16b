#include "wire/multipart.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "wire/httpfield.h"
#include "wire/param.h"

#define MAX_BOUNDARY 70
#define MAX_HEADER   (8 << 10)

enum state {
	PREAMBLE,  /* before the first boundary: ignored */
	BOUNDARY,  /* right behind a boundary */
	DASH,      /* behind a boundary and one '-' */
	PADDING,   /* blanks behind a boundary */
	LINE_FEED, /* the '\n' that ends the boundary's line */
	HEADER,
	DATA,
	CLOSED, /* the closing boundary was seen: ignored */
	FAILED,
};

struct multipart {
	const struct multipart_ops *ops;
	void *ctx;
	enum state state;
	struct buf header;                    /* "\r\n" and the header of a part, as it comes in */
	char delimiter[4 + MAX_BOUNDARY + 1]; /* "\r\n--" and the boundary */
	size_t ndelimiter;
	size_t matched; /* how much of the delimiter the input ends with */
	size_t lent;    /* how much of that was assumed and never was in the input */
};

static int broken(struct err *err, const char *why)
{
	return err_set(err, ERR_INVALID, "multipart: %s", why);
}

/* What browsers write for the three characters that a name in quotes cannot have. */
static char browser_escape(const char *p)
{
	if (!strncmp(p, "%22", 3))
		return '"';
	if (!strncmp(p, "%0A", 3))
		return '\n';
	return strncmp(p, "%0D", 3) ? '\0' : '\r';
}

/* The value of a parameter as a string of its own, written over the place where it stood: it never
 * grows, and its closing quote or what follows leaves room for the NUL once the whole field was
 * read. */
static char *param_text(const struct param *p)
{
	char *text = (char *)p->value;
	text[param_unescape(text, p)] = '\0';
	char *to = text;
	for (const char *from = text; *from; to++) {
		char c = p->quoted ? browser_escape(from) : '\0';
		*to = c ? c : *from;
		from += c ? 3 : 1;
	}
	*to = '\0';
	return text;
}

/* RFC 2046 allows fewer characters. What matters is that '\r' is none of them: it then starts the
 * delimiter and is nowhere else in it, and a search that fails never has to go back. */
static int set_boundary(struct multipart *m, const struct param *p, struct err *err)
{
	char text[2 * MAX_BOUNDARY];
	if (p->nvalue > sizeof text)
		return broken(err, "the boundary is too long");
	size_t n = param_unescape(text, p);
	if (!n || n > MAX_BOUNDARY)
		return broken(err, n ? "the boundary is too long" : "the boundary is empty");
	for (size_t i = 0; i < n; i++)
		if (text[i] < ' ' || text[i] > '~')
			return broken(err, "the boundary has a character that is not allowed");
	if (text[n - 1] == ' ')
		return broken(err, "the boundary ends with a blank");
	memcpy(m->delimiter, "\r\n--", 4);
	memcpy(m->delimiter + 4, text, n);
	m->ndelimiter = 4 + n;
	return 0;
}

static int read_content_type(struct multipart *m, const char *field, struct err *err)
{
	if (!http_type_is(field, "multipart/form-data"))
		return broken(err, "the content type is not multipart/form-data");
	const char *p = field + strcspn(field, ";");
	struct param param;
	int rc;
	while ((rc = param_next(&p, &param)) == 1) {
		if (!param_is(&param, "boundary"))
			continue;
		if (m->ndelimiter)
			return broken(err, "two boundaries");
		if (set_boundary(m, &param, err))
			return -1;
	}
	if (rc < 0)
		return broken(err, "the content type is malformed");
	return m->ndelimiter ? 0 : broken(err, "no boundary");
}

/* Search for the delimiter from here on. The line end before it may be the one that was just read:
 * of the start of the input, or of a part's empty header line. */
static void search(struct multipart *m, enum state state)
{
	m->state = state;
	m->matched = m->lent = 2;
}

int multipart_new(struct multipart **out, const char *content_type, const struct multipart_ops *ops,
		  void *ctx, struct err *err)
{
	struct multipart *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(err, ERR_INTERNAL, "no memory for a multipart decoder");
	m->ops = ops;
	m->ctx = ctx;
	m->header = BUF(2 + MAX_HEADER);
	if (read_content_type(m, content_type, err)) {
		multipart_free(m);
		return -1;
	}
	search(m, PREAMBLE);
	*out = m;
	return 0;
}

void multipart_free(struct multipart *m)
{
	if (!m)
		return;
	buf_free(&m->header);
	free(m);
}

/* The disposition's parameters. Nothing may be said twice: two readers could believe different
 * halves. */
static int read_disposition(const char *value, struct param *name, struct param *filename,
			    struct err *err)
{
	if (name->name || !http_type_is(value, "form-data"))
		return broken(err, "a part has no proper Content-Disposition");
	const char *p = value + strcspn(value, ";");
	struct param param;
	int rc;
	while ((rc = param_next(&p, &param)) == 1) {
		struct param *to = param_is(&param, "name")       ? name
				   : param_is(&param, "filename") ? filename
								  : NULL;
		if (to && to->name)
			return broken(err, "a part has two names");
		if (to)
			*to = param;
	}
	if (rc < 0)
		return broken(err, "a Content-Disposition is malformed");
	return name->name ? 0 : broken(err, "a part has no name");
}

/* One line of a part's header, already a string of its own. */
static int read_line(const char *line, struct param *name, struct param *filename, struct err *err)
{
	const char *colon = strpbrk(line, ": \t\r\n");
	if (!colon || colon == line || *colon != ':' || strpbrk(line, "\r\n"))
		return broken(err, "a line of a part's header is malformed");
	if ((size_t)(colon - line) != strlen("Content-Disposition") ||
	    strncasecmp(line, "Content-Disposition", (size_t)(colon - line)) != 0)
		return 0;
	return read_disposition(colon + 1, name, filename, err);
}

/* The whole header is there: "\r\n", then lines that end with "\r\n". */
static int begin_part(struct multipart *m, size_t len, struct err *err)
{
	struct param name = { 0 }, filename = { 0 };
	if (memchr(m->header.p, '\0', len))
		return broken(err, "a part's header has a NUL");
	m->header.p[len] = '\0';
	for (char *line = m->header.p + 2; *line;) {
		char *end = strstr(line, "\r\n");
		*end = '\0';
		if (read_line(line, &name, &filename, err))
			return -1;
		line = end + 2;
	}
	if (!name.name)
		return broken(err, "a part has no name");
	char *file = filename.name ? param_text(&filename) : NULL;
	return m->ops->begin(m->ctx, param_text(&name), file, err);
}

static int feed_header(struct multipart *m, const char **p, const char *end, struct err *err)
{
	size_t before = m->header.len, room = m->header.max - before, n = (size_t)(end - *p);
	if (n > room)
		n = room;
	if (buf_add(&m->header, *p, n))
		return err_set(err, ERR_INTERNAL, "no memory for a part's header");
	size_t from = before > 3 ? before - 3 : 0;
	char *blank = memmem(m->header.p + from, m->header.len - from, "\r\n\r\n", 4);
	if (!blank) {
		*p += n;
		return n == room ? broken(err, "a part's header is too long") : 0;
	}
	size_t len = (size_t)(blank - m->header.p) + 2;
	*p += len + 2 - before;
	if (begin_part(m, len, err))
		return -1;
	search(m, DATA);
	return 0;
}

static int emit(struct multipart *m, const char *p, size_t n, struct err *err)
{
	if (!n || m->state != DATA)
		return 0;
	return m->ops->data(m->ctx, p, n, err);
}

static int end_part(struct multipart *m, struct err *err)
{
	int rc = m->state == DATA ? m->ops->end(m->ctx, err) : 0;
	m->state = BOUNDARY;
	return rc;
}

/* How much of the delimiter the text ends with, but not all of it. */
static size_t delimiter_at_end(const struct multipart *m, const char *p, const char *end)
{
	size_t n = (size_t)(end - p);
	if (n > m->ndelimiter - 1)
		n = m->ndelimiter - 1;
	const char *cr = memrchr(end - n, '\r', n);
	if (!cr || memcmp(cr, m->delimiter, (size_t)(end - cr)) != 0)
		return 0;
	return (size_t)(end - cr);
}

/* Go on with a delimiter that an earlier piece began. When it turns out to be none, what was held
 * back of it is data: its text is known, so it was never stored. */
static int feed_matched(struct multipart *m, const char **p, const char *end, struct err *err)
{
	while (*p < end && m->matched < m->ndelimiter && **p == m->delimiter[m->matched]) {
		m->matched++;
		(*p)++;
	}
	if (m->matched == m->ndelimiter)
		return end_part(m, err);
	if (*p == end)
		return 0;
	size_t lent = m->lent, held = m->matched - lent;
	m->matched = m->lent = 0;
	return emit(m, m->delimiter + lent, held, err);
}

static int feed_data(struct multipart *m, const char **p, const char *end, struct err *err)
{
	if (m->matched)
		return feed_matched(m, p, end, err);
	const char *from = *p;
	size_t n = (size_t)(end - from);
	const char *hit = memmem(from, n, m->delimiter, m->ndelimiter);
	if (hit) {
		*p = hit + m->ndelimiter;
		return emit(m, from, (size_t)(hit - from), err) ? -1 : end_part(m, err);
	}
	*p = end;
	m->matched = delimiter_at_end(m, from, end);
	return emit(m, from, n - m->matched, err);
}

/* The rest of a boundary's line: "--" closes the whole, blanks and a line end begin a part. */
static int feed_boundary(struct multipart *m, char c, struct err *err)
{
	if (m->state == LINE_FEED && c == '\n') {
		m->state = HEADER;
		m->header.len = 0;
		return buf_adds(&m->header, "\r\n")
			       ? err_set(err, ERR_INTERNAL, "no memory for a part's header")
			       : 0;
	}
	if (m->state == BOUNDARY && c == '-')
		m->state = DASH;
	else if (m->state == DASH && c == '-')
		m->state = CLOSED;
	else if ((m->state == BOUNDARY || m->state == PADDING) && (c == ' ' || c == '\t'))
		m->state = PADDING;
	else if ((m->state == BOUNDARY || m->state == PADDING) && c == '\r')
		m->state = LINE_FEED;
	else
		return broken(err, "a boundary is not alone on its line");
	return 0;
}

static int feed_some(struct multipart *m, const char **p, const char *end, struct err *err)
{
	switch (m->state) {
	case PREAMBLE:
	case DATA:
		return feed_data(m, p, end, err);
	case HEADER:
		return feed_header(m, p, end, err);
	case CLOSED:
		*p = end;
		return 0;
	case FAILED:
		return broken(err, "the decoder has stopped");
	default:
		return feed_boundary(m, *(*p)++, err);
	}
}

int multipart_feed(struct multipart *m, const char *p, size_t n, struct err *err)
{
	if (!n)
		return 0;
	for (const char *end = p + n; p < end;) {
		if (feed_some(m, &p, end, err)) {
			m->state = FAILED;
			return -1;
		}
	}
	return 0;
}

int multipart_finish(struct multipart *m, struct err *err)
{
	return m->state == CLOSED ? 0 : broken(err, "the input ended before the closing boundary");
}
