/* The commands for tokens. A secret is printed once, when it is made, and never again. */
#include "store/tokens.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ctl/arguments.h"
#include "ctl/ctl.h"
#include "ctl/sheet.h"
#include "store/scopes.h"

#define PAGE 64

static const char *role_name(enum token_role role)
{
	return role == ROLE_ADMIN ? "admin" : "user";
}

static const char *state_name(const struct token_row *row)
{
	if (row->revoked_at)
		return "revoked";
	return row->expires_at && row->expires_at <= clock_real_us() ? "expired" : "active";
}

/* ---- token create ---- */

static int read_wish(int argc, char **argv, struct token_new *out, struct err *err)
{
	bool admin = false;
	const char *scope = NULL, *ttl = NULL;
	int64_t secs = 0;
	const struct option_row options[] = {
		{ "--user", &out->user, NULL },
		{ "--admin", NULL, &admin },
		{ "--session", &out->session_id, NULL },
		{ "--scope", &scope, NULL },
		{ "--ttl", &ttl, NULL },
	};
	if (arguments_read(argc, argv, options, sizeof options / sizeof *options, NULL, err) < 0)
		return -1;
	if (!out->user)
		return err_set(err, ERR_INVALID, "--user NAME is required");
	if (admin && scope)
		return err_set(err, ERR_INVALID, "--admin has every scope; leave --scope out");
	out->role = admin ? ROLE_ADMIN : ROLE_USER;
	out->scopes = admin ? SCOPES_OF_ADMIN : SCOPES_DEFAULT;
	if (argument_user("--user", out->user, err) < 0 ||
	    (out->session_id && argument_session("--session", out->session_id, err) < 0) ||
	    (scope && scopes_parse(scope, &out->scopes, err) < 0) ||
	    (ttl && argument_duration("--ttl", ttl, &secs, err) < 0))
		return -1;
	out->expires_at = ttl ? clock_real_us() + secs * SECOND_US : 0;
	return 0;
}

static int create(struct ctl *ctl, const struct token_new *wish, char secret[TOKEN_SECRET],
		  struct token_row *row, struct err *err)
{
	if (store_begin(ctl->store, err) < 0)
		return -1;
	int rc = token_create(ctl->store, wish, secret, row, err);
	if (rc == 0)
		rc = ctl_audit(ctl, "token_create", row->id, "ok", err);
	return store_end(ctl->store, rc, err);
}

static int revoke(struct ctl *ctl, const char *id, struct err *err)
{
	if (store_begin(ctl->store, err) < 0)
		return -1;
	int rc = token_revoke(ctl->store, id, err);
	if (rc == 0)
		rc = ctl_audit(ctl, "token_revoke", id, "ok", err);
	return store_end(ctl->store, rc, err);
}

static int hand_over(struct ctl *ctl, const struct token_row *row, const char *secret)
{
	char scopes[SCOPES_TEXT], expires[CLOCK_TEXT];
	struct err err;
	if (printf("%s\n", secret) < 0 || fflush(stdout) != 0) {
		/* Nobody has it, or somebody has a part of it. */
		err_errno(&err, "standard output");
		ctl_fail(&err);
		if (revoke(ctl, row->id, &err) < 0)
			return ctl_fail(&err);
		fprintf(stderr, "sandgatectl: token %s was revoked again\n", row->id);
		return CTL_FAILED;
	}
	fprintf(stderr, "id=%s user=%s role=%s scopes=%s session=%s expires=%s\n", row->id,
		row->user, role_name(row->role), scopes_text(scopes, row->scopes),
		row->session_id[0] ? row->session_id : "any",
		row->expires_at ? sheet_time(expires, row->expires_at) : "never");
	return CTL_OK;
}

int ctl_token_create(struct ctl *ctl, int argc, char **argv)
{
	struct token_new wish = { 0 };
	struct token_row row;
	char secret[TOKEN_SECRET];
	struct err err;
	if (read_wish(argc, argv, &wish, &err) < 0)
		return ctl_usage(&err);
	int status = ctl_store(ctl);
	if (status != CTL_OK)
		return status;
	if (create(ctl, &wish, secret, &row, &err) < 0)
		return ctl_fail(&err);
	status = hand_over(ctl, &row, secret);
	explicit_bzero(secret, sizeof secret);
	return status;
}

/* ---- token list ---- */

static const struct sheet_column token_columns[] = {
	{ "ID", "id", CELL_TEXT },
	{ "USER", "user", CELL_TEXT },
	{ "ROLE", "role", CELL_TEXT },
	{ "SCOPES", "scopes", CELL_LIST },
	{ "SESSION", "session_id", CELL_TEXT },
	{ "CREATED", "created_at", CELL_TEXT },
	{ "EXPIRES", "expires_at", CELL_TEXT },
	{ "STATE", "state", CELL_TEXT },
};

#define TOKEN_COLUMNS (sizeof token_columns / sizeof *token_columns)

static int token_row(struct sheet *sheet, const struct token_row *row, struct err *err)
{
	char scopes[SCOPES_TEXT], created[CLOCK_TEXT], expires[CLOCK_TEXT];
	const char *const cells[TOKEN_COLUMNS] = {
		row->id,
		row->user,
		role_name(row->role),
		scopes_text(scopes, row->scopes),
		row->session_id,
		sheet_time(created, row->created_at),
		sheet_time(expires, row->expires_at),
		state_name(row),
	};
	return sheet_row(sheet, cells, err);
}

static int every_token(void *ctx, struct sheet *sheet, struct err *err)
{
	struct store *store = ctx;
	struct token_row rows[PAGE];
	int64_t after = 0;
	for (size_t n = PAGE; n == PAGE;) {
		if (token_list(store, after, rows, PAGE, &n, err) < 0)
			return -1;
		for (size_t i = 0; i < n; i++) {
			if (token_row(sheet, &rows[i], err) < 0)
				return -1;
			after = rows[i].seq;
		}
	}
	return 0;
}

int ctl_token_list(struct ctl *ctl, int argc, char **argv)
{
	bool json = false;
	const struct option_row options[] = { { "--json", NULL, &json } };
	struct err err;
	if (arguments_read(argc, argv, options, 1, NULL, &err) < 0)
		return ctl_usage(&err);
	int status = ctl_store(ctl);
	if (status != CTL_OK)
		return status;
	if (sheet_print(token_columns, TOKEN_COLUMNS, json, every_token, ctl->store, &err) < 0)
		return ctl_fail(&err);
	return CTL_OK;
}

/* ---- token revoke ---- */

int ctl_token_revoke(struct ctl *ctl, int argc, char **argv)
{
	const char *id = NULL;
	struct token_row row;
	char when[CLOCK_TEXT];
	struct err err;
	int rc = arguments_read(argc, argv, NULL, 0, &id, &err);
	if (rc == 0 && !id)
		rc = err_set(&err, ERR_INVALID, "token revoke: the token's id is missing");
	if (rc < 0)
		return ctl_usage(&err);
	int status = ctl_store(ctl);
	if (status != CTL_OK)
		return status;
	/* The store's text does not repeat the id: people paste the secret by mistake. */
	if (token_get(ctl->store, id, &row, &err) < 0)
		return ctl_fail(&err);
	if (row.revoked_at) {
		printf("token %s of %s was revoked already, at %s\n", row.id, row.user,
		       sheet_time(when, row.revoked_at));
		return CTL_OK;
	}
	if (revoke(ctl, row.id, &err) < 0)
		return ctl_fail(&err);
	printf("revoked token %s of %s\n", row.id, row.user);
	return CTL_OK;
}
