#include "engine/logs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "wire/utf8.h"

#define ID_MAX 64
/* A byte that is no UTF-8 becomes three. */
#define PACKED_MAX ((LOGS_FIELDS * 2 + 1) * (3 * LOGS_TEXT + 1))

static const char *const level_names[] = {
	[LOGS_DEBUG] = "debug",
	[LOGS_INFO] = "info",
	[LOGS_WARN] = "warn",
	[LOGS_ERROR] = "error",
};

struct entry {
	struct entry *older, *newer;
	struct logs_entry view; /* its texts lie behind it */
	size_t size;
	char text[];
};

struct logs {
	struct logs *older; /* among those kept */
	char id[ID_MAX];
	struct entry *oldest, *newest;
	size_t n, bytes;
};

const char *logs_level_name(enum logs_level level)
{
	return level_names[level];
}

int logs_level_parse(const char *name, enum logs_level *out)
{
	for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
		if (!strcmp(name, level_names[i])) {
			*out = (enum logs_level)i;
			return 0;
		}
	}
	return -1;
}

const char *logs_number(char out[LOGS_NUMBER], int64_t n)
{
	snprintf(out, LOGS_NUMBER, "%" PRId64, n);
	return out;
}

/* ---- one log ---- */

struct logs *logs_new(const char *id)
{
	struct logs *l = calloc(1, sizeof *l);
	if (l) {
		l->bytes = sizeof *l;
		snprintf(l->id, sizeof l->id, "%s", id);
	}
	return l;
}

static void drop_oldest(struct logs *l)
{
	struct entry *e = l->oldest;
	l->oldest = e->newer;
	*(e->newer ? &e->newer->older : &l->newest) = NULL;
	l->n--;
	l->bytes -= e->size;
	free(e);
}

void logs_free(struct logs *l)
{
	while (l && l->n)
		drop_oldest(l);
	free(l);
}

/* As text, with its NUL, cut between two characters. */
static void put_text(struct buf *out, const char *s)
{
	struct utf8 u = { 0 };
	size_t n = strnlen(s, LOGS_TEXT);
	if (s[n])
		n -= utf8_cut_tail(s, n);
	utf8_feed(&u, s, n, out);
	utf8_finish(&u, out);
	buf_add(out, "", 1);
}

/* A clock that was set back must not put an entry before those that are there. */
static int64_t next_time(const struct logs *l)
{
	int64_t now = clock_real_us();
	return l->newest && l->newest->view.real_us > now ? l->newest->view.real_us : now;
}

static void append(struct logs *l, enum logs_level level, size_t nfields, const struct buf *text)
{
	size_t size = sizeof(struct entry) + text->len;
	struct entry *e = malloc(size);
	if (!e)
		return;
	while (l->n && (l->n >= LOGS_ENTRIES || l->bytes + size > LOGS_BYTES))
		drop_oldest(l);
	memcpy(e->text, text->p, text->len);
	e->size = size;
	e->view = (struct logs_entry){ .real_us = next_time(l),
				       .level = level,
				       .message = e->text,
				       .nfields = nfields,
				       .fields = e->text + strlen(e->text) + 1 };
	e->newer = NULL;
	e->older = l->newest;
	*(l->newest ? &l->newest->newer : &l->oldest) = e;
	l->newest = e;
	l->n++;
	l->bytes += size;
}

void logs_add(struct logs *l, enum logs_level level, const char *message, ...)
{
	struct buf text = BUF(PACKED_MAX);
	const char *key;
	size_t n = 0;
	va_list ap;
	if (!l)
		return;
	put_text(&text, message);
	va_start(ap, message);
	while (n < LOGS_FIELDS && (key = va_arg(ap, const char *))) {
		put_text(&text, key);
		put_text(&text, va_arg(ap, const char *));
		n++;
	}
	va_end(ap);
	/* One that is not whole would be read past its end. */
	size_t ends = 0;
	for (size_t i = 0; i < text.len; i++)
		ends += !text.p[i];
	if (ends == 2 * n + 1)
		append(l, level, n, &text);
	buf_free(&text);
}

static bool matches(const struct logs_entry *e, const struct logs_query *q)
{
	int64_t ms = e->real_us / 1000;
	return ms >= q->from_ms && ms <= q->to_ms && e->level >= q->least &&
	       (!q->search || strstr(e->message, q->search));
}

void logs_read(const struct logs *l, const struct logs_query *q,
	       void (*fn)(void *, const struct logs_entry *), void *ctx)
{
	size_t left = q->limit;
	const struct entry *e = !l ? NULL : q->backward ? l->newest : l->oldest;
	for (; e && left; e = q->backward ? e->older : e->newer) {
		if (!matches(&e->view, q))
			continue;
		fn(ctx, &e->view);
		left--;
	}
}

/* ---- those of sandboxes that ended ---- */

static void drop_kept(struct logs_kept *k, struct logs **at)
{
	struct logs *l = *at;
	*at = l->older;
	k->n--;
	k->bytes -= l->bytes;
	logs_free(l);
}

void logs_keep(struct logs_kept *k, struct logs *l)
{
	if (!l)
		return;
	l->older = k->newest;
	k->newest = l;
	k->n++;
	k->bytes += l->bytes;
	while (k->n > LOGS_KEPT || k->bytes > LOGS_KEPT_BYTES) {
		struct logs **at = &k->newest;
		while ((*at)->older)
			at = &(*at)->older;
		drop_kept(k, at);
	}
}

const struct logs *logs_find(const struct logs_kept *k, const char *id, size_t n)
{
	for (const struct logs *l = k->newest; l; l = l->older)
		if (strlen(l->id) == n && !strncmp(l->id, id, n))
			return l;
	return NULL;
}

void logs_kept_free(struct logs_kept *k)
{
	while (k->newest)
		drop_kept(k, &k->newest);
}

/* ---- output of a start command ---- */

static void add_line(struct logs_lines *p, struct logs *l)
{
	if (p->n && p->line[p->n - 1] == '\r')
		p->n--;
	p->line[p->n] = '\0';
	p->n = 0;
	if (p->count < LOGS_LINES_MAX)
		logs_add(l, p->level, p->line, "source", "start command", NULL);
	else if (p->count == LOGS_LINES_MAX)
		logs_add(l, LOGS_WARN, "Further output of the start command is not logged", NULL);
	else
		return;
	p->count++;
}

void logs_lines_feed(struct logs_lines *p, struct logs *l, const char *data, size_t n)
{
	for (size_t i = 0; i < n && p->count <= LOGS_LINES_MAX; i++) {
		if (data[i] == '\n')
			add_line(p, l);
		else if (p->n < LOGS_TEXT)
			p->line[p->n++] = data[i] ? data[i] : ' ';
	}
}

void logs_lines_end(struct logs_lines *p, struct logs *l)
{
	if (p->n)
		add_line(p, l);
}
