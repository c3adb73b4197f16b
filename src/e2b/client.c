#include "e2b/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define TIMEOUT_SECS 60

static int copy_settings(struct e2b *c, const struct e2b_config *config, struct err *err)
{
	const char *key = config->api_key ? config->api_key : "";
	bool has_url = config->api_url && *config->api_url;
	if (!*key && !has_url)
		return err_set(err, ERR_INVALID, "E2B_API_KEY is required");
	if (!address_is_field(key) || strlen(key) > 1024)
		return err_set(err, ERR_INVALID, "E2B_API_KEY holds what no key can hold");
	if (address_init(&c->address, config, err) < 0)
		return -1;
	c->timeout_us = (config->timeout_secs ? config->timeout_secs : TIMEOUT_SECS) * SECOND_US;
	c->routing = c->address.fixed ? ROUTING_HEADERS : ROUTING_UNKNOWN;
	c->api_key = strdup(key);
	if (config->ca_file && *config->ca_file)
		c->ca_file = strdup(config->ca_file);
	if (!c->api_key || (config->ca_file && *config->ca_file && !c->ca_file))
		return err_set(err, ERR_INTERNAL, "no memory");
	return 0;
}

void e2b_prepare(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int e2b_new(struct e2b **out, const struct e2b_config *config, struct err *err)
{
	struct e2b *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(err, ERR_INTERNAL, "no memory");
	if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(c);
		return err_set(err, ERR_INTERNAL, "libcurl cannot be used");
	}
	c->multi = curl_multi_init();
	if (!c->multi)
		err_set(err, ERR_INTERNAL, "no memory");
	if (!c->multi || copy_settings(c, config, err) < 0) {
		e2b_free(c);
		return -1;
	}
	curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, 8L);
	*out = c;
	return 0;
}

void e2b_free(struct e2b *c)
{
	if (!c)
		return;
	curl_multi_cleanup(c->multi);
	if (c->api_key)
		explicit_bzero(c->api_key, strlen(c->api_key));
	free(c->api_key);
	free(c->ca_file);
	free(c);
	curl_global_cleanup();
}

const struct e2b_last *e2b_last(const struct e2b *c)
{
	return &c->last;
}

int64_t client_deadline(const struct e2b *c, const struct e2b_wait *wait)
{
	return wait && wait->deadline_mono_us ? wait->deadline_mono_us
					      : clock_mono_us() + c->timeout_us;
}

int64_t client_begin(struct e2b *c)
{
	c->last = (struct e2b_last){ 0 };
	return clock_mono_us();
}

void client_names(struct e2b *c, const char *sandbox)
{
	snprintf(c->last.sandbox, sizeof c->last.sandbox, "%s", sandbox);
}

int client_end(struct e2b *c, int64_t since, const struct e2b_sandbox *sb, int rc, struct err *err)
{
	c->last.us = clock_mono_us() - since;
	if (rc == 0)
		c->last.why = E2B_WHY_OTHER;
	if (rc < 0 && err) {
		answer_scrub(err, c->api_key);
		if (sb) {
			answer_scrub(err, sb->token);
			answer_scrub(err, sb->traffic_token);
		}
		err->remote = true;
	}
	if (sb)
		client_names(c, sb->id);
	if (c->done && c->last.what)
		c->done(c->done_ctx, &c->last, rc < 0 ? err : NULL);
	return rc;
}

void e2b_on_done(struct e2b *c, e2b_done_fn *fn, void *ctx)
{
	c->done = fn;
	c->done_ctx = ctx;
}

int e2b_file_url(const struct e2b *c, const struct e2b_sandbox *sb, const char *path, bool write,
		 int64_t unix_expiry, struct buf *out, struct err *err)
{
	if (address_check_id(sb->id, err) < 0)
		return -1;
	if (c->address.fixed ? buf_adds(out, c->address.sandbox)
			     : address_by_host(&c->address, sb, PORT_ENVD, out))
		return err_set(err, ERR_LIMIT, "the file's URL is too long");
	return e2b_file_query(sb, path, write, unix_expiry, out, err);
}
