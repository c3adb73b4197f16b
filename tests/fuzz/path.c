/* Paths that clients give, and names of uploaded files. */
#include "fuzz.h"

#include "wire/path.h"
#include "wire/utf8.h"

static void check_clean(const char *path)
{
	size_t n = strlen(path);
	CHECK(path[0] == '/' && n < PATH_TEXT);
	CHECK(n == 1 || path[n - 1] != '/');
	for (const char *p = path; n > 1 && *p;) {
		size_t name = strcspn(++p, "/");
		CHECK(name > 0 && name < PATH_NAME);
		CHECK(strncmp(p, "./", 2) != 0 && strcmp(p, ".") != 0);
		CHECK(strncmp(p, "../", 3) != 0 && strcmp(p, "..") != 0);
		p += name;
	}
	CHECK(n == 1 ? !strcmp(path_name(path), "/") : !strchr(path_name(path), '/'));
}

/* How far up from its start the path leads at the most. */
static int climb(const char *path)
{
	int depth = 0, lowest = 0;
	for (size_t n; *path; path += n + (path[n] == '/')) {
		n = strcspn(path, "/");
		if (n == 2 && !strncmp(path, "..", 2))
			depth--;
		else if (n && !(n == 1 && *path == '.'))
			depth++;
		lowest = depth < lowest ? depth : lowest;
	}
	return -lowest;
}

static void check_paths(const char *given)
{
	char strict[PATH_TEXT], resolved[PATH_TEXT], again[PATH_TEXT];
	bool is_strict = path_strict(strict, given, NULL) == 0;
	bool is_path = path_resolve(resolved, given, "/home/user", "/work", NULL) == 0;
	if (is_strict) {
		check_clean(strict);
		CHECK(climb(given) == 0 && utf8_valid(strict, strlen(strict)));
		CHECK(is_path && !strcmp(strict, resolved));
		CHECK(path_strict(again, strict, NULL) == 0 && !strcmp(again, strict));
	}
	if (is_path) {
		check_clean(resolved);
		CHECK(path_resolve(again, resolved, "/home/user", NULL, NULL) == 0);
		CHECK(!strcmp(again, resolved));
	}
}

static void check_name(const char *given)
{
	char name[PATH_NAME], again[PATH_NAME];
	if (path_upload_name(name, given, NULL))
		return;
	CHECK(*name && strlen(name) < PATH_NAME && !strpbrk(name, "/\\"));
	CHECK(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	CHECK(utf8_valid(name, strlen(name)));
	CHECK(path_upload_name(again, name, NULL) == 0 && !strcmp(again, name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	check_paths(given);
	check_name(given);
	return 0;
}
