#include "wire/disposition.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "wire/uri.h"
#include "wire/utf8.h"

#define TEXT_MAX (64u << 10)

/* Some browsers undo percent-escapes in a plain filename, so none may be there by accident. */
static bool is_plain(const char *p)
{
	unsigned char c = (unsigned char)*p;
	if (c < ' ' || c > '~' || c == '"' || c == '\\')
		return false;
	return c != '%' || !isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2]);
}

/* One '_' for each character, not for each byte of it. */
static int put_fallback(struct buf *out, const char *name, bool *exact)
{
	size_t left = strlen(name);
	*exact = true;
	while (left) {
		uint32_t code;
		size_t n = utf8_next(name, left, &code);
		bool plain = is_plain(name);
		if (buf_add(out, plain ? name : "_", 1))
			return -1;
		*exact = *exact && plain;
		name += n;
		left -= n;
	}
	return 0;
}

static int put_encoded(struct buf *out, const char *name)
{
	struct buf text = BUF(TEXT_MAX);
	struct utf8 u = { .nheld = 0 };
	int rc = buf_adds(out, "; filename*=UTF-8''");
	if (!rc)
		rc = utf8_feed(&u, name, strlen(name), &text);
	if (!rc)
		rc = utf8_finish(&u, &text);
	if (!rc)
		rc = uri_encode(out, text.p, text.len);
	buf_free(&text);
	return rc;
}

int disposition_attachment(struct buf *out, const char *name)
{
	size_t before = out->len;
	bool exact;
	if (buf_adds(out, "attachment; filename=\"") == 0 && put_fallback(out, name, &exact) == 0 &&
	    buf_adds(out, "\"") == 0 && (exact || put_encoded(out, name) == 0))
		return 0;
	out->len = before;
	if (out->p)
		out->p[before] = '\0';
	return -1;
}
