/* What the whole sandbox uses, read from its own /proc. */
#ifndef AGENT_USAGE_H
#define AGENT_USAGE_H

#include "wire/agentmsg.h"

void usage_read(struct agent_usage *out);

#endif
