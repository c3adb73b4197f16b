#include "engine/template.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FILE_MAX   (64u << 10)
#define SUFFIX     ".template"
#define DEFAULT_MB 1024
#define DISK_MB    2048

/* The same name always gives the same id: FNV-1a, stretched over the alphabet. */
static void derive_id(char out[21], const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint64_t h = 14695981039346656037u;
	for (int i = 0; i < 20; i++) {
		for (const char *p = name; *p; p++)
			h = (h ^ (unsigned char)*p) * 1099511628211u;
		h = (h ^ (uint64_t)i) * 1099511628211u;
		out[i] = letters[(h >> 32) % 36];
	}
	out[20] = '\0';
}

static struct template *new_template(const char *name)
{
	struct template *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	*t = (struct template){
		.name = strdup(name), .cpu = 2, .memory_mb = DEFAULT_MB, .disk_mb = DISK_MB
	};
	derive_id(t->id, name);
	return t;
}

void templates_free(struct template *t)
{
	while (t) {
		struct template *next = t->next;
		for (size_t i = 0; i < t->naliases; i++)
			free(t->aliases[i]);
		for (size_t i = 0; i < t->nenvs; i++)
			free(t->envs[i]);
		free(t->start);
		free(t->name);
		free(t);
		t = next;
	}
}

static bool name_ok(const char *s)
{
	size_t n = strlen(s);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))
			return false;
	return n > 0 && n <= 64;
}

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	size_t n = strlen(s);
	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	return s;
}

static int set_number(int *to, const char *key, const char *value, int max, struct err *err)
{
	char *end;
	long v = strtol(value, &end, 10);
	if (end == value || *end || v < 1 || v > max)
		return err_set(err, ERR_INVALID, "%s takes a number from 1 to %d, not '%s'", key,
			       max, value);
	*to = (int)v;
	return 0;
}

static int add_aliases(struct template *t, char *list, struct err *err)
{
	for (char *at = list, *part; (part = strsep(&at, ","));) {
		part = trim(part);
		if (!name_ok(part))
			return err_set(err, ERR_INVALID,
				       "'%s' is no alias: use letters, digits, . _ -", part);
		if (t->naliases == TEMPLATE_ALIASES_MAX)
			return err_set(err, ERR_INVALID, "more than %d aliases",
				       TEMPLATE_ALIASES_MAX);
		t->aliases[t->naliases++] = strdup(part);
	}
	return 0;
}

static int set_key(struct template *t, const char *key, char *value, struct err *err)
{
	if (!strcmp(key, "cpu"))
		return set_number(&t->cpu, key, value, 64, err);
	if (!strcmp(key, "memory"))
		return set_number(&t->memory_mb, key, value, 1 << 20, err);
	if (!strcmp(key, "disk"))
		return set_number(&t->disk_mb, key, value, 1 << 20, err);
	if (!strcmp(key, "aliases"))
		return add_aliases(t, value, err);
	if (!strcmp(key, "start")) {
		free(t->start);
		t->start = strdup(value);
		return 0;
	}
	if (!strcmp(key, "env")) {
		if (*value == '=' || !strchr(value, '='))
			return err_set(err, ERR_INVALID, "env takes NAME=value, not '%s'", value);
		if (t->nenvs == TEMPLATE_ENVS_MAX)
			return err_set(err, ERR_INVALID, "more than %d env lines",
				       TEMPLATE_ENVS_MAX);
		t->envs[t->nenvs++] = strdup(value);
		return 0;
	}
	if (!strcmp(key, "interpreter") && (!strcmp(value, "yes") || !strcmp(value, "no"))) {
		t->interpreter = !strcmp(value, "yes");
		return 0;
	}
	if (!strcmp(key, "interpreter"))
		return err_set(err, ERR_INVALID, "interpreter takes yes or no, not '%s'", value);
	return err_set(
		err, ERR_INVALID,
		"unknown key '%s' (known: aliases, env, start, cpu, memory, disk, interpreter)",
		key);
}

int template_parse(struct template **out, const char *name, char *text, struct err *err)
{
	if (!name_ok(name))
		return err_set(err, ERR_INVALID,
			       "'%s' is no template name: use letters, digits, . _ -", name);
	struct template *t = new_template(name);
	if (!t)
		return err_set(err, ERR_INTERNAL, "no memory");
	int number = 0;
	for (char *at = text, *line; (line = strsep(&at, "\n"));) {
		struct err why;
		number++;
		line = trim(line);
		if (!*line || *line == '#')
			continue;
		char *eq = strchr(line, '=');
		if (eq)
			*eq = '\0';
		if (!eq || set_key(t, trim(line), trim(eq + 1), &why) < 0) {
			templates_free(t);
			return err_set(err, ERR_INVALID, "template %s, line %d: %s", name, number,
				       eq ? why.text : "expected key = value");
		}
	}
	*out = t;
	return 0;
}

static int load_file(struct template **out, int dir, const char *file, struct err *err)
{
	char name[256];
	snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(SUFFIX)), file);
	_close_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	_free_ char *text = calloc(1, FILE_MAX + 1);
	if (fd < 0 || !text)
		return err_errno(err, "template %s", name);
	ssize_t n = read(fd, text, FILE_MAX);
	if (n < 0)
		return err_errno(err, "template %s", name);
	return template_parse(out, name, text, err);
}

static int load_dir(struct template **all, const char *path, struct err *err)
{
	DIR *d = opendir(path);
	if (!d)
		return err_errno(err, "--templates %s", path);
	int rc = 0;
	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		size_t n = strlen(e->d_name), s = strlen(SUFFIX);
		const struct template *twin;
		struct template *t;
		if (n <= s || strcmp(e->d_name + n - s, SUFFIX) != 0)
			continue;
		rc = load_file(&t, dirfd(d), e->d_name, err);
		if (rc < 0)
			break;
		t->next = *all;
		*all = t;
		if (template_find(t->next, t->name, &twin, NULL) == 0)
			rc = err_set(err, ERR_EXISTS, "template %s exists twice", t->name);
	}
	closedir(d);
	return rc;
}

int templates_load(struct template **out, const char *dir, struct err *err)
{
	struct template *base = new_template("base"), *code = new_template("code-interpreter-v1");
	if (!base || !code) {
		templates_free(base);
		templates_free(code);
		return err_set(err, ERR_INTERNAL, "no memory");
	}
	/* The ids that these two have at E2B. */
	snprintf(base->id, sizeof base->id, "rki5dems9wqfm4r03t7g");
	snprintf(code->id, sizeof code->id, "nlhz8vlwyupq845jsdg9");
	code->interpreter = true;
	base->next = code;
	if (dir && load_dir(&base, dir, err) < 0) {
		templates_free(base);
		return -1;
	}
	*out = base;
	return 0;
}

static bool called(const struct template *t, const char *name)
{
	if (!strcmp(t->name, name) || !strcmp(t->id, name))
		return true;
	for (size_t i = 0; i < t->naliases; i++)
		if (!strcmp(t->aliases[i], name))
			return true;
	return false;
}

int template_find(const struct template *all, const char *ref, const struct template **out,
		  struct err *err)
{
	char name[256];
	const char *slash = strrchr(ref, '/');
	const char *start = slash ? slash + 1 : ref;
	const char *tag = strchr(start, ':');
	size_t n = tag ? (size_t)(tag - start) : strlen(start);
	snprintf(name, sizeof name, "%.*s", (int)n, start);
	if (!n || n >= sizeof name || !name_ok(name) || (tag && !name_ok(tag + 1)))
		return err_set(err, ERR_INVALID, "Invalid template reference: '%.100s'", ref);
	for (const struct template *t = all; t; t = t->next) {
		if (!called(t, name))
			continue;
		if (tag && strcmp(tag, ":default") != 0)
			return err_set(err, ERR_NOT_FOUND,
				       "tag '%.64s' does not exist for template '%s'", tag + 1,
				       name);
		*out = t;
		return 0;
	}
	return err_set(err, ERR_NOT_FOUND, "template '%.200s' not found", ref);
}
