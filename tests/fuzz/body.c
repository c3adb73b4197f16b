/* JSON bodies of requests to the gateway, and their fields. */
#include "fuzz.h"

#include "api/answer.h"
#include "api/body.h"
#include "wire/jsontext.h"
#include "wire/utf8.h"

#define DEPTH_MAX 32

/* ---- what body.c calls of the gateway ---- */

const char *web_param(const struct web_req *r, const char *name)
{
	(void)r;
	(void)name;
	return NULL;
}

void answer_problem(struct call *c, enum problem problem, const char *fmt, ...)
{
	(void)fmt;
	CHECK(problem == BAD_REQUEST && c->status == 0);
	c->status = 400;
}

/* ---- what must hold ---- */

static void check_text(const char *s, size_t n)
{
	CHECK(strlen(s) == n && utf8_valid(s, n));
}

static void check_value(struct json_object *o, int depth)
{
	CHECK(depth <= DEPTH_MAX);
	if (json_object_is_type(o, json_type_string))
		check_text(json_object_get_string(o), (size_t)json_object_get_string_len(o));
	for (size_t i = 0;
	     json_object_is_type(o, json_type_array) && i < json_object_array_length(o); i++)
		check_value(json_object_array_get_idx(o, i), depth + 1);
	if (!json_object_is_type(o, json_type_object))
		return;
	json_object_object_foreach(o, key, value)
	{
		check_text(key, strlen(key));
		check_value(value, depth + 1);
	}
}

/* A getter that fails has answered; one that does not, has not. */
static void check_fields(struct call *c, struct json_object *o)
{
	struct json_object *array;
	struct e2b_pair *pairs;
	const char *text;
	size_t n;
	int rc = body_text(c, o, "code", &text, &n);
	CHECK((rc == 0) == (c->status == 0));
	if (text)
		check_text(text, n);
	c->status = 0;
	rc = body_array(c, o, "packages", &array);
	CHECK((rc == 0) == (c->status == 0));
	CHECK(!array || json_object_is_type(array, json_type_array));
	c->status = 0;
	rc = body_pairs(c, o, "envs", &pairs, &n);
	CHECK((rc == 0) == (c->status == 0) && n <= 100);
	for (size_t i = 0; rc == 0 && i < n; i++)
		CHECK(*pairs[i].key && !strpbrk(pairs[i].key, "= \n'\"$") && pairs[i].value);
	if (rc == 0)
		free(pairs);
}

/* Whether another reader of ours takes it, and it is not refused for its depth or a NUL. */
static bool is_surely_good(const char *p, size_t n)
{
	size_t opened = 0;
	for (size_t i = 0; i < n; i++)
		opened += p[i] == '{' || p[i] == '[';
	return opened < DEPTH_MAX - 2 && json_is_ascii_object(p, n) && !memmem(p, n, "u0000", 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	struct call c = { .body = { .p = copy_text(data, n), .len = n, .cap = n + 1, .max = n } };
	struct json_object *o = NULL;
	int rc = body_object(&c, &o);
	CHECK((rc == 0) == (c.status == 0));
	CHECK(rc == 0 || !is_surely_good(given, n));
	if (rc == 0) {
		CHECK(json_object_is_type(o, json_type_object));
		check_value(o, 1);
		check_fields(&c, o);
		json_object_put(o);
	}
	buf_free(&c.body);
	return 0;
}
