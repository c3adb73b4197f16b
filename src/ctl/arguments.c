#include "ctl/arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/session.h"
#include "wire/utf8.h"

#define SECS_MAX (36500LL * 86400)

static const struct option_row *find(const struct option_row *options, size_t n, const char *arg)
{
	size_t len = strcspn(arg, "=");
	for (size_t i = 0; i < n; i++)
		if (strlen(options[i].name) == len && !strncmp(options[i].name, arg, len))
			return &options[i];
	return NULL;
}

/* Takes the option at argv[*i] and moves *i to the last word of it. */
static int take(const struct option_row *o, int argc, char **argv, int *i, struct err *err)
{
	const char *inside = strchr(argv[*i], '=');
	if (o->flag ? *o->flag : *o->value != NULL)
		return err_set(err, ERR_INVALID, "%s is given twice", o->name);
	if (o->flag) {
		*o->flag = true;
		return inside ? err_set(err, ERR_INVALID, "%s takes no value", o->name) : 0;
	}
	if (inside)
		*o->value = inside + 1;
	else if (*i + 1 < argc)
		*o->value = argv[++*i];
	else
		return err_set(err, ERR_INVALID, "%s needs a value", o->name);
	return 0;
}

int arguments_read(int argc, char **argv, const struct option_row *options, size_t n,
		   const char **word, struct err *err)
{
	bool only_words = false, had_word = false;
	for (int i = 0; i < argc; i++) {
		if (!only_words && !strcmp(argv[i], "--")) {
			only_words = true;
		} else if (!only_words && argv[i][0] == '-') {
			const struct option_row *o = find(options, n, argv[i]);
			if (!o)
				return err_set(err, ERR_INVALID, "there is no option '%s'",
					       argv[i]);
			if (take(o, argc, argv, &i, err) < 0)
				return -1;
		} else if (!word || had_word) {
			return err_set(err, ERR_INVALID, "'%s' is one word too many", argv[i]);
		} else {
			*word = argv[i];
			had_word = true;
		}
	}
	return 0;
}

/* Blanks, and characters that show as nothing or turn the direction of what follows: two names that
 * look the same must be the same. */
static bool is_invisible(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{ 0x00, 0x20 },     { 0x7f, 0xa0 },         { 0xad, 0xad },     { 0x1680, 0x1680 },
		{ 0x2000, 0x200f }, { 0x2028, 0x202f },     { 0x205f, 0x206f }, { 0x3000, 0x3000 },
		{ 0xfeff, 0xfeff }, { UTF8_BAD, UTF8_CUT },
	};
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
		if (code >= ranges[i].first && code <= ranges[i].last)
			return true;
	return false;
}

int argument_user(const char *option, const char *value, struct err *err)
{
	size_t len = strlen(value);
	bool good = len >= 1 && len <= STORE_NAME_MAX;
	for (size_t i = 0; good && i < len;) {
		uint32_t code;
		i += utf8_next(value + i, len - i, &code);
		good = !is_invisible(code);
	}
	return good ? 0
		    : err_set(err, ERR_INVALID,
			      "%s: a name is 1 to %d bytes without blanks and control "
			      "characters",
			      option, STORE_NAME_MAX);
}

int argument_session(const char *option, const char *value, struct err *err)
{
	if (session_id_valid(value))
		return 0;
	return err_set(err, ERR_INVALID, "%s: a session id is 1 to %d of A-Z a-z 0-9 . _ ~ : -",
		       option, STORE_NAME_MAX);
}

int argument_duration(const char *option, const char *value, int64_t *secs, struct err *err)
{
	static const char units[] = "smhd";
	static const int64_t unit_secs[] = { 1, 60, 3600, 86400 };
	char *end;
	errno = 0;
	/* strtoll would also take blanks and signs. */
	long long n = *value >= '0' && *value <= '9' ? strtoll(value, &end, 10) : 0;
	const char *unit = n > 0 && !errno && *end ? strchr(units, *end) : NULL;
	if (!unit || end[1])
		return err_set(err, ERR_INVALID, "%s: '%s' is no time like 90s, 15m, 1h or 7d",
			       option, value);
	int64_t one = unit_secs[unit - units];
	if (n > SECS_MAX / one)
		return err_set(err, ERR_INVALID, "%s: '%s' is more than %lldd", option, value,
			       SECS_MAX / 86400);
	*secs = n * one;
	return 0;
}
