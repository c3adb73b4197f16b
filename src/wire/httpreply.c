#include "wire/httpreply.h"

#include <string.h>
#include <strings.h>

#define INTERIMS_MAX 32   /* 1xx before the answer */
#define CHUNK_LINE   4096 /* a chunk's size, with extensions nobody reads */

/* ---- words ---- */

bool http_is_token(const char *s)
{
	static const char letters[] = "!#$%&'*+-.^_`|~0123456789"
				      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	return *s && !s[strspn(s, letters)];
}

bool http_is_value(const char *s)
{
	for (; *s; s++)
		if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
			return false;
	return true;
}

bool http_list_has(const char *value, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = value; *p; p += *p == ',') {
		p += strspn(p, " \t");
		if (strcspn(p, " \t,") == n && !strncasecmp(p, word, n))
			return true;
		p += strcspn(p, ",");
	}
	return false;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* ---- lines ---- */

/* Copy up to the end of a line. 1: the last line of r->in is whole, as a string without its end.
 * 0: more is needed. */
static int take_line(struct http_reply *r, const char **p, size_t *n, struct err *err)
{
	const char *nl = memchr(*p, '\n', *n);
	size_t take = nl ? (size_t)(nl - *p) + 1 : *n;
	if (take > r->in.max - r->in.len)
		return err_set(err, ERR_LIMIT, "the answer's head is too long");
	if (buf_add(&r->in, *p, take) < 0)
		return err_set(err, ERR_INTERNAL, "no memory");
	*p += take;
	*n -= take;
	if (!nl)
		return 0;
	char *line = r->in.p + r->line_at;
	size_t len = r->in.len - r->line_at - 1;
	if (len && line[len - 1] == '\r')
		len--;
	line[len] = '\0';
	if (strlen(line) != len || strchr(line, '\r'))
		return err_set(err, ERR_INVALID, "a line of the answer has a stray character");
	return 1;
}

static void forget_lines(struct http_reply *r, size_t max)
{
	if (r->in.cap > CHUNK_LINE)
		buf_free(&r->in); /* a long head must not be kept for as long as a stream lasts */
	r->in.len = r->line_at = 0;
	r->in.max = max;
}

/* ---- the head ---- */

/* "HTTP/1.1 200 OK": the status, or -1. */
static int parse_status(const char *line, bool *old)
{
	if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') ||
	    line[8] != ' ')
		return -1;
	*old = line[7] == '0';
	line += 9;
	if (line[0] < '1' || line[0] > '9' || !is_digit(line[1]) || !is_digit(line[2]) ||
	    (line[3] && line[3] != ' ') || !http_is_value(line))
		return -1;
	return (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
}

static int parse_field(char *line, struct http_field *f)
{
	char *colon = strchr(line, ':');
	if (!colon)
		return -1;
	*colon = '\0';
	f->name = line;
	char *value = colon + 1 + strspn(colon + 1, " \t");
	for (size_t n = strlen(value); n && (value[n - 1] == ' ' || value[n - 1] == '\t');)
		value[--n] = '\0';
	f->value = value;
	/* A line that begins with a space, the old way to continue a field, has no token here. */
	return http_is_token(f->name) && http_is_value(value) ? 0 : -1;
}

static int parse_length(const char *s, uint64_t *out)
{
	*out = 0;
	if (!*s)
		return -1;
	for (; *s; s++)
		if (!is_digit(*s) || __builtin_mul_overflow(*out, 10, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(*s - '0'), out))
			return -1;
	return *out > INT64_MAX ? -1 : 0;
}

struct framing {
	bool chunked, old;
};

/* What the fields say of the body's length; what they say twice or in two ways is refused. */
static int read_framing(struct http_reply_head *h, struct framing *f)
{
	for (size_t i = 0; i < h->nfields; i++) {
		const char *name = h->fields[i].name, *value = h->fields[i].value;
		if (!strcasecmp(name, "Transfer-Encoding")) {
			if (f->chunked || f->old || strcasecmp(value, "chunked") != 0)
				return -1;
			f->chunked = true;
		} else if (!strcasecmp(name, "Content-Length")) {
			uint64_t length;
			if (parse_length(value, &length) < 0 || (h->sized && length != h->length))
				return -1;
			h->sized = true;
			h->length = length;
		}
	}
	return f->chunked && h->sized ? -1 : 0;
}

static int finish_answer(struct http_reply *r)
{
	r->state = REPLY_DONE;
	r->ops->end(r->ctx);
	return 0;
}

static int begin_body(struct http_reply *r, const struct http_reply_head *h, bool chunked)
{
	forget_lines(r, CHUNK_LINE);
	r->left = h->length;
	if (h->status == 101)
		r->state = REPLY_RAW;
	else if (h->bodiless || (h->sized && !h->length))
		return finish_answer(r);
	else if (chunked)
		r->state = REPLY_CHUNK_SIZE;
	else
		r->state = h->sized ? REPLY_SIZED : REPLY_UNTIL_CLOSE;
	return 0;
}

/* Lines of a head stand behind each other as strings; of a CR LF the LF is still there. */
static char *next_line(char *line)
{
	line += strlen(line) + 1;
	return *line == '\n' ? line + 1 : line;
}

/* The whole head is in r->in, behind it an empty line. */
static int read_head(struct http_reply *r, struct err *err)
{
	struct http_field fields[HTTP_REPLY_FIELDS];
	struct framing f = { 0 };
	struct http_reply_head h = { .status = parse_status(r->in.p, &f.old), .fields = fields };
	const char *end = r->in.p + r->line_at;
	if (h.status < 0)
		return err_set(err, ERR_INVALID, "the answer does not begin as HTTP does");
	/* The next line is looked for before this one is cut up. */
	for (char *line = next_line(r->in.p), *next; line < end; line = next) {
		next = next_line(line);
		if (h.nfields == HTTP_REPLY_FIELDS)
			return err_set(err, ERR_LIMIT, "the answer has too many fields");
		if (parse_field(line, &fields[h.nfields++]) < 0)
			return err_set(err, ERR_INVALID, "a field of the answer is malformed");
	}
	if (h.status < 200 && h.status != 101) {
		if (++r->interims > INTERIMS_MAX)
			return err_set(err, ERR_LIMIT, "too many interim answers");
		forget_lines(r, HTTP_REPLY_HEAD);
		return 0;
	}
	if (h.status == 101 && !r->may_switch)
		return err_set(err, ERR_INVALID, "a change of protocols that nobody asked for");
	if (read_framing(&h, &f) < 0)
		return err_set(err, ERR_INVALID, "the answer's length is ambiguous");
	h.bodiless = h.status != 101 && (r->to_head || h.status == 204 || h.status == 304);
	if (r->ops->head(r->ctx, &h) < 0)
		return err_set(err, ERR_UNAVAILABLE, "the answer was refused");
	return begin_body(r, &h, f.chunked);
}

static int take_head(struct http_reply *r, const char **p, size_t *n, struct err *err)
{
	int rc = take_line(r, p, n, err);
	if (rc <= 0)
		return rc;
	if (!r->in.p[r->line_at])
		return r->line_at ? read_head(r, err)
				  : err_set(err, ERR_INVALID, "the answer begins with nothing");
	r->line_at = r->in.len;
	return 0;
}

/* ---- the body ---- */

static int pass_on(struct http_reply *r, const char **p, size_t *n, size_t take, struct err *err)
{
	const char *from = *p;
	*p += take;
	*n -= take;
	return r->ops->data(r->ctx, from, take) < 0
		       ? err_set(err, ERR_UNAVAILABLE, "the answer was refused")
		       : 0;
}

static int take_counted(struct http_reply *r, const char **p, size_t *n, struct err *err)
{
	size_t take = *n < r->left ? *n : (size_t)r->left;
	r->left -= take;
	if (pass_on(r, p, n, take, err) < 0)
		return -1;
	if (r->left)
		return 0;
	if (r->state == REPLY_SIZED)
		return finish_answer(r);
	r->state = REPLY_CHUNK_END;
	return 0;
}

static int hex_digit(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int parse_chunk_size(const char *line, uint64_t *out)
{
	int digits = 0;
	*out = 0;
	for (; hex_digit(*line) >= 0; line++) {
		if (++digits > 15)
			return -1;
		*out = *out * 16 + (uint64_t)hex_digit(*line);
	}
	line += strspn(line, " \t");
	return digits && (!*line || *line == ';') ? 0 : -1;
}

static int take_chunk_line(struct http_reply *r, const char **p, size_t *n, struct err *err)
{
	int rc = take_line(r, p, n, err);
	if (rc <= 0)
		return rc;
	bool empty = !r->in.p[0];
	if (r->state == REPLY_CHUNK_SIZE) {
		if (parse_chunk_size(r->in.p, &r->left) < 0)
			return err_set(err, ERR_INVALID, "a chunk of the answer has no size");
		r->state = r->left ? REPLY_CHUNK : REPLY_TRAILER;
		forget_lines(r, r->left ? CHUNK_LINE : HTTP_REPLY_HEAD);
		return 0;
	}
	if (!empty)
		return err_set(err, ERR_INVALID, "a chunk of the answer is longer than it says");
	r->state = REPLY_CHUNK_SIZE;
	forget_lines(r, CHUNK_LINE);
	return 0;
}

/* Fields behind the last chunk are read, bounded as a head is, and dropped. */
static int take_trailer(struct http_reply *r, const char **p, size_t *n, struct err *err)
{
	int rc = take_line(r, p, n, err);
	if (rc <= 0)
		return rc;
	if (!r->in.p[r->line_at])
		return finish_answer(r);
	r->line_at = r->in.len;
	return 0;
}

/* ---- all of it ---- */

void http_reply_init(struct http_reply *r, bool to_head, bool may_switch,
		     const struct http_reply_ops *ops, void *ctx)
{
	*r = (struct http_reply){ .ops = ops,
				  .ctx = ctx,
				  .to_head = to_head,
				  .may_switch = may_switch,
				  .in = BUF(HTTP_REPLY_HEAD) };
}

void http_reply_free(struct http_reply *r)
{
	buf_free(&r->in);
}

static int step(struct http_reply *r, const char **p, size_t *n, struct err *err)
{
	switch (r->state) {
	case REPLY_HEAD:
		return take_head(r, p, n, err);
	case REPLY_SIZED:
	case REPLY_CHUNK:
		return take_counted(r, p, n, err);
	case REPLY_CHUNK_SIZE:
	case REPLY_CHUNK_END:
		return take_chunk_line(r, p, n, err);
	case REPLY_TRAILER:
		return take_trailer(r, p, n, err);
	case REPLY_UNTIL_CLOSE:
	case REPLY_RAW:
		return pass_on(r, p, n, *n, err);
	case REPLY_DONE:
		*n = 0;
		return 0;
	case REPLY_BAD:
		break;
	}
	return err_set(err, ERR_INVALID, "the answer was given up");
}

int http_reply_feed(struct http_reply *r, const char *p, size_t n, struct err *err)
{
	while (n) {
		if (step(r, &p, &n, err) < 0) {
			r->state = REPLY_BAD;
			return -1;
		}
	}
	return 0;
}

int http_reply_finish(struct http_reply *r, struct err *err)
{
	if (r->state == REPLY_DONE)
		return 0;
	if (r->state == REPLY_UNTIL_CLOSE || r->state == REPLY_RAW)
		return finish_answer(r);
	r->state = REPLY_BAD;
	return err_set(err, ERR_INVALID, "the answer breaks off");
}
