#include "wire/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* One word from *p on, written to out; *p moves behind it. -1: a quote is not closed. */
static int read_word(const char **p, char **out)
{
	char quote = 0;
	for (; **p && (quote || !is_blank(**p)); ++*p) {
		char c = **p;
		if (quote && c == quote) {
			quote = 0;
		} else if (!quote && (c == '\'' || c == '"')) {
			quote = c;
		} else if (c == '\\' && quote != '\'' && (*p)[1] &&
			   (!quote || strchr("\"\\", (*p)[1]))) {
			*(*out)++ = *++*p;
		} else {
			*(*out)++ = c;
		}
	}
	*(*out)++ = '\0';
	return quote ? -1 : 0;
}

int words_split(const char *text, char ***out, struct err *err)
{
	/* There are at most half as many words as characters, and each has a NUL. */
	const size_t n = strlen(text), most = n / 2 + 2;
	char **words = calloc(1, most * sizeof *words + 2 * n + 2);
	if (!words)
		return err_set(err, ERR_INTERNAL, "no memory");
	char *to = (char *)(words + most);
	size_t count = 0;
	for (const char *p = text;;) {
		while (is_blank(*p))
			p++;
		if (!*p)
			break;
		words[count++] = to;
		if (read_word(&p, &to) < 0) {
			free(words);
			return err_set(err, ERR_INVALID, "a quote is not closed");
		}
	}
	if (!count) {
		free(words);
		return err_set(err, ERR_INVALID, "there is no word in it");
	}
	*out = words;
	return 0;
}
