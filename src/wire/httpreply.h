/* An answer in HTTP/1.0 or 1.1 out of a byte stream: its head, then its body without the framing.
 * The decoder does no I/O. It is strict, because what it reads may have been written to confuse
 * whoever reads on: an answer that two readers could understand in two ways is refused. */
#ifndef WIRE_HTTPREPLY_H
#define WIRE_HTTPREPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define HTTP_REPLY_HEAD   (64u << 10) /* bytes of one head */
#define HTTP_REPLY_FIELDS 256         /* fields of one head */

/* A name is a token, a value has no control characters but tabs and no space around it. */
struct http_field {
	const char *name, *value;
};

struct http_reply_head {
	int status; /* 200 to 999, or 101 where it was allowed */
	const struct http_field *fields;
	size_t nfields;  /* all of them, those about the framing and the connection too */
	bool bodiless;   /* nothing follows: HEAD, 204, 304 */
	bool sized;      /* length is known, also where nothing follows */
	uint64_t length; /* of the body, at most INT64_MAX */
};

/* A function that returns -1 stops the decoder; the pointers are good during the call only. */
struct http_reply_ops {
	int (*head)(void *ctx, const struct http_reply_head *h); /* once; 1xx are skipped */
	int (*data)(void *ctx, const char *p, size_t n);
	void (*end)(void *ctx); /* once, when the answer is whole */
};

enum http_reply_state {
	REPLY_HEAD,
	REPLY_SIZED, /* left bytes of the body */
	REPLY_UNTIL_CLOSE,
	REPLY_CHUNK_SIZE, /* the line before a chunk */
	REPLY_CHUNK,      /* left bytes of a chunk */
	REPLY_CHUNK_END,  /* the empty line behind it */
	REPLY_TRAILER,
	REPLY_RAW,  /* behind a 101: no longer HTTP */
	REPLY_DONE, /* what follows is ignored */
	REPLY_BAD,
};

/* Plain, so that it can be embedded; for httpreply.c only. */
struct http_reply {
	const struct http_reply_ops *ops;
	void *ctx;
	bool to_head, may_switch;
	enum http_reply_state state;
	struct buf in;  /* the head, or the line, that is not whole yet */
	size_t line_at; /* where its last line begins */
	uint64_t left;
	unsigned interims;
};

/* to_head: the request was a HEAD. may_switch: it asked to change protocols, so that a 101 is an
 * answer, behind which every byte is data. */
void http_reply_init(struct http_reply *r, bool to_head, bool may_switch,
		     const struct http_reply_ops *ops, void *ctx);
void http_reply_free(struct http_reply *r);

/* 0, or -1: no HTTP (ERR_INVALID), too much of it (ERR_LIMIT), or ops refused. After -1 it always
 * is. */
int http_reply_feed(struct http_reply *r, const char *p, size_t n, struct err *err);

/* The stream is at its end. -1 when the answer is not whole. */
int http_reply_finish(struct http_reply *r, struct err *err);

/* Whether s is a token of RFC 9110: a method, or a field's name. */
bool http_is_token(const char *s);
/* Whether a field's value has no control character but tabs. */
bool http_is_value(const char *s);
/* Whether a field whose value is a list of words (Connection) has this one, in any case. */
bool http_list_has(const char *value, const char *word);

#endif
