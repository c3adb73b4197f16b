/* Logs of sandboxes: bounds, order, filters, what is kept, lines out of a pipe. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "engine/logs.h"
#include "wire/utf8.h"

static const struct logs_query all = { .to_ms = INT64_MAX, .limit = SIZE_MAX };

/* Everything that was read, as "message[key=value ...];". */
struct seen {
	struct buf text;
	size_t n, bytes;
	int64_t first_us, last_us;
};

static void note(void *ctx, const struct logs_entry *e)
{
	struct seen *s = ctx;
	const char *at = e->fields;
	assert_true(utf8_valid(e->message, strlen(e->message)));
	buf_adds(&s->text, e->message);
	s->bytes += strlen(e->message) + 1;
	for (size_t i = 0; i < e->nfields; i++) {
		const char *value = at + strlen(at) + 1;
		buf_addf(&s->text, "[%s=%s]", at, value);
		s->bytes += strlen(at) + strlen(value) + 2;
		at = value + strlen(value) + 1;
	}
	buf_adds(&s->text, ";");
	if (!s->n++)
		s->first_us = e->real_us;
	s->last_us = e->real_us;
}

static struct seen seen(const struct logs *l, struct logs_query q)
{
	struct seen s = { .text = BUF(4u << 20) };
	logs_read(l, &q, note, &s);
	return s;
}

static void assert_reads(const struct logs *l, struct logs_query q, const char *expected)
{
	struct seen s = seen(l, q);
	assert_string_equal(s.text.p ? s.text.p : "", expected);
	buf_free(&s.text);
}

static size_t count(const struct logs *l)
{
	struct seen s = seen(l, all);
	buf_free(&s.text);
	return s.n;
}

static void entries_have_their_fields_and_come_in_order(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	logs_add(l, LOGS_INFO, "one", NULL);
	logs_add(l, LOGS_INFO, "two", "pid", LOGS_INT(-7), "cmd", "", NULL);
	logs_add(l, LOGS_INFO, "", "key", "a=b", NULL);
	assert_reads(l, all, "one;two[pid=-7][cmd=];[key=a=b];");
	struct logs_query back = all;
	back.backward = true;
	assert_reads(l, back, "[key=a=b];two[pid=-7][cmd=];one;");
	back.limit = 1;
	assert_reads(l, back, "[key=a=b];");
	back.limit = 0;
	assert_reads(l, back, "");
	logs_free(l);
}

static void a_log_that_is_not_there_is_empty(void **state)
{
	(void)state;
	logs_add(NULL, LOGS_INFO, "nothing", NULL);
	assert_reads(NULL, all, "");
	logs_free(NULL);
	struct logs *l = logs_new("i1");
	assert_reads(l, all, "");
	logs_free(l);
}

static void levels_and_words_are_filters(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	logs_add(l, LOGS_DEBUG, "a detail", NULL);
	logs_add(l, LOGS_INFO, "a fact", NULL);
	logs_add(l, LOGS_WARN, "a doubt", "kind", "fact", NULL);
	logs_add(l, LOGS_ERROR, "a fault", NULL);
	struct logs_query q = all;
	q.least = LOGS_WARN;
	assert_reads(l, q, "a doubt[kind=fact];a fault;");
	q.least = LOGS_DEBUG;
	q.search = "fa";
	assert_reads(l, q, "a fact;a fault;");
	q.search = "FA";
	assert_reads(l, q, "");
	q.search = "";
	q.limit = 2;
	assert_reads(l, q, "a detail;a fact;");
	logs_free(l);
}

static void names_of_levels_are_read_back(void **state)
{
	(void)state;
	enum logs_level level = LOGS_DEBUG;
	for (enum logs_level i = LOGS_DEBUG; i <= LOGS_ERROR; i++) {
		assert_int_equal(logs_level_parse(logs_level_name(i), &level), 0);
		assert_int_equal(level, i);
	}
	assert_int_equal(logs_level_parse("", &level), -1);
	assert_int_equal(logs_level_parse("INFO", &level), -1);
	assert_int_equal(level, LOGS_ERROR);
}

static void times_are_met_to_the_millisecond(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	logs_add(l, LOGS_INFO, "early", NULL);
	nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
	logs_add(l, LOGS_INFO, "late", NULL);
	struct seen s = seen(l, all);
	buf_free(&s.text);
	struct logs_query q = all;
	q.from_ms = s.last_us / 1000;
	assert_reads(l, q, "late;");
	q.from_ms++;
	assert_reads(l, q, "");
	q.from_ms = 0;
	q.to_ms = s.first_us / 1000;
	assert_reads(l, q, "early;");
	q.to_ms--;
	assert_reads(l, q, "");
	logs_free(l);
}

static void the_oldest_go_when_there_are_too_many(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	for (int i = 0; i < LOGS_ENTRIES + 5; i++)
		logs_add(l, LOGS_INFO, LOGS_INT(i), NULL);
	assert_int_equal(count(l), LOGS_ENTRIES);
	struct logs_query q = all;
	q.limit = 1;
	assert_reads(l, q, "5;");
	logs_free(l);
}

static void the_oldest_go_when_there_are_too_many_bytes(void **state)
{
	(void)state;
	char text[2 * LOGS_TEXT + 1];
	struct logs *l = logs_new("i1");
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	for (int i = 0; i < LOGS_ENTRIES; i++)
		logs_add(l, LOGS_INFO, LOGS_INT(i), "a", text, "b", text, NULL);
	struct seen s = seen(l, all);
	assert_true(s.bytes <= LOGS_BYTES);
	assert_true(s.bytes > LOGS_BYTES / 2);
	buf_free(&s.text);
	struct logs_query q = { .to_ms = INT64_MAX, .limit = 1, .backward = true };
	s = seen(l, q);
	assert_memory_equal(s.text.p, "999[", 4);
	buf_free(&s.text);
	logs_free(l);
}

static void long_and_broken_texts_are_made_whole(void **state)
{
	(void)state;
	char text[LOGS_TEXT + 2];
	struct logs *l = logs_new("i1");
	memset(text, 'x', sizeof text);
	memcpy(text + LOGS_TEXT - 1, "\xc3\xa9", 3); /* the limit is inside of this one */
	logs_add(l, LOGS_INFO, text, NULL);
	struct seen s = seen(l, all);
	assert_int_equal(s.bytes, LOGS_TEXT);
	buf_free(&s.text);
	logs_free(l);

	l = logs_new("i2");
	logs_add(l, LOGS_INFO,
		 "a\xff"
		 "b",
		 "k", "\xe2\x82", NULL);
	assert_reads(l, all,
		     "a\xef\xbf\xbd"
		     "b[k=\xef\xbf\xbd];");
	logs_free(l);

	/* Nothing but bytes that grow, in every place that there is. */
	l = logs_new("i3");
	memset(text, 0xff, sizeof text - 1);
	text[sizeof text - 1] = '\0';
	logs_add(l, LOGS_INFO, text, text, text, text, text, text, text, text, text, text, text,
		 text, text, text, text, text, text, NULL);
	s = seen(l, all);
	assert_int_equal(s.n, 1);
	buf_free(&s.text);
	logs_free(l);
}

static void fields_past_the_limit_are_dropped(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	logs_add(l, LOGS_INFO, "m", "1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "",
		 "8", "", "9", "", NULL);
	assert_reads(l, all, "m[1=][2=][3=][4=][5=][6=][7=][8=];");
	logs_free(l);
}

/* ---- those of sandboxes that ended ---- */

static bool kept(const struct logs_kept *k, int i)
{
	const char *id = LOGS_INT(i);
	return logs_find(k, id, strlen(id)) != NULL;
}

static void the_newest_logs_are_kept(void **state)
{
	(void)state;
	struct logs_kept k = { 0 };
	logs_keep(&k, NULL);
	for (int i = 0; i < LOGS_KEPT + 2; i++)
		logs_keep(&k, logs_new(LOGS_INT(i)));
	assert_int_equal(k.n, LOGS_KEPT);
	assert_false(kept(&k, 1));
	assert_true(kept(&k, 2));
	assert_true(kept(&k, LOGS_KEPT + 1));
	assert_null(logs_find(&k, "11", 1)); /* its first letter alone is the one that went */
	logs_kept_free(&k);
	assert_int_equal(k.n, 0);
	assert_int_equal(k.bytes, 0);
}

static void kept_logs_are_bounded_in_bytes(void **state)
{
	(void)state;
	struct logs_kept k = { 0 };
	char text[LOGS_TEXT + 1];
	memset(text, 'x', LOGS_TEXT);
	text[LOGS_TEXT] = '\0';
	for (int i = 0; i < LOGS_KEPT; i++) {
		struct logs *l = logs_new(LOGS_INT(i));
		for (int j = 0; j < 100; j++)
			logs_add(l, LOGS_INFO, text, NULL);
		logs_keep(&k, l);
		assert_true(k.bytes <= LOGS_KEPT_BYTES);
	}
	assert_true(k.n < LOGS_KEPT);
	assert_true(kept(&k, LOGS_KEPT - 1));
	assert_false(kept(&k, 0));
	logs_kept_free(&k);
}

/* ---- lines ---- */

static void lines_come_out_however_they_are_cut(void **state)
{
	(void)state;
	static const char text[] = "one\r\n\ntwo \xe2\x82\xac\nrest";
	for (size_t cut = 0; cut < sizeof text; cut++) {
		struct logs *l = logs_new("i1");
		struct logs_lines p = { .level = LOGS_INFO };
		logs_lines_feed(&p, l, text, cut);
		logs_lines_feed(&p, l, text + cut, sizeof text - 1 - cut);
		logs_lines_end(&p, l);
		logs_lines_end(&p, l);
		assert_reads(l, all,
			     "one[source=start command];[source=start command];"
			     "two \xe2\x82\xac[source=start command];rest[source=start command];");
		logs_free(l);
	}
}

static void a_line_without_end_is_cut(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	struct logs_lines p = { .level = LOGS_ERROR };
	for (int i = 0; i < 3 * LOGS_TEXT; i++)
		logs_lines_feed(&p, l, "x", 1);
	logs_lines_feed(&p, l, "\nb\0c\n", 5);
	struct logs_query q = all;
	q.limit = 1;
	struct seen s = seen(l, q);
	assert_int_equal(strcspn(s.text.p, "["), LOGS_TEXT);
	buf_free(&s.text);
	q.search = "b c";
	assert_reads(l, q, "b c[source=start command];");
	logs_free(l);
}

static void output_without_end_is_logged_up_to_a_limit(void **state)
{
	(void)state;
	struct logs *l = logs_new("i1");
	struct logs_lines p = { .level = LOGS_INFO };
	for (int i = 0; i < 3 * LOGS_LINES_MAX; i++)
		logs_lines_feed(&p, l, "a\nb\n", 4);
	logs_lines_end(&p, l);
	assert_int_equal(count(l), LOGS_LINES_MAX + 1);
	struct logs_query q = all;
	q.least = LOGS_WARN;
	assert_reads(l, q, "Further output of the start command is not logged;");
	logs_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_have_their_fields_and_come_in_order),
		cmocka_unit_test(a_log_that_is_not_there_is_empty),
		cmocka_unit_test(levels_and_words_are_filters),
		cmocka_unit_test(names_of_levels_are_read_back),
		cmocka_unit_test(times_are_met_to_the_millisecond),
		cmocka_unit_test(the_oldest_go_when_there_are_too_many),
		cmocka_unit_test(the_oldest_go_when_there_are_too_many_bytes),
		cmocka_unit_test(long_and_broken_texts_are_made_whole),
		cmocka_unit_test(fields_past_the_limit_are_dropped),
		cmocka_unit_test(the_newest_logs_are_kept),
		cmocka_unit_test(kept_logs_are_bounded_in_bytes),
		cmocka_unit_test(lines_come_out_however_they_are_cut),
		cmocka_unit_test(a_line_without_end_is_cut),
		cmocka_unit_test(output_without_end_is_logged_up_to_a_limit),
	};
	return cmocka_run_group_tests_name("logs", tests, NULL, NULL);
}
