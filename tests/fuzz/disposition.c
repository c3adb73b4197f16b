/* File names in Content-Disposition, as it is written, and parameters of any field, as they are
 * read. */
#include "fuzz.h"

#include "wire/disposition.h"
#include "wire/param.h"
#include "wire/uri.h"
#include "wire/utf8.h"

#define HEAD "attachment"

static bool has_value(const struct param *p, const char *want)
{
	_free_ char *value = malloc(p->nvalue + 1);
	CHECK(value);
	value[param_unescape(value, p)] = '\0';
	return !strcmp(value, want);
}

/* What filename*= says, once its escapes are undone. */
static bool has_extended(const struct param *p, const char *want)
{
	static const char charset[] = "UTF-8''";
	size_t n = sizeof charset - 1;
	_free_ char *value = malloc(p->nvalue + 1);
	CHECK(value && !p->quoted && p->nvalue >= n && !memcmp(p->value, charset, n));
	CHECK(uri_decode(value, p->nvalue + 1, p->value + n, p->nvalue - n, false) == 0);
	return !strcmp(value, want);
}

/* A reader of the field finds the name, and nothing that the name could have put there. */
static void check_written(const char *name)
{
	struct buf field = BUF(64u << 10), text = BUF(64u << 10), small = BUF(40);
	struct utf8 u = { 0 };
	CHECK(disposition_attachment(&field, name) == 0);
	CHECK(is_printable(field.p, field.len) && !strncmp(field.p, HEAD, sizeof HEAD - 1));
	CHECK(utf8_feed(&u, name, strlen(name), &text) == 0 && utf8_finish(&u, &text) == 0);
	const char *at = field.p + sizeof HEAD - 1, *clean = text.p ? text.p : "";
	struct param p;
	CHECK(param_next(&at, &p) == 1 && param_is(&p, "filename") && p.quoted);
	CHECK(!memchr(p.value, '"', p.nvalue) && !memchr(p.value, '\\', p.nvalue));
	if (param_next(&at, &p) == 1)
		CHECK(param_is(&p, "filename*") && has_extended(&p, clean));
	else
		CHECK(has_value(&p, clean));
	CHECK(param_next(&at, &p) == 0);
	if (disposition_attachment(&small, name))
		CHECK(small.len == 0);
	buf_free(&field);
	buf_free(&text);
	buf_free(&small);
}

static void check_read(const char *field)
{
	const char *at = field, *end = field + strlen(field);
	struct param p;
	while (param_next(&at, &p) == 1) {
		_free_ char *value = malloc(p.nvalue + 1);
		CHECK(value && at > p.name && at <= end);
		CHECK(p.nname && p.name + p.nname < p.value && p.value + p.nvalue <= at);
		CHECK(param_unescape(value, &p) <= p.nvalue);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	if (strlen(given) < 10000)
		check_written(given);
	check_read(given);
	return 0;
}
