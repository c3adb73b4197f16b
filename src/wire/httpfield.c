#include "wire/httpfield.h"

#include <string.h>
#include <strings.h>
#include <stdio.h>
#include <time.h>

#include "base/buf.h"
#include "wire/base64.h"

/* strftime() would follow the locale. */
static const char day_names[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
static const char month_names[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
					 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };

/* The years 1 to 9999 are all that four digits can say. */
#define DATE_FIRST (-62135596800LL)
#define DATE_LAST  253402300799LL

const char *http_date(char out[HTTP_DATE], int64_t unix_secs)
{
	if (unix_secs < DATE_FIRST)
		unix_secs = DATE_FIRST;
	if (unix_secs > DATE_LAST)
		unix_secs = DATE_LAST;
	time_t t = (time_t)unix_secs;
	struct tm tm;
	gmtime_r(&t, &tm);
	snprintf(out, HTTP_DATE, "%s, %02u %s %04u %02u:%02u:%02u GMT", day_names[tm.tm_wday % 7],
		 (unsigned)tm.tm_mday % 100, month_names[tm.tm_mon % 12],
		 (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
		 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
	return out;
}

static int two_digits(const char *s)
{
	return (s[0] - '0') * 10 + (s[1] - '0');
}

int http_date_parse(const char *s, int64_t *unix_secs)
{
	if (strnlen(s, HTTP_DATE) != strlen("Sun, 06 Nov 1994 08:49:37 GMT"))
		return -1;
	struct tm tm = {
		.tm_mday = two_digits(s + 5),
		.tm_year = two_digits(s + 12) * 100 + two_digits(s + 14) - 1900,
		.tm_hour = two_digits(s + 17),
		.tm_min = two_digits(s + 20),
		.tm_sec = two_digits(s + 23),
	};
	while (tm.tm_mon < 12 && memcmp(s + 8, month_names[tm.tm_mon], 3) != 0)
		tm.tm_mon++;
	if (tm.tm_mon == 12)
		return -1;
	/* Only a well-formed date that exists, with its own day of the week, reads the same again.
	 */
	int64_t secs = (int64_t)timegm(&tm);
	char again[HTTP_DATE];
	if (strcmp(http_date(again, secs), s) != 0)
		return -1;
	*unix_secs = secs;
	return 0;
}

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t");
}

/* Decimal digits into *v. What passes 64 bits stays at the largest value, which no body reaches. */
static const char *read_number(const char *p, uint64_t *v)
{
	for (*v = 0; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(*v, 10, v) ||
		    __builtin_add_overflow(*v, (uint64_t)(*p - '0'), v)) {
			*v = UINT64_MAX;
			return p + strspn(p, "0123456789");
		}
	}
	return p;
}

enum range_answer http_range(const char *field, uint64_t size, uint64_t *off, uint64_t *len)
{
	if (!field || strncasecmp(field, "bytes=", 6) != 0)
		return RANGE_NONE;
	uint64_t first, last;
	const char *p = skip_space(field + 6);
	const char *dash = read_number(p, &first);
	if (*dash != '-')
		return RANGE_NONE;
	const char *end = read_number(dash + 1, &last);
	bool has_first = dash > p, has_last = end > dash + 1;
	if (*skip_space(end) || (!has_first && !has_last))
		return RANGE_NONE;
	if (has_first && has_last && last < first)
		return RANGE_NONE;

	if (!has_first) /* "-n": the last n bytes */
		first = last < size ? size - last : 0;
	if (first >= size)
		return RANGE_BAD;
	if (!has_first || !has_last || last > size - 1)
		last = size - 1;
	*off = first;
	*len = last - first + 1;
	return RANGE_PART;
}

enum coding { CODING_ABSENT, CODING_REFUSED, CODING_ALLOWED };

/* "0", "0.", "0.000": anything else, also what is no weight at all, refuses nothing. */
static bool weight_is_zero(const char *p)
{
	if (*p++ != '0')
		return false;
	if (*p == '.')
		p += 1 + strspn(p + 1, "0");
	p = skip_space(p);
	return !*p || *p == ',' || *p == ';';
}

/* p is behind the name of a coding, at its parameters. */
static enum coding weigh(const char *p)
{
	for (;;) {
		p += strcspn(p, ";,");
		if (*p != ';')
			return CODING_ALLOWED;
		p = skip_space(p + 1);
		if (!strncasecmp(p, "q=", 2))
			return weight_is_zero(p + 2) ? CODING_REFUSED : CODING_ALLOWED;
	}
}

/* What the first mention of a coding in an Accept-Encoding field, or a type in Accept, says. */
static enum coding find_coding(const char *field, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = field; *p; p += *p == ',') {
		p = skip_space(p);
		if (strcspn(p, " \t;,") == n && !strncasecmp(p, name, n))
			return weigh(p + n);
		p += strcspn(p, ",");
	}
	return CODING_ABSENT;
}

static enum coding judge(const char *field, const char *name)
{
	enum coding c = field ? find_coding(field, name) : CODING_ABSENT;
	return c == CODING_ABSENT && field ? find_coding(field, "*") : c;
}

bool http_accepts_type(const char *field, const char *type)
{
	return field && find_coding(field, type) == CODING_ALLOWED;
}

bool http_accepts_gzip(const char *field)
{
	return judge(field, "gzip") == CODING_ALLOWED;
}

bool http_accepts_identity(const char *field)
{
	return judge(field, "identity") != CODING_REFUSED;
}

/* RFC 7617 forbids control characters; a NUL would also end the C string early. */
static bool has_control(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < ' ' || p[i] == 0x7f)
			return true;
	return false;
}

static int copy_user(const char *plain, size_t n, char *out, size_t cap)
{
	const char *colon = n ? memchr(plain, ':', n) : NULL;
	if (!colon)
		return -1;
	size_t user = (size_t)(colon - plain);
	if (user >= cap || has_control(plain, user))
		return -1;
	memcpy(out, plain, user);
	out[user] = '\0';
	return 0;
}

int http_basic_user(const char *field, char *out, size_t cap)
{
	if (!field || strncasecmp(field, "Basic ", 6) != 0)
		return -1;
	field += 6 + strspn(field + 6, " ");
	size_t n = strcspn(field, " \t");
	if (*skip_space(field + n))
		return -1;
	struct buf plain = BUF(4096);
	int rc = base64_get(&plain, field, n);
	if (!rc)
		rc = copy_user(plain.p, plain.len, out, cap);
	buf_free(&plain);
	return rc;
}

/* An entity tag without the mark of a weak one, which weak comparison ignores (RFC 9110, 8.8.3.2).
 */
static const char *opaque(const char *tag)
{
	return strncmp(tag, "W/", 2) ? tag : tag + 2;
}

bool http_etag_match(const char *field, const char *etag)
{
	if (!field || !etag)
		return false;
	const char *p = skip_space(field);
	if (*p == '*')
		return !*skip_space(p + 1);
	const char *want = opaque(etag);
	size_t n = strlen(want);
	for (;;) {
		p += strspn(p, " \t,");
		p = opaque(p);
		const char *close = *p == '"' ? strchr(p + 1, '"') : NULL;
		if (!close)
			return false;
		if ((size_t)(close + 1 - p) == n && !memcmp(p, want, n))
			return true;
		p = close + 1;
	}
}

bool http_type_is(const char *field, const char *type)
{
	if (!field)
		return false;
	field = skip_space(field);
	size_t n = strlen(type);
	if (strncasecmp(field, type, n) != 0)
		return false;
	field = skip_space(field + n);
	return !*field || *field == ';';
}
