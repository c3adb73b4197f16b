#include "store/tokens.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "store/db.h"

static const char *const roles[] = { [ROLE_USER] = "user", [ROLE_ADMIN] = "admin" };

static int token_read(sqlite3_stmt *st, struct token_row *out, struct err *err)
{
	struct reader r = READER(st);
	out->seq = read_number(&r);
	read_text(&r, out->id, sizeof out->id);
	read_text(&r, out->user, sizeof out->user);
	out->role = (enum token_role)read_word(&r, roles, COUNT(roles));
	out->scopes = (unsigned)read_number(&r);
	read_text(&r, out->session_id, sizeof out->session_id);
	out->created_at = read_number(&r);
	out->expires_at = read_number(&r);
	out->revoked_at = read_number(&r);
	return read_end(&r, err);
}

static int read_one(struct store *s, enum sql id, struct args args, struct token_row *out,
		    struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	struct token_row row;
	bool there;
	if (db_query(s, id, args, &st, err) < 0 || db_row(s, st, &there, err) < 0)
		return -1;
	if (!there)
		return err_set(err, ERR_NOT_FOUND, "there is no such token");
	if (token_read(st, &row, err) < 0)
		return -1;
	*out = row;
	return 0;
}

static int create(struct store *s, const struct token_new *token, const char *id, const char *hash,
		  struct token_row *out, struct err *err)
{
	struct args args = ARGS(NAME(id), NAME(hash), NAME(token->user), NAME(roles[token->role]),
				NUMBER(token->scopes), NAME(token->session_id),
				NUMBER(clock_real_us()), NUMBER(token->expires_at));
	if (db_write(s, SQL_TOKEN_CREATE, args, NULL, err) < 0)
		return -1;
	return token_get(s, id, out, err);
}

int token_create(struct store *s, const struct token_new *token, char secret[TOKEN_SECRET],
		 struct token_row *out, struct err *err)
{
	char id[TOKEN_ID] = "t_", fresh[TOKEN_SECRET] = "sg_", hash[SHA256_HEX];
	id_alnum(id + 2, TOKEN_ID - 3);
	id_alnum(fresh + 3, TOKEN_SECRET - 4);
	sha256_hex(hash, fresh, strlen(fresh));
	if (store_begin(s, err) < 0)
		return -1;
	struct token_row row;
	if (store_end(s, create(s, token, id, hash, &row, err), err) < 0)
		return -1;
	memcpy(secret, fresh, TOKEN_SECRET);
	*out = row;
	return 0;
}

int token_find(struct store *s, const char *secret, struct token_row *out, struct err *err)
{
	/* The index compares hashes: how far it gets tells a guesser nothing about the secret. */
	char hash[SHA256_HEX];
	sha256_hex(hash, secret, strlen(secret));
	return read_one(s, SQL_TOKEN_BY_HASH, ARGS(NAME(hash)), out, err);
}

int token_get(struct store *s, const char *id, struct token_row *out, struct err *err)
{
	return read_one(s, SQL_TOKEN_GET, ARGS(NAME(id)), out, err);
}

int token_list(struct store *s, int64_t after, struct token_row *rows, size_t max, size_t *n,
	       struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	size_t count = 0;
	bool there = true;
	if (db_query(s, SQL_TOKEN_LIST, ARGS(NUMBER(after), NUMBER((int64_t)max)), &st, err) < 0)
		return -1;
	while (count < max) {
		if (db_row(s, st, &there, err) < 0)
			return -1;
		if (!there)
			break;
		if (token_read(st, &rows[count++], err) < 0)
			return -1;
	}
	*n = count;
	return 0;
}

int token_revoke(struct store *s, const char *id, struct err *err)
{
	int changed;
	if (db_write(s, SQL_TOKEN_REVOKE, ARGS(NAME(id), NUMBER(clock_real_us())), &changed, err) <
	    0)
		return -1;
	return changed ? 0 : err_set(err, ERR_NOT_FOUND, "there is no token '%.64s'", id);
}
