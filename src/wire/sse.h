/* Server-sent events, as the HTML standard has them: the ids of our streams. */
#ifndef WIRE_SSE_H
#define WIRE_SSE_H

#include <stdint.h>

/* The number in a Last-Event-ID field. Our ids are numbers as eventlog counts them, in decimal and
 * without anything else: no sign, blank or leading zero. 0, or -1 when it is none of ours, also
 * past 64 bits; *seq is written only on 0. */
int sse_id_parse(const char *field, uint64_t *seq);

#endif
