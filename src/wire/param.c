#include "wire/param.h"

#include <string.h>
#include <strings.h>

static const char *skip_name(const char *p)
{
	while ((unsigned char)*p > ' ' && *p != 0x7f && !strchr("()<>@,;:\\\"/[]?=", *p))
		p++;
	return p;
}

static bool escaped(const char *p)
{
	return p[0] == '\\' && (p[1] == '"' || p[1] == '\\');
}

static const char *closing_quote(const char *p)
{
	while (*p && *p != '"')
		p += escaped(p) ? 2 : 1;
	return p;
}

int param_next(const char **s, struct param *out)
{
	const char *p = *s + strspn(*s, " \t");
	if (*p && *p != ';')
		return -1;
	p += strspn(p, "; \t");
	if (!*p)
		return 0;
	struct param found = { .name = p };
	p = skip_name(p);
	found.nname = (size_t)(p - found.name);
	if (!found.nname || *p++ != '=')
		return -1;
	found.quoted = *p == '"';
	p += found.quoted;
	found.value = p;
	/* Without quotes only a token is allowed, but senders are known to forget them around a
	 * '/'. */
	p = found.quoted ? closing_quote(p) : p + strcspn(p, " \t;\"");
	found.nvalue = (size_t)(p - found.value);
	if (found.quoted ? *p++ != '"' : !found.nvalue)
		return -1;
	*s = p;
	*out = found;
	return 1;
}

bool param_is(const struct param *p, const char *name)
{
	return p->nname == strlen(name) && !strncasecmp(p->name, name, p->nname);
}

size_t param_unescape(char *out, const struct param *p)
{
	size_t len = 0;
	for (size_t i = 0; i < p->nvalue; i++) {
		/* The byte behind a quoted value is its closing quote, and no escape ends there. */
		if (p->quoted && escaped(p->value + i))
			i++;
		out[len++] = p->value[i];
	}
	return len;
}
