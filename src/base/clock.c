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

const char *clock_rfc3339(char out[CLOCK_TEXT], int64_t real_us)
{
	int64_t secs = real_us / SECOND_US, us = real_us % SECOND_US;
	if (us < 0) {
		us += SECOND_US;
		secs--;
	}
	time_t t = (time_t)secs;
	struct tm tm;
	gmtime_r(&t, &tm);
	char day[24];
	strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, CLOCK_TEXT, "%s.%06dZ", day, (int)us);
	return out;
}

int clock_parse_rfc3339(const char *s, int64_t *real_us)
{
	struct tm tm = { 0 };
	int64_t us = 0;
	long offset = 0;
	const char *p = strptime(s, "%Y-%m-%d", &tm);
	if (!p || (*p != 'T' && *p != 't'))
		return -1;
	p = strptime(p + 1, "%H:%M:%S", &tm);
	if (!p)
		return -1;
	if (*p == '.') {
		int64_t unit = SECOND_US / 10;
		if (p[1] < '0' || p[1] > '9')
			return -1;
		for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
			us += (*p - '0') * unit;
	}
	if (*p == 'Z' || *p == 'z') {
		p++;
	} else if (*p == '+' || *p == '-') {
		int h, m, used = 0;
		if (sscanf(p + 1, "%2d:%2d%n", &h, &m, &used) != 2 || used != 5)
			return -1;
		offset = (h * 60 + m) * 60 * (*p == '-' ? -1 : 1);
		p += 1 + used;
	} else {
		return -1;
	}
	if (*p)
		return -1;
	*real_us = ((int64_t)timegm(&tm) - offset) * SECOND_US + us;
	return 0;
}
