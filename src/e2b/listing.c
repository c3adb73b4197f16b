#include <json-c/json.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/control.h"
#include "wire/uri.h"

#define PAGES_MAX 10000 /* a server that never stops must not keep us for ever */

struct page {
	const struct e2b_filter *filter;
	const char *token; /* "" for the first */
};

int info_read(struct json_object *o, struct e2b_info *out, struct err *err)
{
	struct e2b_info info = { 0 };
	const char *state = json_text(o, "state");
	struct json_object *metadata = json_member(o, "metadata");
	if (json_copy(o, "sandboxID", info.sandbox.id, sizeof info.sandbox.id) < 0 ||
	    json_copy(o, "domain", info.sandbox.domain, sizeof info.sandbox.domain) < 0 ||
	    json_copy(o, "envdAccessToken", info.sandbox.token, sizeof info.sandbox.token) < 0 ||
	    json_copy(o, "templateID", info.template_id, sizeof info.template_id) < 0 ||
	    address_check_id(info.sandbox.id, NULL) < 0)
		return err_set(err, ERR_INTERNAL, "a sandbox with fields that cannot be used");
	info.paused = state && !strcmp(state, "paused");
	info.started_us = json_time_us(o, "startedAt");
	info.end_us = json_time_us(o, "endAt");
	if (json_object_is_type(metadata, json_type_object))
		info.metadata = metadata;
	*out = info;
	return 0;
}

const char *e2b_metadata(const struct e2b_info *info, const char *key)
{
	return json_text(info->metadata, key);
}

void e2b_info_free(struct e2b_info *info)
{
	json_drop(&info->metadata);
}

static int fill_page(struct call *call, bool v1, const void *request)
{
	const struct page *p = request;
	const struct e2b_filter *f = p->filter;
	struct buf *url = &call->url;
	if (buf_adds(url, v1 ? "/sandboxes?" : "/v2/sandboxes?limit=100"))
		return -1;
	if (f->nmetadata &&
	    (buf_adds(url, "&metadata=") || query_metadata(url, f->metadata, f->nmetadata)))
		return -1;
	if (v1)
		return 0; /* it knows neither states nor pages */
	if (f->state && buf_addf(url, "&state=%s", f->state))
		return -1;
	return *p->token
		       ? buf_adds(url, "&nextToken=") || uri_encode(url, p->token, strlen(p->token))
		       : 0;
}

static int give_page(const struct call *call, const struct e2b_filter *filter, e2b_info_fn *fn,
		     void *ctx, struct err *err)
{
	_cleanup_(json_drop) struct json_object *all = NULL;
	if (json_read(&all, call->answer.p, call->answer.len, err) < 0)
		return -1;
	if (!json_object_is_type(all, json_type_array))
		return err_set(err, ERR_INTERNAL, "list: the answer is no list");
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		struct e2b_info info;
		if (info_read(json_object_array_get_idx(all, i), &info, err) < 0)
			return -1;
		/* The older list may give states that were not asked for. */
		if (filter->state && info.paused != !strcmp(filter->state, "paused"))
			continue;
		if (fn(ctx, &info) < 0)
			return err_set(err, ERR_ABANDONED, "list: given up by the caller");
	}
	return 0;
}

int e2b_list(struct e2b *c, const struct e2b_filter *filter, e2b_info_fn *fn, void *ctx,
	     const struct e2b_wait *wait, struct err *err)
{
	static const struct e2b_filter all;
	int64_t since = client_begin(c), deadline = client_deadline(c, wait);
	char token[sizeof((struct call *)0)->next_token] = "";
	struct page page = { filter ? filter : &all, token };
	struct operation op = {
		"list", "GET", ROUTE_LIST, false, fill_page, &page, LIST_ANSWER_MAX
	};
	int rc = 0;
	for (int pages = 0; rc == 0; pages++) {
		struct call call;
		rc = control_run(c, &op, &call, deadline, wait, err);
		if (rc == 0)
			rc = give_page(&call, page.filter, fn, ctx, err);
		bool stuck = !strcmp(token, call.next_token) || pages >= PAGES_MAX;
		memcpy(token, call.next_token, sizeof token);
		call_free(&call);
		if (!*token)
			break;
		if (rc == 0 && stuck)
			rc = err_set(err, ERR_INTERNAL, "list: the pages do not end");
	}
	return client_end(c, since, NULL, rc, err);
}
