#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *buf_room(struct buf *b, size_t n)
{
	if (n > b->max || b->len > b->max - n || b->len + n > SIZE_MAX / 4)
		return NULL;
	size_t need = b->len + n + 1;
	if (need > b->cap) {
		size_t cap = b->cap ? b->cap : 64;
		while (cap < need)
			cap *= 2;
		char *p = realloc(b->p, cap);
		if (!p)
			return NULL;
		b->p = p;
		b->cap = cap;
		b->p[b->len] = '\0';
	}
	return b->p + b->len;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
	char *to = buf_room(b, n);
	if (!to)
		return -1;
	if (n)
		memcpy(to, p, n);
	b->len += n;
	b->p[b->len] = '\0';
	return 0;
}

int buf_adds(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	char *to = n < 0 ? NULL : buf_room(b, (size_t)n);
	if (to) {
		vsnprintf(to, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
	return to ? 0 : -1;
}

void buf_drop(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
	} else {
		memmove(b->p, b->p + n, b->len - n);
		b->len -= n;
	}
	if (b->p)
		b->p[b->len] = '\0';
}

char *buf_steal(struct buf *b)
{
	char *p = b->p ? b->p : calloc(1, 1);
	*b = BUF(b->max);
	return p;
}

void buf_free(struct buf *b)
{
	free(b->p);
	*b = BUF(b->max);
}
