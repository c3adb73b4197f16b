/* Names of packages to be installed. */
#include "fuzz.h"

#include "core/packages.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static bool consists_of(const char *s, const char *set)
{
	return *s && strspn(s, set) == strlen(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	struct package found = { 0 }, again;
	struct err err = { 0 };
	if (package_parse(given, n, &found, &err)) {
		CHECK(err.code == ERR_INVALID && is_printable(err.text, strlen(err.text)));
		CHECK(!*found.name && !*found.requirement);
		return 0;
	}
	/* Nothing that separates words, starts an option, names a file, or is special inside
	 * double quotes. */
	CHECK(consists_of(found.name, LETTERS "-_."));
	CHECK(consists_of(found.requirement, LETTERS "-_.[],<>=!~*+"));
	CHECK(strchr(LETTERS, found.name[0]) && strlen(found.requirement) <= n);
	CHECK(!strncmp(found.requirement, found.name, strlen(found.name)));
	CHECK(package_parse(found.requirement, strlen(found.requirement), &again, &err) == 0);
	CHECK(!strcmp(again.requirement, found.requirement) && !strcmp(again.name, found.name));
	return 0;
}
