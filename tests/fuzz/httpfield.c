/* Values of header fields: dates, ranges, encodings, credentials, entity tags, media types. */
#include "fuzz.h"

#include "wire/base64.h"
#include "wire/httpfield.h"

static void check_date(const char *field)
{
	char shown[HTTP_DATE];
	int64_t secs;
	if (http_date_parse(field, &secs) == 0)
		CHECK(!strcmp(http_date(shown, secs), field));
}

static void check_range(const char *field)
{
	static const uint64_t sizes[] = { 0, 1, 100, UINT64_MAX };
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint64_t off = 7, len = 7;
		if (http_range(field, sizes[i], &off, &len) == RANGE_PART)
			CHECK(len > 0 && off < sizes[i] && len <= sizes[i] - off);
		else
			CHECK(off == 7 && len == 7);
	}
}

/* Who is named, is so also in our own writing. */
static void check_user(const char *field)
{
	char user[64], again[64];
	struct buf text = BUF(1024), pair = BUF(256);
	if (http_basic_user(field, user, sizeof user))
		return;
	CHECK(strlen(user) < sizeof user && !strpbrk(user, ":\r\n\t\x7f"));
	CHECK(buf_addf(&pair, "%s:a:b", user) == 0 && buf_adds(&text, "basic ") == 0 &&
	      base64_put(&text, pair.p, pair.len) == 0);
	CHECK(http_basic_user(text.p, again, sizeof again) == 0 && !strcmp(user, again));
	CHECK(http_basic_user(text.p, again, strlen(user)) < 0);
	buf_free(&text);
	buf_free(&pair);
}

static void check_tag(const char *field)
{
	struct buf tag = BUF(64u << 10), list = BUF(64u << 10);
	size_t n = strcspn(field, "\"");
	CHECK(buf_addf(&tag, "\"%.*s\"", (int)n, field) == 0 &&
	      buf_addf(&list, "\"\", W/%s", tag.p) == 0);
	CHECK(http_etag_match(tag.p, tag.p) && http_etag_match(list.p, tag.p));
	CHECK(!http_etag_match("\"x\"", "\"y\""));
	http_etag_match(field, tag.p);
	buf_free(&tag);
	buf_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *field = copy_text(data, n);
	check_date(field);
	check_range(field);
	check_user(field);
	check_tag(field);
	/* A client that lists neither can be given everything but gzip. */
	if (!strcasestr(field, "gzip") && !strchr(field, '*'))
		CHECK(!http_accepts_gzip(field));
	if (!strcasestr(field, "identity") && !strchr(field, '*'))
		CHECK(http_accepts_identity(field));
	if (http_type_is(field, "application/json"))
		CHECK(!http_type_is(field, "multipart/form-data"));
	return 0;
}
