/* JSON that is written without a tree, read again by a library; and the check of a whole object. */
#include "fuzz.h"

#include <json-c/json.h>

#include "wire/jsontext.h"
#include "wire/utf8.h"

#define MAX   (1u << 20)
#define DEPTH 70 /* more than what is accepted */

/* As our own readers do. */
static struct json_object *parse(const char *p, size_t n)
{
	_cleanup_(buf_free) struct buf mended = BUF(n);
	CHECK(json_mend_pairs(&p, &n, &mended) == 0);
	struct json_tokener *t = json_tokener_new_ex(DEPTH);
	json_tokener_set_flags(t, JSON_TOKENER_STRICT);
	struct json_object *o = json_tokener_parse_ex(t, p, (int)n);
	CHECK(json_tokener_get_error(t) == json_tokener_success);
	json_tokener_free(t);
	return o;
}

/* The text comes back, but for bytes that are none. */
static void check_string(const struct buf *json, const struct buf *clean)
{
	struct json_object *o = parse(json->p, json->len);
	CHECK(json_object_is_type(o, json_type_string));
	struct buf text = { .p = (char *)json_object_get_string(o),
			    .len = (size_t)json_object_get_string_len(o) };
	CHECK(same(&text, clean));
	json_object_put(o);
}

static void check_written(const char *p, size_t n)
{
	struct buf clean = BUF(MAX), ascii = BUF(MAX), utf8 = BUF(MAX), object = BUF(MAX),
		   small = BUF(n);
	struct utf8 u = { 0 };
	CHECK(utf8_feed(&u, p, n, &clean) == 0 && utf8_finish(&u, &clean) == 0);
	CHECK(json_put_string(&ascii, p, n) == 0);
	for (size_t i = 0; i < ascii.len; i++)
		CHECK(ascii.p[i] >= ' ' && (unsigned char)ascii.p[i] < 0x80);
	CHECK(json_put_utf8(&utf8, p, n) == 0 && utf8_valid(utf8.p, utf8.len));
	CHECK(utf8.len <= ascii.len);
	check_string(&ascii, &clean);
	check_string(&utf8, &clean);
	CHECK(buf_addf(&object, "{%s:[%s]}", ascii.p, ascii.p) == 0);
	CHECK(json_is_ascii_object(object.p, object.len));
	CHECK(json_put_string(&small, p, n) < 0 && small.len == 0);
	buf_free(&clean);
	buf_free(&ascii);
	buf_free(&utf8);
	buf_free(&object);
	buf_free(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	check_written(given, n);
	if (json_is_ascii_object(given, n)) {
		size_t end = n;
		while (given[end - 1] != '}')
			end--;
		struct json_object *o = parse(given, end);
		CHECK(json_object_is_type(o, json_type_object));
		json_object_put(o);
	}
	return 0;
}
