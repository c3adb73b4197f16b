/* JSON bodies of requests to the engine, and their fields. */
#include "fuzz.h"

#include "engine/answer.h"
#include "wire/jsontext.h"
#include "wire/utf8.h"

#define DEPTH_MAX 32

static bool is_text(const char *s)
{
	return utf8_valid(s, strlen(s));
}

static void check_fields(struct json_object *o)
{
	struct json_object *object = NULL;
	struct err err = { 0 };
	const char *text = NULL;
	int64_t number = 0;
	bool flag;
	int rc = field_string(o, "path", &text, &err);
	CHECK(rc < 0 ? err.code == ERR_INVALID : rc == (text != NULL));
	CHECK(!text || is_text(text));
	if (field_int(o, "timeout", 1, 100, &number, &err) == 1)
		CHECK(number >= 1 && number <= 100);
	else
		CHECK(number == 0);
	field_bool(o, "secure", &flag, &err);
	if (field_strings(o, "envs", true, &object, &err) != 1)
		return;
	json_object_object_foreach(object, key, value)
	{
		CHECK(*key && !strchr(key, '='));
		CHECK(json_object_is_type(value, json_type_string));
		CHECK(strlen(json_object_get_string(value)) ==
		      (size_t)json_object_get_string_len(value));
	}
}

/* A block of its own: what stands behind the text is not the reader's business. */
static int on_body(void *ctx, const char *p, size_t n)
{
	struct json_object **o = ctx;
	struct err err = { 0 };
	int rc = field_root(o, p, n, &err);
	CHECK(rc == 0 ? json_object_is_type(*o, json_type_object) : err.code == ERR_INVALID);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	struct json_object *o = NULL;
	size_t opened = 0;
	for (size_t i = 0; i < n; i++)
		opened += p[i] == '{' || p[i] == '[';
	if (feed_piece(n ? p : "", n, on_body, &o) == 0)
		check_fields(o);
	else
		CHECK(opened >= DEPTH_MAX - 2 || !json_is_ascii_object(p, n));
	json_object_put(o);
	return 0;
}
