#include "base/sha256.h"

#include <stdlib.h>
#include <openssl/evp.h>

#define BYTES 32

struct sha256 {
	EVP_MD_CTX *ctx;
};

static void put_hex(char out[SHA256_HEX], const unsigned char hash[BYTES])
{
	static const char digits[] = "0123456789abcdef";
	for (unsigned i = 0; i < BYTES; i++) {
		out[2 * i] = digits[hash[i] >> 4];
		out[2 * i + 1] = digits[hash[i] & 15];
	}
	out[2 * BYTES] = '\0';
}

void sha256_hex(char out[SHA256_HEX], const void *p, size_t n)
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	if (!EVP_Digest(p, n, hash, &len, EVP_sha256(), NULL) || len != BYTES)
		abort(); /* without memory; a wrong hash must never be compared */
	put_hex(out, hash);
}

struct sha256 *sha256_new(void)
{
	struct sha256 *s = calloc(1, sizeof *s);
	if (s)
		s->ctx = EVP_MD_CTX_new();
	if (s && s->ctx && EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL))
		return s;
	sha256_free(s);
	return NULL;
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
	if (n && !EVP_DigestUpdate(s->ctx, p, n))
		abort();
}

void sha256_finish(struct sha256 *s, char out[SHA256_HEX])
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	if (!EVP_DigestFinal_ex(s->ctx, hash, &len) || len != BYTES)
		abort();
	put_hex(out, hash);
}

void sha256_free(struct sha256 *s)
{
	if (!s)
		return;
	EVP_MD_CTX_free(s->ctx);
	free(s);
}
