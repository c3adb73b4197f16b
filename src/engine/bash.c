#include "engine/bash.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Text in bash's $'...' form: nothing in it can end the quote. */
static void put_quoted(struct buf *b, const char *p, size_t n)
{
	buf_adds(b, "$'");
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];
		if (c == '\\' || c == '\'')
			buf_addf(b, "\\%c", c);
		else if (c < ' ')
			buf_addf(b, "\\%03o", c);
		else
			buf_add(b, p + i, 1);
	}
	buf_adds(b, "'");
}

/* Other names can be in an environment, but bash cannot assign to them. */
static bool is_identifier(const char *name)
{
	return !isdigit((unsigned char)*name) &&
	       !name[strspn(name,
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")];
}

void bash_put_command(struct buf *b, const char *code, size_t n, struct json_object *env)
{
	if (env) {
		json_object_object_foreach(env, name, value)
		{
			if (!is_identifier(name))
				continue;
			buf_addf(b, "[ \"${%s+x}\" ] && __sg_%s=$%s; export %s=", name, name, name,
				 name);
			put_quoted(b, json_object_get_string(value),
				   strlen(json_object_get_string(value)));
			buf_adds(b, "\n");
		}
	}
	buf_adds(b, "eval ");
	put_quoted(b, code, n);
	buf_adds(b, " </dev/null\n__sg=$?\n");
	if (env) {
		json_object_object_foreach(env, name, value)
		{
			if (!is_identifier(name))
				continue;
			(void)value;
			buf_addf(b,
				 "if [ \"${__sg_%s+x}\" ]; then %s=$__sg_%s; unset __sg_%s; else "
				 "unset %s; fi\n",
				 name, name, name, name, name);
		}
	}
	buf_adds(b, "printf '%s\\n' \"$__sg\" >&3; (exit $__sg)\n");
}
