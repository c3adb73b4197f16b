/* What all parts of the engine share. One of it exists, made by main and passed to everyone. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/http.h"
#include "engine/keeper.h"
#include "engine/logs.h"
#include "engine/loop.h"
#include "engine/net.h"
#include "engine/options.h"
#include "engine/seccomp.h"
#include "engine/template.h"

struct pool;
struct memory;
struct sandbox;
struct zygote;

struct engine {
	const struct options *opt;
	struct ground ground;
	struct loop *loop;
	struct http *http;
	struct template *templates;
	struct seccomp_filter filter;
	struct net_host host;
	struct memory *memory;     /* what sandboxes may use of it */
	int agent_exe;             /* the agent's program, in memory */
	int zygote_lib;            /* the zygote's library, in memory */
	struct zygote *zygote;     /* NULL when kernels are started one by one */
	bool internet;             /* slirp4netns can be used */
	const char *node;          /* Node.js, where javascript can be offered, or NULL */
	struct sandbox *sandboxes; /* alive: starting, running or paused; newest first */
	struct sandbox *pooled;    /* in the warm pool */
	struct pool *pool;
	struct sandbox *ending; /* waiting for their processes to be reaped */
	struct logs_kept logs;  /* of sandboxes that ended */
	uint64_t serials;       /* sandboxes ever made */
	unsigned char *slots;   /* which pairs of ids are taken */
	bool stopping;
};

/* Texts of the drivers, and of the Python driver's reader of figures, built into the program. */
extern const char kernel_driver[], kernel_charts[], kernel_javascript[];

#endif
