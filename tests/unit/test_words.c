/* Command lines as words: what a shell would split, and nothing else that a shell does. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "wire/words.h"

/* The words in brackets, or "!" and the error. */
static void assert_words(const char *text, const char *want)
{
	struct buf got = BUF(1u << 20);
	struct err err = { 0 };
	char **words = NULL;
	if (words_split(text, &words, &err) < 0) {
		assert_int_equal(err.code, ERR_INVALID);
		assert_null(words);
		buf_addf(&got, "!%s", err.text);
	}
	for (size_t i = 0; words && words[i]; i++)
		buf_addf(&got, "[%s]", words[i]);
	free(words);
	assert_string_equal(got.p ? got.p : "", want);
	buf_free(&got);
}

static void blanks_part_words(void **state)
{
	(void)state;
	assert_words("a", "[a]");
	assert_words("ls -l /tmp", "[ls][-l][/tmp]");
	assert_words("  a \t b\r\n\nc\n", "[a][b][c]");
	assert_words("a\vb\fc", "[a\vb\fc]");
	assert_words("\xc3\xa9 \xff", "[\xc3\xa9][\xff]");
}

static void quotes_keep_blanks(void **state)
{
	(void)state;
	assert_words("'a b' \"c d\"", "[a b][c d]");
	assert_words("a'b 'c\" d\"", "[ab c d]");
	assert_words("'' \"\" ''\"\"", "[][][]");
	assert_words("\"it's\" 'say \"x\"'", "[it's][say \"x\"]");
	assert_words("'a\nb'", "[a\nb]");
}

static void a_backslash_keeps_what_is_behind_it(void **state)
{
	(void)state;
	assert_words("a\\ b", "[a b]");
	assert_words("\\'a \\\"b \\\\c", "['a][\"b][\\c]");
	assert_words("\"a\\\"b\\\\c\\d\"", "[a\"b\\c\\d]");
	assert_words("'a\\'", "[a\\]");
	assert_words("a\\", "[a\\]");
	assert_words("\\", "[\\]");
	assert_words("a \\ ", "[a][ ]");
}

static void nothing_else_means_anything(void **state)
{
	(void)state;
	assert_words("echo $(id) `id` $HOME", "[echo][$(id)][`id`][$HOME]");
	assert_words("a;b a|b a&&b >f <g &", "[a;b][a|b][a&&b][>f][<g][&]");
	assert_words("* ? [a-z] {a,b} ~ # x", "[*][?][[a-z]][{a,b}][~][#][x]");
	assert_words("A=1 b", "[A=1][b]");
}

static void what_is_no_command_line(void **state)
{
	(void)state;
	assert_words("", "!there is no word in it");
	assert_words(" \t\r\n", "!there is no word in it");
	assert_words("'", "!a quote is not closed");
	assert_words("a \"b", "!a quote is not closed");
	assert_words("a 'b\\'c'", "!a quote is not closed");
	assert_words("\"a\\\"", "!a quote is not closed");
}

/* The block has room for the most words that so many characters can be. */
static void as_many_words_as_there_can_be(void **state)
{
	(void)state;
	for (size_t n = 1; n < 70; n++) {
		char text[80] = "";
		struct err err;
		char **words;
		for (size_t i = 0; i < n; i++)
			text[i] = i % 2 ? ' ' : 'x';
		assert_int_equal(words_split(text, &words, &err), 0);
		for (size_t i = 0; i < (n + 1) / 2; i++)
			assert_string_equal(words[i], "x");
		assert_null(words[(n + 1) / 2]);
		free(words);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blanks_part_words),
		cmocka_unit_test(quotes_keep_blanks),
		cmocka_unit_test(a_backslash_keeps_what_is_behind_it),
		cmocka_unit_test(nothing_else_means_anything),
		cmocka_unit_test(what_is_no_command_line),
		cmocka_unit_test(as_many_words_as_there_can_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
