#include "base/ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void random_bytes(unsigned char *out, size_t n)
{
	while (n) {
		ssize_t got = getrandom(out, n, 0);
		if (got < 0)
			abort(); /* no identifier may ever be guessable */
		out += got;
		n -= (size_t)got;
	}
}

void id_alnum(char *out, size_t n)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	for (size_t i = 0; i < n;) {
		unsigned char r[64];
		random_bytes(r, sizeof r);
		/* 252 = 7 * 36: a byte above it would favour the first letters. */
		for (size_t k = 0; k < sizeof r && i < n; k++)
			if (r[k] < 252)
				out[i++] = letters[r[k] % 36];
	}
	out[n] = '\0';
}

void id_uuid(char out[ID_UUID])
{
	unsigned char r[16];
	random_bytes(r, sizeof r);
	r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
	r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
	snprintf(out, ID_UUID,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0], r[1],
		 r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14],
		 r[15]);
}

bool secret_equal(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	unsigned char diff = na != nb;
	for (size_t i = 0; i < na; i++)
		diff |= (unsigned char)(a[i] ^ (nb ? b[i % nb] : 1));
	return diff == 0;
}
