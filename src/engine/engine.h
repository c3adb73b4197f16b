/* What all parts of the engine share. One of it exists, made by main and passed to everyone. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/http.h"
#include "engine/keeper.h"
#include "engine/loop.h"
#include "engine/net.h"
#include "engine/options.h"
#include "engine/seccomp.h"
#include "engine/template.h"

struct sandbox;

struct engine {
	const struct options *opt;
	struct ground ground;
	struct loop *loop;
	struct http *http;
	struct template *templates;
	struct seccomp_filter filter;
	struct net_host host;
	int agent_exe;             /* the agent's program, in memory */
	bool internet;             /* slirp4netns can be used */
	struct sandbox *sandboxes; /* alive: starting, running or paused; newest first */
	struct sandbox *ending;    /* waiting for their processes to be reaped */
	uint64_t serials;          /* sandboxes ever made */
	unsigned char *slots;      /* which pairs of ids are taken */
	bool stopping;
};

/* Text of the Python driver, built into the program. */
extern const char kernel_driver[];

#endif
