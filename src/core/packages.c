#include "core/packages.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define SHOWN_MAX 60 /* bytes of it in an error's text */

static const char ALLOWED[] = "allowed is a name, with extras and versions if need be, as in "
			      "requests or pandas[excel]>=2,<3";

/* The text, how far it is read, and the cleaned requirement, which is never longer. */
struct reading {
	const char *p, *end;
	char *out;
	size_t len;
};

static int refuse(const char *p, size_t n, const char *why, struct err *err)
{
	char shown[SHOWN_MAX + 1];
	size_t k = n < SHOWN_MAX ? n : SHOWN_MAX;
	for (size_t i = 0; i < k; i++)
		shown[i] = (char)(p[i] >= ' ' && p[i] <= '~' ? p[i] : '?');
	shown[k] = '\0';
	return err_set(err, ERR_INVALID, "package '%s'%s: %s; %s", shown,
		       n > SHOWN_MAX ? "..." : "", why, ALLOWED);
}

/* ---- PEP 508's grammar ---- */

static int peek(const struct reading *r)
{
	return r->p < r->end ? (unsigned char)*r->p : -1;
}

static void skip_blanks(struct reading *r)
{
	while (peek(r) == ' ' || peek(r) == '\t')
		r->p++;
}

static void keep(struct reading *r)
{
	r->out[r->len++] = *r->p++;
}

static bool is_alnum(int c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_one_of(int c, const char *set)
{
	return c > 0 && strchr(set, c);
}

/* Letters and digits, with - _ . between them. NULL, or what is wrong. */
static const char *read_identifier(struct reading *r, const char *wrong)
{
	if (!is_alnum(peek(r)))
		return wrong;
	while (is_alnum(peek(r)) || is_one_of(peek(r), "-_."))
		keep(r);
	return is_alnum(r->p[-1]) ? NULL : wrong;
}

/* "[" list of names "]"; an empty list is none. */
static const char *read_extras(struct reading *r)
{
	static const char wrong[] = "its extras are not a list of names in brackets";
	skip_blanks(r);
	if (peek(r) != '[')
		return NULL;
	const size_t before = r->len;
	keep(r);
	skip_blanks(r);
	if (peek(r) == ']') {
		r->p++;
		r->len = before;
		return NULL;
	}
	for (;;) {
		const char *why = read_identifier(r, wrong);
		if (why)
			return why;
		skip_blanks(r);
		if (peek(r) != ',')
			break;
		keep(r);
		skip_blanks(r);
	}
	if (peek(r) != ']')
		return wrong;
	keep(r);
	return NULL;
}

static bool read_operator(struct reading *r)
{
	/* The longer ones first. */
	static const char *const operators[] = { "===", "==", "~=", "!=", "<=", ">=", "<", ">" };
	for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
		size_t n = strlen(operators[i]);
		if ((size_t)(r->end - r->p) < n || memcmp(r->p, operators[i], n) != 0)
			continue;
		while (n--)
			keep(r);
		return true;
	}
	return false;
}

/* Operators and versions with commas between them, all in parentheses or not. */
static const char *read_versions(struct reading *r)
{
	static const char wrong[] = "a version is not written like >=1.2 or ==1.*";
	skip_blanks(r);
	const bool parentheses = peek(r) == '(';
	if (!parentheses && !is_one_of(peek(r), "<>=!~"))
		return NULL;
	r->p += parentheses;
	for (;;) {
		skip_blanks(r);
		if (!read_operator(r))
			return wrong;
		skip_blanks(r);
		if (!is_alnum(peek(r)))
			return wrong;
		while (is_alnum(peek(r)) || is_one_of(peek(r), "-_.*+!"))
			keep(r);
		skip_blanks(r);
		if (peek(r) != ',')
			break;
		keep(r);
	}
	if (parentheses && peek(r) != ')')
		return wrong;
	r->p += parentheses;
	return NULL;
}

/* ---- what is not allowed ---- */

/* pip takes anything that ends like an archive for a file, whatever is before it. */
static bool ends_like_archive(const char *s)
{
	static const char *const endings[] = { ".zip",    ".whl",     ".tar",    ".tgz",
					       ".tbz",    ".txz",     ".tlz",    ".tar.gz",
					       ".tar.xz", ".tar.bz2", ".tar.lz", ".tar.lzma" };
	size_t n = strlen(s);
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		size_t k = strlen(endings[i]);
		if (n >= k && !strcasecmp(s + n - k, endings[i]))
			return true;
	}
	return false;
}

static const char *check_bytes(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] > '~' || ((unsigned char)p[i] < ' ' && p[i] != '\t'))
			return "it has a character that is not printable ASCII";
	return memmem(p, n, "://", 3) ? "URLs are not taken" : NULL;
}

/* What the character at which the grammar ended is about. */
static const char *check_rest(const struct reading *r, bool at_start, const char *why)
{
	int c = peek(r);
	if (at_start && c == '-')
		return "options are not taken";
	if (c == '/' || c == '\\' || (at_start && (c == '.' || c == '~')))
		return "paths are not taken";
	if (c == '@')
		return "URLs are not taken";
	if (c == ';')
		return "environment markers are not taken";
	if (why)
		return why;
	return c < 0 ? NULL : "it has characters that no name, extra or version has";
}

int package_parse(const char *p, size_t n, struct package *out, struct err *err)
{
	struct package found = { 0 };
	if (n > PACKAGE_MAX)
		return refuse(p, n, "it is longer than 200 bytes", err);
	const char *why = check_bytes(p, n);
	if (why)
		return refuse(p, n, why, err);
	struct reading r = { .p = p, .end = p + n, .out = found.requirement };
	skip_blanks(&r);
	if (r.p == r.end)
		return refuse(p, n, "it is empty", err);
	const char *start = r.p;
	why = read_identifier(&r, "a name is letters and digits, with - _ . between them");
	memcpy(found.name, found.requirement, r.len);
	if (!why)
		why = read_extras(&r);
	if (!why)
		why = read_versions(&r);
	found.requirement[r.len] = '\0'; /* empty extras were taken back */
	skip_blanks(&r);
	why = check_rest(&r, r.p == start, why);
	if (!why && (ends_like_archive(found.name) || ends_like_archive(found.requirement)))
		why = "files are not taken";
	if (why)
		return refuse(p, n, why, err);
	*out = found;
	return 0;
}
