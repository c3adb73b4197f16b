/* A file of settings. */
#include "fuzz.h"

#include <sys/mman.h>

#include "base/settings.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The tester's own settings would win. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return clearenv();
}

static void check_loaded(const struct settings *s)
{
	CHECK(s->api_key || s->api_url);
	CHECK(s->domain && *s->domain && !strchr(s->domain, '/'));
	CHECK(s->state_dir && s->db && s->default_type && s->log_level);
	CHECK(s->execution_timeout >= 1 && s->execution_timeout <= 3600);
	CHECK(s->max_lifetime >= 1 && s->max_lifetime <= 86400);
	CHECK(s->exec_workers >= 1 && s->exec_workers <= 4096);
	CHECK(s->upload_max >= 1 && s->drain >= 0 && s->drain <= 3600);
}

/* A line for each setting, and no secret in any of them. */
static void check_printed(const struct settings *s)
{
	_free_ char *text = NULL, *names = NULL;
	size_t n = 0, nnames = 0, lines = 0, rows = 0;
	FILE *out = open_memstream(&text, &n), *table = open_memstream(&names, &nnames);
	CHECK(out && table);
	settings_print(s, out);
	settings_describe(table);
	fclose(out);
	fclose(table);
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	for (const char *p = names; (p = strchr(p, '\n')); p++)
		rows++;
	CHECK(lines == rows);
	CHECK(strstr(text, s->api_key ? "E2B_API_KEY=****\n" : "E2B_API_KEY=\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct settings s;
	struct err err = { 0 };
	char path[32];
	_close_ int fd = memfd_create("settings", MFD_CLOEXEC);
	CHECK(fd >= 0 && (!n || write(fd, data, n) == (ssize_t)n));
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (settings_load(&s, path, &err)) {
		CHECK(err.code == ERR_INVALID && *err.text);
		return 0;
	}
	check_loaded(&s);
	check_printed(&s);
	settings_free(&s);
	return 0;
}
