/* Templates of the engine: their files, and what requests call them. The first line is the
 * reference, the rest the file. */
#include "fuzz.h"

#include "engine/template.h"

static void check_template(const struct template *t)
{
	CHECK(strlen(t->id) == 20 && t->naliases <= TEMPLATE_ALIASES_MAX);
	CHECK(t->cpu >= 1 && t->cpu <= 64 && t->memory_mb >= 1 && t->disk_mb >= 1);
	for (size_t i = 0; i < t->naliases; i++) {
		const struct template *found = NULL;
		CHECK(template_find(t, t->aliases[i], &found, NULL) == 0 && found == t);
	}
	for (size_t i = 0; i < t->nenvs; i++)
		CHECK(strchr(t->envs[i], '=') > t->envs[i] && !strchr(t->envs[i], '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	_free_ char *ref = take_line(&p, &n), *text = copy_text(p, n);
	struct template *t = NULL;
	const struct template *found = NULL;
	struct err err = { 0 };
	if (template_parse(&t, "fuzzed", text, &err) == 0)
		check_template(t);
	else
		CHECK(err.code == ERR_INVALID && !t);
	if (template_find(t, ref, &found, &err) == 0)
		CHECK(found == t);
	else
		CHECK(err.code == ERR_INVALID || err.code == ERR_NOT_FOUND);
	templates_free(t);
	return 0;
}
