#include "wire/path.h"

#include <stdbool.h>
#include <string.h>

#include "wire/utf8.h"

#define MAX_NAME (PATH_NAME - 1)

/* A clean absolute path in the making: each component with a '/' before it, so "" is the root. */
struct clean {
	char text[PATH_TEXT];
	size_t len;
	bool strict; /* ".." may not leave the root */
};

static int push(struct clean *c, const char *name, size_t n, struct err *err)
{
	if (n == 0 || (n == 1 && name[0] == '.'))
		return 0;
	if (n == 2 && name[0] == '.' && name[1] == '.') {
		if (c->strict && !c->len)
			return err_set(err, ERR_INVALID, "'..' in the path leaves the root");
		while (c->len && c->text[--c->len] != '/')
			;
		return 0;
	}
	if (n > MAX_NAME)
		return err_set(err, ERR_INVALID, "a name in the path is longer than %d bytes",
			       MAX_NAME);
	if (n + 1 >= PATH_TEXT - c->len)
		return err_set(err, ERR_INVALID, "the path is longer than %d bytes", PATH_TEXT - 1);
	c->text[c->len++] = '/';
	memcpy(c->text + c->len, name, n);
	c->len += n;
	return 0;
}

static int push_all(struct clean *c, const char *path, struct err *err)
{
	if (strnlen(path, PATH_TEXT) == PATH_TEXT)
		return err_set(err, ERR_INVALID, "the path is longer than %d bytes", PATH_TEXT - 1);
	while (*path) {
		size_t n = strcspn(path, "/");
		if (push(c, path, n, err))
			return -1;
		path += n + (path[n] == '/');
	}
	return 0;
}

static void finish(struct clean *c, char out[PATH_TEXT])
{
	if (!c->len)
		c->text[c->len++] = '/';
	c->text[c->len] = '\0';
	memcpy(out, c->text, c->len + 1);
}

int path_resolve(char out[PATH_TEXT], const char *path, const char *home, const char *base_dir,
		 struct err *err)
{
	struct clean c = { .len = 0 };
	const char *start = home;
	if (!*path)
		start = base_dir && *base_dir ? base_dir : home;
	else if (path[0] == '/')
		start = "/";
	if (path[0] == '~') {
		if (path[1] && path[1] != '/')
			return err_set(err, ERR_INVALID, "cannot expand user-specific home dir");
		path++;
	}
	if (push_all(&c, start, err) || push_all(&c, path, err))
		return -1;
	finish(&c, out);
	return 0;
}

int path_strict(char out[PATH_TEXT], const char *path, struct err *err)
{
	struct clean c = { .strict = true };
	if (path[0] != '/')
		return err_set(err, ERR_INVALID, "the path must be absolute: begin it with '/'");
	if (push_all(&c, path, err))
		return -1;
	if (!utf8_valid(path, strlen(path)))
		return err_set(err, ERR_INVALID, "the path is not valid UTF-8");
	finish(&c, out);
	return 0;
}

int path_upload_name(char out[PATH_NAME], const char *filename, struct err *err)
{
	const char *name = filename;
	for (const char *p; (p = strpbrk(name, "/\\"));)
		name = p + 1;
	size_t n = strlen(name);
	if (!n || !strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(err, ERR_INVALID, "the file has no name of its own: give it one");
	if (n > MAX_NAME)
		return err_set(err, ERR_INVALID,
			       "the file's name is longer than %d bytes: give it a shorter one",
			       MAX_NAME);
	if (!utf8_valid(name, n))
		return err_set(err, ERR_INVALID,
			       "the file's name is not valid UTF-8: give it another one");
	memcpy(out, name, n + 1);
	return 0;
}

const char *path_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}
