/* The E2B client over TLS: certificates are verified, and where one host for all sandboxes is
 * refused, each is reached by its own name. libcurl resolves *.localhost by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>

#include "base/buf.h"
#include "e2b/remote_files.h"
#include "e2b/run.h"
#include "fake_server.h"

#define NO_CONTENT "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
#define REFUSED    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nInvalid host"
#define GONE                                                                                       \
	"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n"                                    \
	"{\"sandboxId\":\"iabc\",\"message\":\"The sandbox was not found\",\"code\":502}"

static SSL_CTX *tls;
static char ca_file[] = "/tmp/sandgate-ca-XXXXXX", other_file[] = "/tmp/sandgate-ca-XXXXXX";
static const struct e2b_sandbox sandbox = { .id = "iabc", .token = "tok" };

/* A certificate that signs itself, so that it is its own authority. */
static void make_certificate(char *file, SSL_CTX *for_server)
{
	X509 *cert = X509_new();
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509V3_CTX ctx;
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), -60);
	X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
	X509_set_pubkey(cert, key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
				   (const unsigned char *)"test", -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(cert));
	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
	X509_EXTENSION *names = X509V3_EXT_conf_nid(
		NULL, &ctx, NID_subject_alt_name,
		"DNS:sandbox.localhost,DNS:api.localhost,DNS:49983-iabc.localhost");
	X509_add_ext(cert, names, -1);
	X509_EXTENSION_free(names);
	assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
	int fd = mkstemp(file);
	assert_true(fd >= 0);
	FILE *f = fdopen(fd, "w");
	PEM_write_X509(f, cert);
	fclose(f);
	if (for_server) {
		assert_int_equal(SSL_CTX_use_certificate(for_server, cert), 1);
		assert_int_equal(SSL_CTX_use_PrivateKey(for_server, key), 1);
	}
	X509_free(cert);
	EVP_PKEY_free(key);
}

struct bench {
	struct fake fake;
	struct e2b *c;
	struct err err;
};

static void open_bench(struct bench *b, const struct fake_reply *replies, size_t n, const char *ca)
{
	char domain[64];
	memset(b, 0, sizeof *b);
	fake_start(&b->fake, replies, n, tls);
	snprintf(domain, sizeof domain, "https://localhost:%d/", b->fake.port);
	const struct e2b_config config = { .api_key = "e2b_0", .domain = domain, .ca_file = ca };
	assert_int_equal(e2b_new(&b->c, &config, &b->err), 0);
}

static void close_bench(struct bench *b)
{
	e2b_free(b->c);
	fake_stop(&b->fake);
}

static void assert_host(const struct bench *b, int request, const char *host)
{
	char want[128];
	snprintf(want, sizeof want, "\r\nHost: %s.localhost:%d\r\n", host, b->fake.port);
	if (!strstr(b->fake.seen[request], want))
		fail_msg("request %d is not to %s: %s", request, host, b->fake.seen[request]);
}

static void one_host_for_all(void **state)
{
	static const struct fake_reply script[] = { { NO_CONTENT, FAKE_CLOSE },
						    { NO_CONTENT, FAKE_CLOSE },
						    { NO_CONTENT, FAKE_CLOSE } };
	struct bench b;
	(void)state;
	open_bench(&b, script, 3, ca_file);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), 0);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), 0);
	assert_int_equal(b.fake.requests, 3); /* the first found out the way */
	for (int i = 0; i < 3; i++) {
		assert_host(&b, i, "sandbox");
		assert_non_null(strstr(b.fake.seen[i], "\r\nE2b-Sandbox-Id: iabc\r\n"));
		assert_non_null(strstr(b.fake.seen[i], "\r\nE2b-Sandbox-Port: 49983\r\n"));
	}
	close_bench(&b);
}

static void its_own_name_where_that_is_refused(void **state)
{
	static const struct fake_reply script[] = {
		{ REFUSED, FAKE_CLOSE },
		{ GONE, FAKE_CLOSE },
		{ NO_CONTENT, FAKE_CLOSE },
		{ NO_CONTENT, FAKE_CLOSE },
	};
	struct bench b;
	(void)state;
	open_bench(&b, script, 4, ca_file);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), 0);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), 0);
	assert_int_equal(b.fake.requests, 4);
	assert_host(&b, 0, "sandbox");
	for (int i = 1; i < 4; i++) {
		assert_host(&b, i, "49983-iabc");
		assert_null(strstr(b.fake.seen[i], "E2b-Sandbox-Id"));
		assert_non_null(strstr(b.fake.seen[i], "\r\nX-Access-Token: tok\r\n"));
	}
	close_bench(&b);
}

static void a_sandbox_of_another_domain(void **state)
{
	static const struct fake_reply script[] = { { NO_CONTENT, FAKE_CLOSE } };
	struct bench b;
	struct e2b_sandbox elsewhere = sandbox;
	struct buf url = { .max = 1000 };
	(void)state;
	open_bench(&b, script, 1, ca_file);
	snprintf(elsewhere.domain, sizeof elsewhere.domain, "localhost.:%d", b.fake.port);
	assert_int_equal(e2b_file_url(b.c, &elsewhere, "/x", false, 0, &url, &b.err), 0);
	assert_ptr_equal(strstr(url.p, "https://49983-iabc.localhost.:"), url.p);
	free(url.p);
	close_bench(&b);
}

static void neither_way_leads_there(void **state)
{
	static const struct fake_reply script[] = { { REFUSED, FAKE_CLOSE },
						    { REFUSED, FAKE_CLOSE } };
	struct bench b;
	(void)state;
	open_bench(&b, script, 2, ca_file);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_UNAVAILABLE);
	assert_int_equal(e2b_last(b.c)->why, E2B_WHY_NOT_SENT);
	close_bench(&b);
}

static void a_wrong_certificate_is_refused(void **state)
{
	static const struct fake_reply script[] = { { NO_CONTENT, FAKE_CLOSE } };
	struct bench b;
	struct e2b_sandbox made;
	const struct e2b_create what = { .template_id = "t", .timeout_secs = 60 };
	(void)state;
	open_bench(&b, script, 1, other_file);
	assert_int_equal(e2b_create(b.c, &what, &made, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_INTERNAL);
	assert_int_equal(e2b_last(b.c)->why, E2B_WHY_NOT_SENT);
	assert_int_equal(e2b_last(b.c)->tries, 1);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_INTERNAL);
	assert_int_equal(b.fake.requests, 0);
	close_bench(&b);
}

static int set_up(void **state)
{
	(void)state;
	tls = SSL_CTX_new(TLS_server_method());
	make_certificate(ca_file, tls);
	make_certificate(other_file, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	SSL_CTX_free(tls);
	unlink(ca_file);
	unlink(other_file);
	return 0;
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("no_proxy", "*", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_host_for_all),
		cmocka_unit_test(its_own_name_where_that_is_refused),
		cmocka_unit_test(a_sandbox_of_another_domain),
		cmocka_unit_test(neither_way_leads_there),
		cmocka_unit_test(a_wrong_certificate_is_refused),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
