/* What the engine did for a sandbox, kept in memory: a bounded list of entries each, the oldest go
 * first, and the lists of the newest sandboxes that ended, so that one can read why they did.
 *
 * Never in here: values of variables, arguments of commands, tokens, code, contents of files, or
 * what programs print but for a template's start command. */
#ifndef ENGINE_LOGS_H
#define ENGINE_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOGS_ENTRIES    1000         /* of one sandbox */
#define LOGS_BYTES      (256u << 10) /* of one sandbox */
#define LOGS_TEXT       1024         /* bytes of a message or of a field's value; more is cut */
#define LOGS_FIELDS     8            /* of one entry; more are dropped */
#define LOGS_KEPT       200          /* sandboxes that ended */
#define LOGS_KEPT_BYTES (8u << 20)   /* of all of them */

enum logs_level { LOGS_DEBUG, LOGS_INFO, LOGS_WARN, LOGS_ERROR };

struct logs;

struct logs *logs_new(const char *id); /* the sandbox's; NULL: no memory */
void logs_free(struct logs *l);        /* NULL is fine */

/* Say what happened now: a message, then keys and values in turn, then NULL. Bytes that are not
 * UTF-8 become U+FFFD. For lack of memory it is not said; a NULL log is fine. */
void logs_add(struct logs *l, enum logs_level level, const char *message, ...)
	__attribute__((sentinel));

/* A number as a value, for as long as the block of the caller lasts. */
#define LOGS_NUMBER 24
#define LOGS_INT(n) logs_number((char[LOGS_NUMBER]){ 0 }, (n))
const char *logs_number(char out[LOGS_NUMBER], int64_t n);

const char *logs_level_name(enum logs_level level);
int logs_level_parse(const char *name, enum logs_level *out); /* 0, or -1 when it is none */

/* ---- reading ---- */

struct logs_entry {
	int64_t real_us; /* never less than the one before */
	enum logs_level level;
	const char *message;
	size_t nfields;
	const char *fields; /* key and value in turn, each ends with a NUL */
};

/* Times in milliseconds since the epoch, both inclusive, as finely as they can be asked for. */
struct logs_query {
	int64_t from_ms, to_ms;
	enum logs_level least;
	const char *search; /* part of the message; NULL: any */
	size_t limit;
	bool backward; /* the newest first */
};

void logs_read(const struct logs *l, const struct logs_query *q,
	       void (*fn)(void *ctx, const struct logs_entry *e), void *ctx);

/* ---- those of sandboxes that ended ---- */

struct logs_kept {
	struct logs *newest;
	size_t n, bytes;
};

/* Takes l over; the oldest go where there are too many. */
void logs_keep(struct logs_kept *k, struct logs *l);
const struct logs *logs_find(const struct logs_kept *k, const char *id, size_t n); /* or NULL */
void logs_kept_free(struct logs_kept *k);

/* ---- output of a start command ---- */

#define LOGS_LINES_MAX 400 /* of one pipe; the rest of its output is not logged */

/* One pipe's output on its way to be entries, a line each. Zero it but for the level. */
struct logs_lines {
	enum logs_level level;
	char line[LOGS_TEXT + 1]; /* what there is of a line that has not ended */
	size_t n, count;
};

void logs_lines_feed(struct logs_lines *p, struct logs *l, const char *data, size_t n);
void logs_lines_end(struct logs_lines *p, struct logs *l); /* a last line without its end */

#endif
