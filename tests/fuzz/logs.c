/* Logs: queries, the input's first line, on what a start command printed, the rest, which comes in
 * pieces as long as the first byte says. */
#include "fuzz.h"

#include "engine/answer.h"
#include "engine/logs.h"
#include "engine/logview.h"
#include "wire/utf8.h"

static struct {
	const char *query;
	struct sandbox sandbox;
	const char *rows; /* the array that the answer must have */
} view;

/* ---- what logview.c calls of the engine ---- */

const char *req_query(const struct req *r)
{
	(void)r;
	return view.query;
}

void answer_error(struct req *r, int status, const char *fmt, ...)
{
	(void)r;
	(void)fmt;
	CHECK(status == 400);
}

void answer_json(struct req *r, int status, struct json_object *o)
{
	struct json_object *rows;
	(void)r;
	CHECK(status == 200 && json_object_object_get_ex(o, view.rows, &rows));
	CHECK(json_object_array_length(rows) <= LOGS_ENTRIES);
	const char *text = json_object_to_json_string(o);
	CHECK(utf8_valid(text, strlen(text)));
	json_object_put(o);
}

struct sandbox *sandbox_find(struct engine *e, const char *id)
{
	(void)e;
	(void)id;
	return &view.sandbox;
}

/* ---- what must hold ---- */

static void feed(struct logs *l, const char *p, size_t n, size_t step)
{
	struct logs_lines lines = { .level = LOGS_INFO };
	for (size_t at = 0; at < n; at += step)
		logs_lines_feed(&lines, l, p + at, n - at < step ? n - at : step);
	logs_lines_end(&lines, l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	size_t step = n ? data[0] + 1u : 1;
	_free_ char *query = take_line(&p, &n);
	struct logs *l = logs_new("i");
	CHECK(l);
	feed(l, p, n, step);
	view.query = query;
	view.sandbox.log = l;
	view.rows = "logs";
	logview_v2(NULL, NULL, "i");
	view.rows = "logEntries";
	logview_v1(NULL, NULL, "i");
	logs_free(l);
	return 0;
}
