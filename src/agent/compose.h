/* Several files made into one, for AGENT_COMPOSE. */
#ifndef AGENT_COMPOSE_H
#define AGENT_COMPOSE_H

#include <stddef.h>

#include "agent/files.h"
#include "wire/path.h"

/* strings: the destination, then the sources. The content is written beside the destination and
 * takes its place when it is complete; the sources are removed only then. So both are on the disk
 * for a moment, and a disk that is full loses nothing. 0, or a negative errno with failed set as
 * AGENT_COMPOSE says. */
int compose(const char *strings, size_t n, struct owner who, char failed[1 + PATH_TEXT]);

#endif
