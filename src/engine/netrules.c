#include "engine/netrules.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- entries ---- */

static uint32_t mask_of(unsigned bits)
{
	return bits ? ~0u << (32 - bits) : 0;
}

/* One or two digits, 0 to 32, without a zero in front. */
static int parse_bits(const char *s, unsigned char *out)
{
	size_t n = strspn(s, "0123456789");
	if (!n || n > 2 || s[n] || (n == 2 && s[0] == '0'))
		return -1;
	int bits = n == 2 ? (s[0] - '0') * 10 + (s[1] - '0') : s[0] - '0';
	*out = (unsigned char)bits;
	return bits > 32 ? -1 : 0;
}

static int parse_range(const char *text, struct net_range *out)
{
	char address[INET_ADDRSTRLEN];
	struct in_addr in;
	unsigned char bits = 32;
	size_t n = strcspn(text, "/");
	if (n >= sizeof address)
		return -1;
	memcpy(address, text, n);
	address[n] = '\0';
	if (inet_pton(AF_INET, address, &in) != 1 ||
	    (text[n] && parse_bits(text + n + 1, &bits) < 0))
		return -1;
	*out = (struct net_range){ ntohl(in.s_addr) & mask_of(bits), bits };
	return 0;
}

enum net_entry netrules_entry(const char *text, struct net_range *out)
{
	static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789.-_*:[]/";
	static const char telling[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ*:";
	if (parse_range(text, out) == 0)
		return NET_ENTRY_RANGE;
	/* Digits and dots alone are an address that is none. */
	if (*text && !text[strspn(text, name)] && text[strcspn(text, telling)])
		return NET_ENTRY_FOREIGN;
	return NET_ENTRY_BAD;
}

/* ---- sets of addresses ---- */

/* Both ends belong to it; 64 bits, so that one past the last address is a number. */
struct span {
	uint64_t first, last;
};

#define SPANS_MAX (3 * NETRULES_ENTRIES + 1)

/* In order, with a gap between any two. */
struct set {
	struct span span[SPANS_MAX];
	size_t n;
};

static int by_first(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

static void normalise(struct set *s)
{
	size_t n = 0;
	qsort(s->span, s->n, sizeof *s->span, by_first);
	for (size_t i = 0; i < s->n; i++) {
		struct span *last = n ? &s->span[n - 1] : NULL;
		if (!last || s->span[i].first > last->last + 1)
			s->span[n++] = s->span[i];
		else if (s->span[i].last > last->last)
			last->last = s->span[i].last;
	}
	s->n = n;
}

static void add_list(struct set *s, struct net_list list)
{
	for (size_t i = 0; i < list.n; i++) {
		uint64_t first = list.range[i].ip;
		s->span[s->n++] =
			(struct span){ first, first | (uint32_t)~mask_of(list.range[i].bits) };
	}
	normalise(s);
}

/* What of from is not in without: each span of that cuts at most one in two. */
static void subtract(struct set *out, const struct set *from, const struct set *without)
{
	out->n = 0;
	for (size_t i = 0, j = 0; i < from->n; i++) {
		uint64_t first = from->span[i].first, last = from->span[i].last;
		while (j < without->n && without->span[j].last < first)
			j++;
		for (size_t k = j; k < without->n && without->span[k].first <= last; k++) {
			if (without->span[k].first > first)
				out->span[out->n++] =
					(struct span){ first, without->span[k].first - 1 };
			first = without->span[k].last + 1;
		}
		if (first <= last)
			out->span[out->n++] = (struct span){ first, last };
	}
}

/* The largest prefix that begins at first and does not pass last, but never all addresses: a route
 * for 0.0.0.0/0 would stand in one place with the default route, and either could win. */
static struct net_range largest(uint64_t first, uint64_t last)
{
	unsigned char bits = 32;
	while (bits > 1 && !(first & (1ull << (32 - bits))) &&
	       first + (1ull << (33 - bits)) - 1 <= last)
		bits--;
	return (struct net_range){ (uint32_t)first, bits };
}

static int add_span(struct netrules *r, struct span span)
{
	while (span.first <= span.last) {
		if (r->n == NETRULES_MAX)
			return -1;
		r->range[r->n] = largest(span.first, span.last);
		span.first += 1ull << (32 - r->range[r->n++].bits);
	}
	return 0;
}

int netrules_make(struct netrules *out, struct net_list closed, struct net_list deny,
		  struct net_list allow, struct err *err)
{
	struct set denied = { .n = 0 }, allowed = { .n = 0 }, result;
	struct netrules made = { calloc(NETRULES_MAX, sizeof *made.range), 0 };
	if (!made.range)
		return err_set(err, ERR_INTERNAL, "no memory");
	add_list(&denied, deny);
	add_list(&allowed, allow);
	subtract(&result, &denied, &allowed);
	add_list(&result, closed);
	for (size_t i = 0; i < result.n; i++) {
		if (add_span(&made, result.span[i]) < 0) {
			netrules_free(&made);
			return err_set(err, ERR_LIMIT, "the rules need more than %d routes",
				       NETRULES_MAX);
		}
	}
	*out = made;
	return 0;
}

void netrules_free(struct netrules *r)
{
	free(r->range);
	*r = (struct netrules){ 0 };
}

bool netrules_has(const struct netrules *r, struct net_range prefix)
{
	size_t low = 0, high = r->n;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (r->range[middle].ip < prefix.ip)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < r->n && r->range[low].ip == prefix.ip; low++)
		if (r->range[low].bits == prefix.bits)
			return true;
	return false;
}
