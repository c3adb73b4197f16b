/* Queries for the engine's list of sandboxes: filters, orders, and tokens of pages. */
#include "fuzz.h"

#include "engine/answer.h"
#include "engine/listing.h"
#include "engine/sandbox.h"

#define SANDBOXES 4

static struct {
	const char *query;
	char token[512]; /* of the next page, or "" */
	int status;
	size_t shown;
	bool seen[SANDBOXES];
} page;

/* ---- what listing.c calls of the engine ---- */

const char *req_query(const struct req *r)
{
	(void)r;
	return page.query;
}

void req_add_header(struct req *r, const char *name, const char *value)
{
	(void)r;
	CHECK(is_printable(value, strlen(value)));
	if (!strcmp(name, "X-Next-Token"))
		snprintf(page.token, sizeof page.token, "%s", value);
}

void answer_error(struct req *r, int status, const char *fmt, ...)
{
	(void)r;
	(void)fmt;
	CHECK(status == 400);
	page.status = status;
}

void answer_json(struct req *r, int status, struct json_object *o)
{
	(void)r;
	page.status = status;
	page.shown = json_object_array_length(o);
	for (size_t i = 0; i < page.shown; i++) {
		struct json_object *row = json_object_array_get_idx(o, i), *id;
		CHECK(json_object_object_get_ex(row, "sandboxID", &id));
		size_t number = (size_t)(json_object_get_string(id)[1] - '0');
		CHECK(number < SANDBOXES && !page.seen[number]);
		page.seen[number] = true;
	}
	json_object_put(o);
}

int sandbox_count(const struct engine *e, enum sandbox_state state)
{
	(void)e;
	(void)state;
	return SANDBOXES;
}

/* ---- what must hold ---- */

static struct engine *some_sandboxes(void)
{
	static struct engine e;
	static struct sandbox all[SANDBOXES];
	if (e.sandboxes)
		return &e;
	CHECK(templates_load(&e.templates, NULL, NULL) == 0);
	struct json_object *metadata = json_object_new_object();
	json_object_object_add(metadata, "k", json_object_new_string("v w"));
	for (size_t i = 0; i < SANDBOXES; i++) {
		struct sandbox *s = &all[i];
		*s = (struct sandbox){ .state = i ? SANDBOX_RUNNING : SANDBOX_PAUSED,
				       .started_real = 1700000000000000 + (int64_t)(i / 2),
				       .next = i ? &all[i - 1] : NULL };
		snprintf(s->id, sizeof s->id, "i%zuaaaaaaaaaaaaaaaaaaa", i);
		s->config.template = i % 2 ? e.templates : e.templates->next;
		s->config.metadata = i < 2 ? metadata : NULL;
	}
	e.sandboxes = &all[SANDBOXES - 1];
	return &e;
}

/* Following the tokens shows nothing twice and comes to an end. */
static void check_pages(struct engine *e, const char *query)
{
	struct buf next = BUF(64u << 10);
	memset(&page, 0, sizeof page);
	page.query = query;
	for (int pages = 0;; pages++) {
		page.token[0] = '\0';
		page.shown = 0;
		listing_v2(e, NULL);
		CHECK(page.status == 200 || (page.status == 400 && !pages));
		if (!page.token[0])
			break;
		CHECK(page.shown > 0 && pages < SANDBOXES);
		next.len = 0;
		CHECK(buf_addf(&next, "nextToken=%s&%s", page.token, query) == 0);
		page.query = next.p;
	}
	buf_free(&next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *query = copy_text(data, n);
	check_pages(some_sandboxes(), query);
	memset(&page, 0, sizeof page);
	page.query = query;
	listing_v1(some_sandboxes(), NULL);
	return 0;
}
