#include "wire/agentmsg.h"

#include <string.h>

const char *agent_string(const char *payload, size_t n, size_t *pos)
{
	if (*pos >= n)
		return NULL;
	const char *s = payload + *pos;
	const char *end = memchr(s, '\0', n - *pos);
	if (!end)
		return NULL;
	*pos = (size_t)(end - payload) + 1;
	return s;
}
