#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t now(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * SECOND_US + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
	return now(CLOCK_MONOTONIC);
}

int64_t clock_real_us(void)
{
	return now(CLOCK_REALTIME);
}

int64_t clock_cpu_us(void)
{
	return now(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t clock_boot_us(void)
{
	return now(CLOCK_BOOTTIME);
}

/* The years 0 to 9999 are all that four digits can say; files may be of any other. */
#define FIRST_US (-62167219200 * SECOND_US)
#define LAST_US  (253402300800 * SECOND_US - 1)

static const char *show(char out[CLOCK_TEXT], int64_t real_us, const char *zone)
{
	if (real_us < FIRST_US)
		real_us = FIRST_US;
	if (real_us > LAST_US)
		real_us = LAST_US;
	int64_t secs = real_us / SECOND_US, us = real_us % SECOND_US;
	if (us < 0) {
		us += SECOND_US;
		secs--;
	}
	time_t t = (time_t)secs;
	struct tm tm;
	gmtime_r(&t, &tm);
	char rest[20];
	strftime(rest, sizeof rest, "-%m-%dT%H:%M:%S", &tm);
	/* Not %Y, which writes as few digits as it can. */
	snprintf(out, CLOCK_TEXT, "%04d%s.%06d%s", tm.tm_year + 1900, rest, (int)us, zone);
	return out;
}

const char *clock_rfc3339(char out[CLOCK_TEXT], int64_t real_us)
{
	return show(out, real_us, "Z");
}

const char *clock_iso8601(char out[CLOCK_TEXT], int64_t real_us)
{
	return show(out, real_us, "+00:00");
}

/* Exactly n digits, a number from min to max; *s moves behind them. */
static int digits(const char **s, int n, int min, int max, int *out)
{
	int v = 0;
	for (; n > 0; n--, ++*s) {
		if (**s < '0' || **s > '9')
			return -1;
		v = v * 10 + (**s - '0');
	}
	*out = v;
	return v < min || v > max ? -1 : 0;
}

static int literal(const char **s, const char *any)
{
	if (!**s || !strchr(any, **s))
		return -1;
	++*s;
	return 0;
}

int clock_parse_rfc3339(const char *s, int64_t *real_us)
{
	struct tm tm = { 0 };
	int64_t us = 0;
	int h = 0, m = 0, sign = 1;
	if (digits(&s, 4, 0, 9999, &tm.tm_year) < 0 || literal(&s, "-") < 0 ||
	    digits(&s, 2, 1, 12, &tm.tm_mon) < 0 || literal(&s, "-") < 0 ||
	    digits(&s, 2, 1, 31, &tm.tm_mday) < 0 || literal(&s, "Tt") < 0 ||
	    digits(&s, 2, 0, 23, &tm.tm_hour) < 0 || literal(&s, ":") < 0 ||
	    digits(&s, 2, 0, 59, &tm.tm_min) < 0 || literal(&s, ":") < 0 ||
	    digits(&s, 2, 0, 60, &tm.tm_sec) < 0)
		return -1;
	if (*s == '.') {
		int64_t unit = SECOND_US / 10;
		if (s[1] < '0' || s[1] > '9')
			return -1;
		for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
			us += (*s - '0') * unit;
	}
	if (*s == '+' || *s == '-') {
		sign = *s++ == '-' ? -1 : 1;
		if (digits(&s, 2, 0, 23, &h) < 0 || literal(&s, ":") < 0 ||
		    digits(&s, 2, 0, 59, &m) < 0)
			return -1;
	} else if (literal(&s, "Zz") < 0) {
		return -1;
	}
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	int day = tm.tm_mday;
	int64_t secs = timegm(&tm);
	if (*s || tm.tm_mday != day) /* the 31st of a shorter month became another day */
		return -1;
	us += (secs - sign * (h * 3600 + m * 60)) * SECOND_US;
	if (us < FIRST_US || us > LAST_US)
		return -1;
	*real_us = us;
	return 0;
}
