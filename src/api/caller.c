#include "api/caller.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/answer.h"
#include "api/body.h"
#include "api/handlers.h"
#include "base/clock.h"
#include "wire/utf8.h"

#define COOKIE          "sandgate_token"
#define COOKIE_AGE_MAX  (400 * 86400LL) /* browsers keep none for longer */
#define SECRET_TEXT_MAX 256

static const char *param(const struct call *c, const char *name)
{
	const char *value = web_param(c->web, name);
	return value ? value : "";
}

/* ---- tokens as they are presented ---- */

static bool from_bearer(const struct call *c, char out[SECRET_TEXT_MAX])
{
	const char *field = web_param(c->web, "HTTP_AUTHORIZATION");
	if (!field || strncasecmp(field, "Bearer ", 7) != 0)
		return false;
	field += 7 + strspn(field + 7, " ");
	return (size_t)snprintf(out, SECRET_TEXT_MAX, "%s", field) < SECRET_TEXT_MAX;
}

static bool from_cookie(const struct call *c, char out[SECRET_TEXT_MAX])
{
	const size_t n = sizeof COOKIE - 1;
	for (const char *p = param(c, "HTTP_COOKIE"); *p; p += strcspn(p, ";"), p += *p == ';') {
		p += strspn(p, " ");
		if (strncmp(p, COOKIE, n) != 0 || p[n] != '=')
			continue;
		size_t len = strcspn(p + n + 1, "; ");
		if (len >= SECRET_TEXT_MAX)
			return false;
		memcpy(out, p + n + 1, len);
		out[len] = '\0';
		return true;
	}
	return false;
}

static bool is_valid(const struct token_row *row)
{
	return !row->revoked_at && (!row->expires_at || row->expires_at > clock_real_us());
}

/* 0, or -1 and the call has been answered. */
static int find_valid(struct call *c, const char *secret, struct token_row *row)
{
	struct err err = { 0 };
	if (token_find(c->w->core.store, secret, row, &err) == 0 && is_valid(row))
		return 0;
	if (err.code != ERR_NOT_FOUND && err.code != ERR_NONE)
		answer_err(c, &err);
	else
		answer_problem(c, UNAUTHORIZED, "the token is unknown, expired or revoked");
	return -1;
}

void op_auth(struct call *c)
{
	struct token_row row;
	char secret[SECRET_TEXT_MAX];
	/* A header is set on purpose: a bad one is not forgiven because of a good cookie. */
	bool bearer = *param(c, "HTTP_AUTHORIZATION") != '\0';
	if (bearer ? !from_bearer(c, secret) : !from_cookie(c, secret)) {
		answer_problem(c, UNAUTHORIZED, "send Authorization: Bearer TOKEN");
		return;
	}
	if (find_valid(c, secret, &row) < 0)
		return;
	web_header(c->web, "X-Sandgate-User", row.user);
	web_header(c->web, "X-Sandgate-Token", row.id);
	web_header(c->web, "X-Sandgate-Via", bearer ? "bearer" : "cookie");
	answer_empty(c, 204);
}

/* ---- the browser's cookie ---- */

/* The page that sends this must be ours: its origin names the host that it calls. A page that came
 * without TLS can be anybody's where we have it; the other way round, a proxy before nginx has. */
static bool same_origin(const struct call *c)
{
	const char *origin = param(c, "HTTP_ORIGIN"), *host = NULL;
	if (!strncasecmp(origin, "https://", 8))
		host = origin + 8;
	else if (!strncasecmp(origin, "http://", 7) && !*param(c, "HTTPS"))
		host = origin + 7;
	return host && *host && !strcasecmp(host, param(c, "HTTP_HOST"));
}

static void set_cookie(struct call *c, const char *secret, int64_t age)
{
	char field[SECRET_TEXT_MAX + 128], max_age[40] = "";
	if (age >= 0)
		snprintf(max_age, sizeof max_age, "; Max-Age=%lld", (long long)age);
	snprintf(field, sizeof field, COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict%s%s", secret,
		 max_age, *param(c, "HTTPS") ? "; Secure" : "");
	web_header(c->web, "Set-Cookie", field);
}

/* Another site could log a browser in or out by sending a form. */
static bool from_elsewhere(struct call *c)
{
	if (!*param(c, "HTTP_ORIGIN") || same_origin(c))
		return false;
	answer_problem(c, FORBIDDEN, "the request comes from another site");
	return true;
}

void op_login(struct call *c)
{
	struct json_object *o;
	struct token_row row;
	const char *secret;
	size_t n;
	if (from_elsewhere(c) || body_object(c, &o) < 0)
		return;
	int rc = body_text(c, o, "token", &secret, &n);
	if (rc == 0 && (!secret || !n))
		answer_problem(c, BAD_REQUEST, "'token' is missing: send {\"token\": \"...\"}");
	else if (rc == 0 && find_valid(c, secret, &row) == 0) {
		int64_t left = (row.expires_at - clock_real_us()) / SECOND_US;
		memcpy(c->caller.user, row.user, sizeof c->caller.user);
		set_cookie(c, secret,
			   !row.expires_at         ? -1
			   : left < COOKIE_AGE_MAX ? left
						   : COOKIE_AGE_MAX);
		answer_empty(c, 204);
	}
	json_object_put(o);
}

void op_logout(struct call *c)
{
	struct token_row row;
	struct err ignored;
	char secret[SECRET_TEXT_MAX];
	if (from_elsewhere(c))
		return;
	if (from_cookie(c, secret) && token_find(c->w->core.store, secret, &row, &ignored) == 0)
		memcpy(c->caller.user, row.user, sizeof c->caller.user);
	set_cookie(c, "", 0);
	answer_empty(c, 204);
}

/* ---- what a caller may ---- */

static bool is_user_name(const char *s)
{
	size_t n = strlen(s);
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)s[i]))
			return false;
	return n && n <= STORE_NAME_MAX && utf8_valid(s, n);
}

/* Somebody whom nginx recognised by our token, or in a way of its own: then there is no token. */
static bool identify(struct call *c)
{
	const char *user = param(c, "SANDGATE_USER"), *id = param(c, "SANDGATE_TOKEN_ID");
	struct token_row row;
	struct err err = { 0 };
	if (!is_user_name(user)) {
		answer_problem(c, UNAUTHORIZED, "send Authorization: Bearer TOKEN");
		return false;
	}
	snprintf(c->caller.user, sizeof c->caller.user, "%s", user);
	c->caller.by_cookie = !strcmp(param(c, "SANDGATE_VIA"), "cookie");
	c->caller.scopes = SCOPES_DEFAULT;
	if (!*id)
		return true;
	if (token_get(c->w->core.store, id, &row, &err) < 0 && err.code != ERR_NOT_FOUND) {
		answer_err(c, &err);
		return false;
	}
	if (err.code == ERR_NOT_FOUND || !is_valid(&row) || strcmp(row.user, user) != 0) {
		answer_problem(c, UNAUTHORIZED, "the token is unknown, expired or revoked");
		return false;
	}
	c->caller.scopes = row.scopes;
	memcpy(c->caller.session, row.session_id, sizeof c->caller.session);
	return true;
}

static bool refuse(struct call *c, const char *why)
{
	answer_problem(c, FORBIDDEN, "%s", why);
	return false;
}

bool caller_may(struct call *c)
{
	const char *method = param(c, "REQUEST_METHOD");
	if (c->route->who != WHO_USER)
		return true;
	if (!identify(c))
		return false;
	if (c->caller.by_cookie && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0 &&
	    !same_origin(c))
		return refuse(c, "a browser's request must come from this site (Origin)");
	if (!(c->caller.scopes & c->route->scope))
		return refuse(c, "the token has not the scope that this needs");
	if (c->caller.session[0] && strcmp(c->caller.session, c->session) != 0)
		return refuse(c, "the token is for another session");
	return true;
}
