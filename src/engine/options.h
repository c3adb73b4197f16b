/* The engine's command line. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define OPTIONS_KEYS_MAX 32

struct options {
	char listen_host[64];
	int listen_port;
	const char *state;      /* folder; holds the lock and what a crash left */
	const char *templates;  /* folder, or NULL */
	const char *wheelhouse; /* folder, or NULL */
	bool internet;
	bool cgroups;
	bool zygote;
	int pool; /* sandboxes kept ready */
	bool help;
	int max_sandboxes;
	int max_memory_mb; /* 0: half of the machine's */
	int max_lifetime;  /* seconds */
	unsigned uid_base; /* the first of the 65536 host uids that a start as root uses */
	char *keys[OPTIONS_KEYS_MAX];
	size_t nkeys;
};

/* Read argv and SANDGATE_ENGINE_API_KEYS. 0, or -1 with a sentence for a person. */
int options_parse(struct options *o, int argc, char **argv, struct err *err);
void options_free(struct options *o);

extern const char options_help[];

#endif
