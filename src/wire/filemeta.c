#include "wire/filemeta.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			return false;
	return true;
}

/* Whether the key is there; *used is what all count. */
static bool look_up(const struct buf *pairs, const char *key, size_t *used)
{
	bool found = false;
	*used = 0;
	for (size_t at = 0; at < pairs->len;) {
		const char *k = pairs->p + at, *v = k + strlen(k) + 1;
		found |= !strcmp(k, key);
		*used += strlen(FILEMETA_NAMESPACE) + strlen(k) + strlen(v);
		at += strlen(k) + strlen(v) + 2;
	}
	return found;
}

int filemeta_add(struct buf *pairs, const char *key, const char *value, struct err *err)
{
	char lower[FILEMETA_KEY_MAX + 1];
	size_t n = strlen(key), used;
	if (!n)
		return err_set(err, ERR_INVALID, "metadata key is empty");
	if (n > FILEMETA_KEY_MAX)
		return err_set(err, ERR_INVALID, "metadata key '%.32s...' exceeds %d bytes", key,
			       FILEMETA_KEY_MAX);
	if (!is_printable(key) || !is_printable(value))
		return err_set(err, ERR_INVALID,
			       "metadata must be printable US-ASCII, in keys and values");
	for (size_t i = 0; i <= n; i++)
		lower[i] = (char)tolower((unsigned char)key[i]);
	if (look_up(pairs, lower, &used))
		return 0;
	used += strlen(FILEMETA_NAMESPACE) + n + strlen(value);
	if (used > FILEMETA_MAX)
		return err_set(err, ERR_INVALID, "metadata exceeds %d bytes in total",
			       FILEMETA_MAX);
	size_t before = pairs->len;
	if (buf_add(pairs, lower, n + 1) < 0 || buf_add(pairs, value, strlen(value) + 1) < 0) {
		pairs->len = before;
		return err_set(err, ERR_INTERNAL, "no memory");
	}
	return 0;
}
