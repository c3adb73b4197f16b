#include "store/envs.h"

#include "store/db.h"

int env_set(struct store *s, int64_t sandbox, const char *name, const char *value, struct err *err)
{
	struct args args = ARGS(NUMBER(sandbox), NAME(name), TEXT(value, ENV_VALUE_MAX));
	return db_write(s, SQL_ENV_SET, args, NULL, err);
}

int env_each(struct store *s, int64_t sandbox, env_fn *fn, void *ctx, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	if (db_query(s, SQL_ENV_LIST, ARGS(NUMBER(sandbox)), &st, err) < 0)
		return -1;
	for (;;) {
		bool there;
		if (db_row(s, st, &there, err) < 0)
			return -1;
		if (!there)
			return 0;
		if (fn(ctx, (const char *)sqlite3_column_text(st, 0),
		       (const char *)sqlite3_column_text(st, 1)) < 0)
			return err_set(err, ERR_LIMIT, "more than %d variables", ENVS_MAX);
	}
}

static int count_one(void *ctx, const char *name, const char *value)
{
	(void)name;
	(void)value;
	return ++*(int *)ctx > ENVS_MAX ? -1 : 0;
}

int env_check(struct store *s, int64_t sandbox, struct err *err)
{
	int n = 0;
	return env_each(s, sandbox, count_one, &n, err);
}
