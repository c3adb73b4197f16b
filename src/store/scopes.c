#include "store/scopes.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned bit;
} scope_names[] = {
	{ "read", SCOPE_READ },
	{ "run", SCOPE_RUN },
	{ "write", SCOPE_WRITE },
	{ "admin", SCOPE_ADMIN },
};

#define SCOPES (sizeof scope_names / sizeof *scope_names)

const char *scopes_text(char out[SCOPES_TEXT], unsigned scopes)
{
	size_t at = 0;
	out[0] = '\0';
	for (size_t i = 0; i < SCOPES; i++)
		if (scopes & scope_names[i].bit)
			at += (size_t)snprintf(out + at, SCOPES_TEXT - at, "%s%s", at ? "," : "",
					       scope_names[i].name);
	return out;
}

static unsigned scope_bit(const char *name, size_t len)
{
	for (size_t i = 0; i < SCOPES; i++)
		if (strlen(scope_names[i].name) == len && !strncmp(scope_names[i].name, name, len))
			return scope_names[i].bit;
	return 0;
}

int scopes_parse(const char *list, unsigned *out, struct err *err)
{
	char all[SCOPES_TEXT];
	*out = 0;
	for (const char *p = list;; p++) {
		size_t n = strcspn(p, ",");
		unsigned bit = scope_bit(p, n);
		if (!bit)
			return err_set(err, ERR_INVALID, "'%.*s' is none of %s", (int)n, p,
				       scopes_text(all, SCOPES_OF_ADMIN));
		*out |= bit;
		p += n;
		if (!*p)
			return 0;
	}
}
