#include "e2b/bodies.h"

#include <string.h>

#include "wire/jsontext.h"
#include "wire/uri.h"

static int put_text(struct buf *out, const char *s)
{
	return json_put_string(out, s, strlen(s));
}

static int put_pairs(struct buf *out, const char *key, const struct e2b_pair *pairs, size_t n)
{
	if (!n)
		return 0;
	if (buf_addf(out, ",\"%s\":{", key))
		return -1;
	for (size_t i = 0; i < n; i++)
		if ((i && buf_adds(out, ",")) || put_text(out, pairs[i].key) ||
		    buf_adds(out, ":") || put_text(out, pairs[i].value))
			return -1;
	return buf_adds(out, "}");
}

static int put_member(struct buf *out, const char *key, const char *value)
{
	return !value || !*value ? 0 : buf_addf(out, ",\"%s\":", key) || put_text(out, value);
}

int body_create(struct buf *out, const struct e2b_create *what, bool v1)
{
	if (buf_adds(out, "{\"templateID\":") || put_text(out, what->template_id) ||
	    buf_addf(out, ",\"timeout\":%d,\"allow_internet_access\":%s", what->timeout_secs,
		     what->no_internet ? "false" : "true") ||
	    put_pairs(out, "metadata", what->metadata, what->nmetadata) ||
	    put_pairs(out, "envVars", what->envs, what->nenvs))
		return -1;
	/* v2 always protects envd by a token; v1 has to be asked. */
	return buf_adds(out, v1 ? ",\"secure\":true}" : "}");
}

int body_timeout(struct buf *out, int secs)
{
	return buf_addf(out, "{\"timeout\":%d}", secs);
}

int body_code(struct buf *out, const struct e2b_code *code)
{
	if (buf_adds(out, "{\"code\":") || json_put_utf8(out, code->code, code->ncode) ||
	    put_member(out, "language", code->language) ||
	    put_member(out, "context_id", code->context_id) ||
	    put_pairs(out, "env_vars", code->envs, code->nenvs))
		return -1;
	return buf_adds(out, "}");
}

int body_context(struct buf *out, const char *language, const char *cwd)
{
	if (buf_adds(out, "{\"language\":") || put_text(out, language ? language : "python") ||
	    put_member(out, "cwd", cwd))
		return -1;
	return buf_adds(out, "}");
}

int body_command(struct buf *out, const struct e2b_command *command)
{
	if (buf_adds(out, "{\"process\":{\"cmd\":") || put_text(out, command->argv[0]) ||
	    buf_adds(out, ",\"args\":["))
		return -1;
	for (size_t i = 1; command->argv[i]; i++)
		if ((i > 1 && buf_adds(out, ",")) || put_text(out, command->argv[i]))
			return -1;
	if (buf_adds(out, "]") || put_pairs(out, "envs", command->envs, command->nenvs) ||
	    put_member(out, "cwd", command->cwd))
		return -1;
	return buf_adds(out, "},\"stdin\":false}");
}

int body_signal(struct buf *out, int pid, const char *signal)
{
	return buf_addf(out, "{\"process\":{\"pid\":%d},\"signal\":\"SIGNAL_%s\"}", pid, signal);
}

int body_texts(struct buf *out, const char *key, const char *value, const char *key2,
	       const char *value2)
{
	if (buf_addf(out, "{\"%s\":", key) || put_text(out, value))
		return -1;
	if (key2 && (buf_addf(out, ",\"%s\":", key2) || put_text(out, value2)))
		return -1;
	return buf_adds(out, "}");
}

int body_list(struct buf *out, const char *path, int depth)
{
	if (buf_adds(out, "{\"path\":") || put_text(out, path))
		return -1;
	return buf_addf(out, ",\"depth\":%d}", depth);
}

int body_watch(struct buf *out, const char *path, bool recursive)
{
	if (buf_adds(out, "{\"path\":") || put_text(out, path))
		return -1;
	return buf_adds(out, recursive ? ",\"recursive\":true}" : "}");
}

int query_metadata(struct buf *out, const struct e2b_pair *pairs, size_t n)
{
	struct buf once = BUF(out->max), twice = BUF(out->max);
	int rc = 0;
	for (size_t i = 0; !rc && i < 2 * n; i++) {
		const char *s = i % 2 ? pairs[i / 2].value : pairs[i / 2].key;
		once.len = 0;
		rc = uri_encode(&once, s, strlen(s)) ||
		     (i && buf_adds(&twice, i % 2 ? "=" : "&")) ||
		     uri_encode(&twice, once.len ? once.p : "", once.len);
	}
	if (!rc)
		rc = uri_encode(out, twice.len ? twice.p : "", twice.len);
	buf_free(&once);
	buf_free(&twice);
	return rc ? -1 : 0;
}
