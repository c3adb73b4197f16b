#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <openssl/evp.h>

void sha256_hex(char out[SHA256_HEX], const void *p, size_t n)
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	if (!EVP_Digest(p, n, hash, &len, EVP_sha256(), NULL) || len != 32)
		abort(); /* without memory; a wrong hash must never be compared */
	for (unsigned i = 0; i < len; i++)
		snprintf(out + 2 * i, 3, "%02x", hash[i]);
}
