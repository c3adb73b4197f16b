#include "engine/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"

const char options_help[] =
	"Usage: sandgate-engine --listen ADDRESS:PORT --state DIR [OPTION...]\n"
	"A local E2B: control plane, envd and code interpreter on one port, sandboxes as isolated "
	"processes.\n"
	"\n"
	"  --listen ADDRESS:PORT    where to listen; port 0 picks a free one\n"
	"  --state DIR              folder for the lock and the traces of a crash; made if absent\n"
	"  --api-key-file FILE      API keys, one a line (or SANDGATE_ENGINE_API_KEYS, "
	"comma-separated)\n"
	"  --templates DIR          more templates: files NAME.template\n"
	"  --wheelhouse DIR         Python wheels that pip inside may install, read-only\n"
	"  --no-internet            no sandbox reaches the network\n"
	"  --cgroups auto|off       use cgroups where they are delegated (auto)\n"
	"  --max-sandboxes N        running at the same time (100)\n"
	"  --pool N                 sandboxes kept ready for the next creates (4)\n"
	"  --no-zygote              start every Python by itself instead of forking one that is "
	"ready\n"
	"  --max-memory MB          all sandboxes together; past it none are made (half of the "
	"machine's)\n"
	"  --max-lifetime SECS      the longest time a sandbox may run (86400)\n"
	"  --uid-base N             first of 65536 host uids for sandboxes when started as root "
	"(300000)\n"
	"  --log-level LEVEL        error, warn, info or debug (info)\n"
	"  --help                   this text\n";

static int add_key(struct options *o, const char *key, size_t n, struct err *err)
{
	while (n && isspace((unsigned char)key[n - 1]))
		n--;
	while (n && isspace((unsigned char)*key)) {
		key++;
		n--;
	}
	if (!n)
		return 0;
	/* E2B's servers want this form, and so do older SDKs; saying so now beats a 401 later. */
	if (n < 5 || strncmp(key, "e2b_", 4) != 0)
		return err_set(err, ERR_INVALID, "an API key must begin with e2b_");
	if (o->nkeys == OPTIONS_KEYS_MAX)
		return err_set(err, ERR_INVALID, "more than %d API keys", OPTIONS_KEYS_MAX);
	o->keys[o->nkeys] = strndup(key, n);
	if (!o->keys[o->nkeys])
		return err_set(err, ERR_INTERNAL, "no memory");
	o->nkeys++;
	return 0;
}

static int add_keys(struct options *o, const char *list, const char *separators, struct err *err)
{
	while (*list) {
		size_t n = strcspn(list, separators);
		if (add_key(o, list, n, err) < 0)
			return -1;
		list += n + (list[n] != '\0');
	}
	return 0;
}

static int read_key_file(struct options *o, const char *path, struct err *err)
{
	char text[8192];
	FILE *f = fopen(path, "re");
	if (!f)
		return err_errno(err, "--api-key-file %s", path);
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = '\0';
	return add_keys(o, text, "\r\n", err);
}

static int parse_number(const char *name, const char *s, long min, long max, long *out,
			struct err *err)
{
	char *end;
	errno = 0;
	long v = strtol(s, &end, 10);
	if (errno || end == s || *end || v < min || v > max)
		return err_set(err, ERR_INVALID, "%s takes a number from %ld to %ld, not '%s'",
			       name, min, max, s);
	*out = v;
	return 0;
}

static int parse_listen(struct options *o, const char *s, struct err *err)
{
	const char *colon = strrchr(s, ':');
	long port;
	if (!colon || colon == s || (size_t)(colon - s) >= sizeof o->listen_host)
		return err_set(err, ERR_INVALID, "--listen takes ADDRESS:PORT, not '%s'", s);
	if (parse_number("--listen's port", colon + 1, 0, 65535, &port, err) < 0)
		return -1;
	snprintf(o->listen_host, sizeof o->listen_host, "%.*s", (int)(colon - s), s);
	o->listen_port = (int)port;
	return 0;
}

static int set_int(int *to, const char *name, const char *s, long min, long max, struct err *err)
{
	long v;
	if (parse_number(name, s, min, max, &v, err) < 0)
		return -1;
	*to = (int)v;
	return 0;
}

static int set_option(struct options *o, const char *name, const char *value, struct err *err)
{
	int base;
	if (!strcmp(name, "--listen"))
		return parse_listen(o, value, err);
	if (!strcmp(name, "--api-key-file"))
		return read_key_file(o, value, err);
	if (!strcmp(name, "--max-sandboxes"))
		return set_int(&o->max_sandboxes, name, value, 1, 8000, err);
	if (!strcmp(name, "--pool"))
		return set_int(&o->pool, name, value, 0, 1000, err);
	if (!strcmp(name, "--max-memory"))
		return set_int(&o->max_memory_mb, name, value, 64, 1 << 30, err);
	if (!strcmp(name, "--max-lifetime"))
		return set_int(&o->max_lifetime, name, value, 1, 30 * 86400, err);
	if (!strcmp(name, "--uid-base")) {
		if (set_int(&base, name, value, 1000, 2000000000, err) < 0)
			return -1;
		o->uid_base = (unsigned)base;
		return 0;
	}
	if (!strcmp(name, "--state"))
		o->state = value;
	else if (!strcmp(name, "--templates"))
		o->templates = value;
	else if (!strcmp(name, "--wheelhouse"))
		o->wheelhouse = value;
	else if (!strcmp(name, "--cgroups") && (!strcmp(value, "auto") || !strcmp(value, "off")))
		o->cgroups = !strcmp(value, "auto");
	else if (!strcmp(name, "--cgroups"))
		return err_set(err, ERR_INVALID, "--cgroups takes auto or off, not '%s'", value);
	else if (!strcmp(name, "--log-level")) {
		if (log_set_level(value) < 0)
			return err_set(err, ERR_INVALID,
				       "--log-level takes error, warn, info or debug, not '%s'",
				       value);
	} else
		return err_set(err, ERR_INVALID, "unknown option '%s'; see --help", name);
	return 0;
}

/* Options without a value. */
static bool set_flag(struct options *o, const char *name)
{
	if (!strcmp(name, "--no-internet"))
		o->internet = false;
	else if (!strcmp(name, "--no-zygote"))
		o->zygote = false;
	else
		return false;
	return true;
}

int options_parse(struct options *o, int argc, char **argv, struct err *err)
{
	*o = (struct options){
		.listen_port = -1,
		.internet = true,
		.cgroups = true,
		.zygote = true,
		.pool = 4,
		.max_sandboxes = 100,
		.max_lifetime = 86400,
		.uid_base = 300000,
	};
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help")) {
			o->help = true;
			return 0;
		}
		if (set_flag(o, argv[i]))
			continue;
		char name[64], *eq = strchr(argv[i], '=');
		const char *value = eq ? eq + 1 : argv[i + 1];
		size_t n = eq ? (size_t)(eq - argv[i]) : strlen(argv[i]);
		if (n < 3 || n >= sizeof name || strncmp(argv[i], "--", 2) != 0)
			return err_set(err, ERR_INVALID, "unexpected argument '%s'; see --help",
				       argv[i]);
		snprintf(name, sizeof name, "%.*s", (int)n, argv[i]);
		if (!eq && !argv[i + 1])
			value = "";
		if (set_option(o, name, value, err) < 0)
			return -1;
		i += !eq;
	}
	char *keys = getenv("SANDGATE_ENGINE_API_KEYS");
	if (keys) {
		if (add_keys(o, keys, ",", err) < 0)
			return -1;
		explicit_bzero(
			keys,
			strlen(keys)); /* no child, and no look at our environment, finds it */
		unsetenv("SANDGATE_ENGINE_API_KEYS");
	}
	if (o->listen_port < 0)
		return err_set(err, ERR_INVALID, "--listen ADDRESS:PORT is required; see --help");
	if (!o->state || !*o->state)
		return err_set(err, ERR_INVALID, "--state DIR is required; see --help");
	if (!o->nkeys)
		return err_set(
			err, ERR_INVALID,
			"no API key: give --api-key-file FILE or set SANDGATE_ENGINE_API_KEYS");
	return 0;
}

void options_free(struct options *o)
{
	for (size_t i = 0; i < o->nkeys; i++)
		free(o->keys[i]);
	o->nkeys = 0;
}
