#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>

#include "engine/netrules.h"

static struct net_range range(const char *text)
{
	struct net_range r;
	assert_int_equal(netrules_entry(text, &r), NET_ENTRY_RANGE);
	return r;
}

static bool covers(struct net_list list, uint32_t ip)
{
	for (size_t i = 0; i < list.n; i++) {
		unsigned bits = list.range[i].bits;
		if (!bits || (ip ^ list.range[i].ip) >> (32 - bits) == 0)
			return true;
	}
	return false;
}

struct world {
	struct net_list closed, deny, allow;
	struct netrules made;
};

/* The definition itself. */
static bool must_be_closed(const struct world *w, uint32_t ip)
{
	return covers(w->closed, ip) || (covers(w->deny, ip) && !covers(w->allow, ip));
}

static void check_at(const struct world *w, uint32_t ip)
{
	struct net_list made = { w->made.range, w->made.n };
	if (covers(made, ip) != must_be_closed(w, ip))
		fail_msg("wrong at %u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

static uint32_t last_of(struct net_range r)
{
	return r.ip | (r.bits == 32 ? 0 : ~0u >> r.bits);
}

/* Whatever changes, changes at the edge of a range. */
static void check_edges(const struct world *w, struct net_list list)
{
	for (size_t i = 0; i < list.n; i++) {
		check_at(w, list.range[i].ip);
		check_at(w, list.range[i].ip - 1);
		check_at(w, last_of(list.range[i]));
		check_at(w, last_of(list.range[i]) + 1);
	}
}

static void check_form(const struct netrules *made)
{
	for (size_t i = 0; i < made->n; i++) {
		struct net_range r = made->range[i];
		assert_true(r.bits <= 32);
		assert_int_equal(r.bits ? r.ip & ~(~0u << (32 - r.bits)) : r.ip, 0);
		assert_true(netrules_has(made, r));
		if (!i)
			continue;
		struct net_range before = made->range[i - 1];
		assert_true(last_of(before) < r.ip);
		/* Two halves of one prefix would have been one, but for the halves of everything.
		 */
		assert_false(before.bits == r.bits && r.bits > 1 &&
			     r.ip - before.ip == 1ull << (32 - r.bits) &&
			     !(before.ip & (1ull << (32 - r.bits))));
	}
}

static void check_world(struct world *w)
{
	struct err err;
	assert_int_equal(netrules_make(&w->made, w->closed, w->deny, w->allow, &err), 0);
	check_form(&w->made);
	check_edges(w, w->closed);
	check_edges(w, w->deny);
	check_edges(w, w->allow);
	check_edges(w, (struct net_list){ w->made.range, w->made.n });
	for (int i = 0; i < 200; i++)
		check_at(w, (uint32_t)rand() << 1 ^ (uint32_t)rand());
	netrules_free(&w->made);
}

static void random_rules_are_as_defined(void **state)
{
	(void)state;
	srand(1);
	for (int round = 0; round < 400; round++) {
		struct net_range lists[3][24];
		struct net_list list[3];
		/* Few addresses, so that ranges meet; or all of them. */
		uint32_t room = round % 2 ? 0xffffffff : 0xff;
		for (int l = 0; l < 3; l++) {
			list[l] = (struct net_list){ lists[l], (size_t)(rand() % 25) };
			for (size_t i = 0; i < list[l].n; i++) {
				unsigned bits = round % 2 ? (unsigned)rand() % 33
							  : 24 + (unsigned)rand() % 9;
				uint32_t ip = ((uint32_t)rand() << 1 ^ (uint32_t)rand()) & room;
				lists[l][i] =
					(struct net_range){ bits ? ip & ~0u << (32 - bits) : 0,
							    (unsigned char)bits };
			}
		}
		struct world w = { list[0], list[1], list[2], { 0 } };
		check_world(&w);
	}
}

static void every_address_of_a_small_world(void **state)
{
	(void)state;
	struct net_range deny[] = { range("0.0.0.0/24"), range("0.0.1.128/25") };
	struct net_range allow[] = { range("0.0.0.7"), range("0.0.0.16/28"), range("0.0.1.0/24") };
	struct net_range closed[] = { range("0.0.0.17"), range("0.0.1.200/29") };
	struct world w = { { closed, 2 }, { deny, 2 }, { allow, 3 }, { 0 } };
	struct err err;
	assert_int_equal(netrules_make(&w.made, w.closed, w.deny, w.allow, &err), 0);
	for (uint32_t ip = 0; ip < 1024; ip++)
		check_at(&w, ip);
	check_form(&w.made);
	netrules_free(&w.made);
}

static void extremes(void **state)
{
	(void)state;
	struct net_range all[] = { range("0.0.0.0/0") };
	struct net_range ends[] = { range("0.0.0.0"), range("255.255.255.255") };
	struct net_range ten[] = { range("10.0.0.0/8") };
	const struct net_list none = { NULL, 0 };
	struct netrules made;
	struct err err;
	assert_int_equal(netrules_make(&made, none, none, none, &err), 0);
	assert_int_equal(made.n, 0);
	netrules_free(&made);
	assert_int_equal(netrules_make(&made, none, (struct net_list){ all, 1 }, none, &err), 0);
	assert_int_equal(made.n, 2);
	assert_false(netrules_has(&made, all[0]));
	assert_true(netrules_has(&made, range("0.0.0.0/1")));
	assert_true(netrules_has(&made, range("128.0.0.0/1")));
	netrules_free(&made);
	assert_int_equal(netrules_make(&made, none, (struct net_list){ all, 1 },
				       (struct net_list){ ends, 2 }, &err),
			 0);
	assert_int_equal(made.n, 62);
	netrules_free(&made);
	assert_int_equal(netrules_make(&made, none, (struct net_list){ all, 1 },
				       (struct net_list){ all, 1 }, &err),
			 0);
	assert_int_equal(made.n, 0);
	netrules_free(&made);
	assert_int_equal(netrules_make(&made, (struct net_list){ ten, 1 },
				       (struct net_list){ all, 1 }, (struct net_list){ all, 1 },
				       &err),
			 0);
	assert_int_equal(made.n, 1);
	assert_true(netrules_has(&made, ten[0]));
	netrules_free(&made);
}

/* Full lists of the worst kind, single addresses that lie as far apart as they can, still fit. */
static void the_longest_lists_fit(void **state)
{
	(void)state;
	static struct net_range allow[NETRULES_ENTRIES], closed[NETRULES_ENTRIES];
	struct net_range all[] = { range("0.0.0.0/0") };
	for (uint32_t i = 0; i < NETRULES_ENTRIES; i++) {
		allow[i] = (struct net_range){ i << 24 | 0x555555, 32 };
		closed[i] = (struct net_range){ i << 24 | 0xaaaaaa, 32 };
	}
	struct netrules made;
	struct err err;
	assert_int_equal(netrules_make(&made, (struct net_list){ closed, NETRULES_ENTRIES },
				       (struct net_list){ all, 1 },
				       (struct net_list){ allow, NETRULES_ENTRIES }, &err),
			 0);
	assert_int_equal(made.n, 24 * NETRULES_ENTRIES);
	netrules_free(&made);
	struct world w = { { closed, NETRULES_ENTRIES },
			   { allow, NETRULES_ENTRIES },
			   { allow, NETRULES_ENTRIES - 1 },
			   { 0 } };
	check_world(&w);
}

static void entries(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum net_entry want;
	} rows[] = {
		{ "1.2.3.4", NET_ENTRY_RANGE },
		{ "1.2.3.4/32", NET_ENTRY_RANGE },
		{ "0.0.0.0/0", NET_ENTRY_RANGE },
		{ "1.2.3.4/8", NET_ENTRY_RANGE },
		{ "example.com", NET_ENTRY_FOREIGN },
		{ "*.example.com", NET_ENTRY_FOREIGN },
		{ "*", NET_ENTRY_FOREIGN },
		{ "::1", NET_ENTRY_FOREIGN },
		{ "fd00::/8", NET_ENTRY_FOREIGN },
		{ "1.2.3.4:80", NET_ENTRY_FOREIGN },
		{ "", NET_ENTRY_BAD },
		{ "1.2.3", NET_ENTRY_BAD },
		{ "1.2.3.256", NET_ENTRY_BAD },
		{ "1.2.3.4/33", NET_ENTRY_BAD },
		{ "1.2.3.4/", NET_ENTRY_BAD },
		{ "1.2.3.4/-1", NET_ENTRY_BAD },
		{ "1.2.3.4/08", NET_ENTRY_BAD },
		{ "1.2.3.4/1/2", NET_ENTRY_BAD },
		{ " 1.2.3.4", NET_ENTRY_BAD },
		{ "a b", NET_ENTRY_BAD },
		{ "b\xc3\xbc", NET_ENTRY_BAD },
		{ "1.2.3.4-1.2.3.9", NET_ENTRY_BAD },
	};
	struct net_range r;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (netrules_entry(rows[i].text, &r) != rows[i].want)
			fail_msg("'%s'", rows[i].text);
	r = range("1.2.3.4/8");
	assert_int_equal(r.ip, 1u << 24);
	assert_int_equal(r.bits, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_rules_are_as_defined),
		cmocka_unit_test(every_address_of_a_small_world),
		cmocka_unit_test(extremes),
		cmocka_unit_test(the_longest_lists_fit),
		cmocka_unit_test(entries),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
