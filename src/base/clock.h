/* Times. What is shown or stored is CLOCK_REALTIME, what is waited for is CLOCK_MONOTONIC; both in
 * microseconds. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define SECOND_US 1000000LL

int64_t clock_mono_us(void);
int64_t clock_real_us(void);
int64_t clock_cpu_us(void);  /* what this process has used of the processors */
int64_t clock_boot_us(void); /* CLOCK_BOOTTIME: counts while the machine sleeps, too */

/* "2026-01-22T15:06:11.971102Z" for a CLOCK_REALTIME value, and the same with "+00:00". What is
 * outside of the years 0 to 9999 becomes the nearest time inside. */
#define CLOCK_TEXT 40
const char *clock_rfc3339(char out[CLOCK_TEXT], int64_t real_us);
const char *clock_iso8601(char out[CLOCK_TEXT], int64_t real_us);

/* RFC 3339 with optional fraction and Z or +hh:mm. 0, or -1 when it is none, or outside of those
 * years in UTC. */
int clock_parse_rfc3339(const char *s, int64_t *real_us);

#endif
