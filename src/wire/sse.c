#include "wire/sse.h"

#include <inttypes.h>

#include "base/buf.h"

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

int sse_put(struct buf *out, uint64_t id, const char *name, const char *json, size_t n)
{
	const size_t before = out->len;
	if (buf_addf(out, "id: %" PRIu64 "\nevent: %s\ndata: ", id, name) == 0 &&
	    buf_add(out, json, n) == 0 && buf_adds(out, "\n\n") == 0)
		return 0;
	out->len = before; /* half an event would spoil the next one */
	return -1;
}
