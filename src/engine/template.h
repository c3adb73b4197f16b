/* Templates: what a sandbox is made from. Two are built in; more come from files NAME.template. */
#ifndef ENGINE_TEMPLATE_H
#define ENGINE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define TEMPLATE_ALIASES_MAX 8
#define TEMPLATE_ENVS_MAX    64

struct template
{
	struct template *next;
	char id[21]; /* 20 of [a-z0-9] */
	char *name;
	char *aliases[TEMPLATE_ALIASES_MAX];
	size_t naliases;
	char *envs[TEMPLATE_ENVS_MAX]; /* NAME=value */
	size_t nenvs;
	char *start; /* a shell command run when a sandbox is made, or NULL */
	int cpu;
	int memory_mb;
	int disk_mb;
	bool interpreter; /* the code interpreter listens */
};

/* The built-in ones and those of dir (NULL: none). A bad file is an error that names its line. */
int templates_load(struct template **out, const char *dir, struct err *err);
void templates_free(struct template *t);

/* By "name", "id", "team/name" or "name:tag". ERR_NOT_FOUND in E2B's words. */
int template_find(const struct template *all, const char *ref, const struct template **out,
		  struct err *err);

/* One template from the text of its file; for templates_load and its test. */
int template_parse(struct template **out, const char *name, char *text, struct err *err);

#endif
