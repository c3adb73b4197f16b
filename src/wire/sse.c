#include "wire/sse.h"

int sse_id_parse(const char *field, uint64_t *seq)
{
	uint64_t v = 0;
	if (!*field || (field[0] == '0' && field[1]))
		return -1;
	for (const char *p = field; *p; p++)
		if (*p < '0' || *p > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -1;
	*seq = v;
	return 0;
}
