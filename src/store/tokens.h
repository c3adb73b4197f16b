/* Access tokens. A secret is shown once, when it is made; the database has only its hash. */
#ifndef STORE_TOKENS_H
#define STORE_TOKENS_H

#include <stddef.h>

#include "store/sandboxes.h"
#include "store/scopes.h"

enum token_role { ROLE_USER, ROLE_ADMIN };

#define TOKEN_SECRET 44 /* "sg_", 40 characters and the NUL */
#define TOKEN_ID     19 /* "t_", 16 characters and the NUL */

struct token_new {
	const char *user;       /* whose it is: the owner of what is made with it */
	enum token_role role;   /* what its holder is */
	unsigned scopes;        /* what its holder may */
	const char *session_id; /* the only session that it opens, or NULL */
	int64_t expires_at;     /* 0 is never */
};

struct token_row {
	int64_t seq;                         /* rises with time; the cursor of lists */
	char id[TOKEN_ID];                   /* "t_..."; no secret */
	char user[STORE_NAME_MAX + 1];       /* whose it is */
	enum token_role role;                /* what its holder is */
	unsigned scopes;                     /* what its holder may */
	char session_id[STORE_NAME_MAX + 1]; /* the only session that it opens, or "" */
	int64_t created_at;                  /* when it was made */
	int64_t expires_at;                  /* 0 is never */
	int64_t revoked_at;                  /* 0 while it was not */
};

int token_create(struct store *s, const struct token_new *token, char secret[TOKEN_SECRET],
		 struct token_row *out, struct err *err);

/* The row of a presented secret, or of an id. Whether it has expired, was revoked or may do what is
 * asked is the caller's to judge. ERR_NOT_FOUND. */
int token_find(struct store *s, const char *secret, struct token_row *out, struct err *err);
int token_get(struct store *s, const char *id, struct token_row *out, struct err *err);

/* Oldest first; with seq above after. */
int token_list(struct store *s, int64_t after, struct token_row *rows, size_t max, size_t *n,
	       struct err *err);

/* Acts at once, since every request reads the row. Again is no error and keeps the first time. */
int token_revoke(struct store *s, const char *id, struct err *err);

#endif
