#include "core/initial.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/packages.h"
#include "e2b/run.h"

#define PACKAGES_MAX 100
#define PIP_WORDS    8

/* The next part of a list with commas, without the blanks around it; NULL behind the last. */
static char *next_part(char **at)
{
	char *part = strsep(at, ",");
	if (!part)
		return NULL;
	while (isspace((unsigned char)*part))
		part++;
	for (size_t n = strlen(part); n && isspace((unsigned char)part[n - 1]);)
		part[--n] = '\0';
	return part;
}

static bool is_name(const char *s)
{
	const size_t n = strlen(s);
	return n && !isdigit((unsigned char)*s) &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == n;
}

int initial_envs(const struct settings *s, struct e2b_pair pairs[INITIAL_ENVS_MAX], size_t *n,
		 char **text, struct err *err)
{
	char *copy = strdup(s->init_envs ? s->init_envs : ""), *at = copy, *part;
	*text = copy;
	*n = 0;
	if (!copy)
		return err_set(err, ERR_INTERNAL, "no memory");
	while ((part = next_part(&at))) {
		char *value = strchr(part, '=');
		if (!*part)
			continue;
		if (value)
			*value++ = '\0';
		/* The value may be a secret; the name is not. */
		if (!value || !is_name(part))
			return err_set(err, ERR_INVALID,
				       "SANDGATE_INIT_ENVS: expected NAME=value, not '%.40s'",
				       value ? part : "a word without '='");
		if (*n == INITIAL_ENVS_MAX)
			return err_set(err, ERR_INVALID,
				       "SANDGATE_INIT_ENVS: more than %d variables",
				       INITIAL_ENVS_MAX);
		pairs[(*n)++] = (struct e2b_pair){ part, value };
	}
	return 0;
}

/* The packages as they are given to pip; their texts lie in *text. */
static int read_packages(const struct settings *s, const char *words[PACKAGES_MAX], size_t *n,
			 char **text, struct err *err)
{
	char *copy = strdup(s->init_packages ? s->init_packages : ""), *at = copy, *part;
	*text = copy;
	*n = 0;
	if (!copy)
		return err_set(err, ERR_INTERNAL, "no memory");
	while ((part = next_part(&at))) {
		struct package package;
		struct err why;
		if (!*part)
			continue;
		if (package_parse(part, strlen(part), &package, &why) < 0)
			return err_set(err, ERR_INVALID, "SANDGATE_INIT_PACKAGES: %s", why.text);
		if (*n == PACKAGES_MAX)
			return err_set(err, ERR_INVALID,
				       "SANDGATE_INIT_PACKAGES: more than %d packages",
				       PACKAGES_MAX);
		words[(*n)++] = part;
	}
	return 0;
}

int initial_check(const struct settings *s, struct err *err)
{
	struct e2b_pair pairs[INITIAL_ENVS_MAX];
	const char *words[PACKAGES_MAX];
	_free_ char *envs = NULL;
	_free_ char *packages = NULL;
	size_t n;
	if (initial_envs(s, pairs, &n, &envs, err) < 0)
		return -1;
	return read_packages(s, words, &n, &packages, err);
}

/* ---- pip ---- */

struct pip {
	struct buf said; /* on stderr */
	int exit_code;
};

static int on_event(void *ctx, const struct e2b_event *e)
{
	struct pip *pip = ctx;
	size_t room = pip->said.max - pip->said.len;
	if (e->type == E2B_STDERR)
		buf_add(&pip->said, e->text, e->ntext < room ? e->ntext : room);
	else if (e->type == E2B_END)
		pip->exit_code = e->exit_code;
	return 0;
}

int initial_packages(struct core *c, const struct e2b_sandbox *sb, struct err *err)
{
	static const char *const pip_words[PIP_WORDS] = { "python3",
							  "-m",
							  "pip",
							  "install",
							  "--quiet",
							  "--no-input",
							  "--disable-pip-version-check",
							  "--" };
	const char *argv[PIP_WORDS + PACKAGES_MAX + 1];
	_free_ char *text = NULL;
	size_t n;
	const int64_t secs = c->settings->execution_timeout;
	const struct e2b_wait wait = { .deadline_mono_us = clock_mono_us() + secs * SECOND_US };
	struct pip pip = { .said = BUF(2048), .exit_code = -1 };
	memcpy(argv, pip_words, sizeof pip_words);
	if (read_packages(c->settings, argv + PIP_WORDS, &n, &text, err) < 0)
		return -1;
	if (!n)
		return 0;
	argv[PIP_WORDS + n] = NULL;
	const struct e2b_command what = { .argv = argv, .timeout_ms = secs * 1000 };
	int rc = e2b_run_command(c->e2b, sb, &what, on_event, &pip, &wait, err);
	if (rc == 0 && pip.exit_code != 0)
		rc = err_set(err, ERR_INVALID, "SANDGATE_INIT_PACKAGES: pip failed: %.300s",
			     pip.said.p ? pip.said.p : "");
	buf_free(&pip.said);
	return rc;
}
