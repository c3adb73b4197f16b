#include "e2b/address.h"

#include <ctype.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "e2b/remote_files.h"
#include "wire/base64.h"
#include "wire/uri.h"

static bool is_set(const char *s)
{
	return s && *s;
}

static const char *without_scheme(const char *s)
{
	const char *colon = strstr(s, "://");
	return colon ? colon + 3 : s;
}

static size_t without_slashes(const char *s)
{
	size_t n = strlen(s);
	while (n && s[n - 1] == '/')
		n--;
	return n;
}

/* A scheme or trailing slash is a common slip, and the SDKs forgive it. */
static int set_domain(char *out, size_t cap, const char *domain, struct err *err)
{
	const char *s = without_scheme(is_set(domain) ? domain : "e2b.app");
	size_t n = without_slashes(s);
	if (!n || n >= cap)
		return err_set(err, ERR_INVALID, "E2B_DOMAIN is no domain: '%s'", domain);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr(".-:", s[i]))
			return err_set(err, ERR_INVALID, "E2B_DOMAIN is no domain: '%s'", domain);
	snprintf(out, cap, "%.*s", (int)n, s);
	return 0;
}

static int set_url(char *out, size_t cap, const char *name, const char *url, struct err *err)
{
	size_t n = without_slashes(url);
	bool scheme = !strncasecmp(url, "https://", 8) || !strncasecmp(url, "http://", 7);
	if (!scheme || n <= strlen("https:/") || n >= cap || !address_is_field(url) ||
	    strpbrk(url, " ?#"))
		return err_set(err, ERR_INVALID, "%s is no http or https URL: '%s'", name, url);
	snprintf(out, cap, "%.*s", (int)n, url);
	return 0;
}

int address_init(struct address *a, const struct e2b_config *config, struct err *err)
{
	char url[512];
	struct address made = { .fixed = is_set(config->sandbox_url) };
	if (set_domain(made.domain, sizeof made.domain, config->domain, err) < 0)
		return -1;
	snprintf(url, sizeof url, "https://api.%s", made.domain);
	if (set_url(made.api, sizeof made.api, "E2B_API_URL",
		    is_set(config->api_url) ? config->api_url : url, err) < 0)
		return -1;
	snprintf(url, sizeof url, "https://sandbox.%s", made.domain);
	if (set_url(made.sandbox, sizeof made.sandbox, "E2B_SANDBOX_URL",
		    made.fixed ? config->sandbox_url : url, err) < 0)
		return -1;
	*a = made;
	return 0;
}

int address_check_id(const char *id, struct err *err)
{
	size_t n = id ? strlen(id) : 0;
	bool good = n > 0 && n < sizeof((struct e2b_sandbox *)0)->id;
	for (size_t i = 0; good && i < n; i++)
		good = isalnum((unsigned char)id[i]) || (i && strchr("-_", id[i]));
	return good ? 0 : err_set(err, ERR_INVALID, "this is no sandbox id");
}

bool address_is_field(const char *s)
{
	size_t n = strlen(s);
	for (size_t i = 0; i < n; i++)
		if (s[i] < ' ' || s[i] > '~')
			return false;
	return !n || (s[0] != ' ' && s[n - 1] != ' ');
}

int address_by_host(const struct address *a, const struct e2b_sandbox *sb, int port,
		    struct buf *out)
{
	return buf_addf(out, "https://%d-%s.%s", port, sb->id,
			sb->domain[0] ? sb->domain : a->domain);
}

int address_sign(struct buf *out, const char *path, const char *operation, const char *user,
		 const char *token, int64_t unix_expiry)
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	struct buf text = BUF(64u << 10), sum = BUF(128);
	int rc = buf_addf(&text, "%s:%s:%s:%s", path, operation, user, token);
	if (!rc && unix_expiry)
		rc = buf_addf(&text, ":%" PRId64, unix_expiry);
	if (!rc && EVP_Digest(text.p, text.len, hash, &n, EVP_sha256(), NULL) != 1)
		rc = -1;
	if (!rc)
		rc = buf_adds(&sum, "v1_") || base64_put(&sum, hash, n) ? -1 : 0;
	while (!rc && sum.p[sum.len - 1] == '=')
		sum.p[--sum.len] = '\0';
	if (!rc)
		rc = buf_add(out, sum.p, sum.len);
	buf_free(&text);
	buf_free(&sum);
	return rc;
}

int e2b_file_query(const struct e2b_sandbox *sb, const char *path, bool write, int64_t unix_expiry,
		   struct buf *out, struct err *err)
{
	if (buf_adds(out, "/files?path=") || uri_encode(out, path, strlen(path)))
		return err_set(err, ERR_LIMIT, "the path is too long");
	if (!sb->token[0])
		return 0; /* a sandbox without a token asks for no signature */
	struct buf sum = BUF(128);
	int rc = address_sign(&sum, path, write ? "write" : "read", "", sb->token, unix_expiry);
	if (!rc)
		rc = buf_adds(out, "&signature=") || uri_encode(out, sum.p, sum.len);
	buf_free(&sum);
	if (rc || (unix_expiry && buf_addf(out, "&signature_expiration=%" PRId64, unix_expiry)))
		return err_set(err, ERR_LIMIT, "the file's URL is too long");
	return 0;
}
