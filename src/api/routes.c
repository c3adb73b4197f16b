#include "api/routes.h"

#include <string.h>

#include "api/handlers.h"

#define KIB 1024
#define A   "/api/v1/session/{session}/sandbox/"
#define B   "/api/v1/sessions/{session}/sandbox/"

/* A macro with a fixed number of arguments: a row that leaves one out does not compile. */
#define ROW(method, path, who, scope, body, pool, dialect, audited, name, handler)                 \
	{                                                                                          \
		method, path, who, scope, body, pool, dialect, audited, name, handler              \
	}

/* clang-format off */
static const struct route table[] = {
ROW("GET",  "/healthz",        WHO_ANYONE, 0, 0,        POOL_QUICK, DIALECT_NONE, false, "healthz", op_healthz),
ROW("GET",  "/readyz",         WHO_ANYONE, 0, 0,        POOL_EXEC,  DIALECT_NONE, false, "readyz",  op_readyz),
ROW("GET",  "/_sandgate/auth", WHO_NGINX,  0, 0,        POOL_QUICK, DIALECT_NONE, false, "auth",    op_auth),
ROW("POST", "/api/v1/login",   WHO_ANYONE, 0, 4 * KIB,  POOL_QUICK, DIALECT_NONE, true,  "login",   op_login),
ROW("POST", "/api/v1/logout",  WHO_ANYONE, 0, 4 * KIB,  POOL_QUICK, DIALECT_NONE, true,  "logout",  op_logout),

ROW("POST", A "start",    WHO_USER, SCOPE_RUN,   64 * KIB,   POOL_EXEC,  DIALECT_A, true,  "start",    op_start),
ROW("POST", A "stop",     WHO_USER, SCOPE_RUN,   64 * KIB,   POOL_EXEC,  DIALECT_A, true,  "stop",     op_stop),
ROW("GET",  A "status",   WHO_USER, SCOPE_READ,  0,          POOL_QUICK, DIALECT_A, false, "status",   op_status),
ROW("POST", A "execute",  WHO_USER, SCOPE_RUN,   4096 * KIB, POOL_EXEC,  DIALECT_A, true,  "execute",  op_execute),
ROW("POST", A "install",  WHO_USER, SCOPE_RUN,   64 * KIB,   POOL_EXEC,  DIALECT_A, true,  "install",  op_install),
ROW("POST", A "upload",   WHO_USER, SCOPE_WRITE, BODY_STREAM, POOL_EXEC, DIALECT_A, true,  "upload",   op_upload),
ROW("GET",  A "download", WHO_USER, SCOPE_READ,  0,          POOL_EXEC,  DIALECT_A, true,  "download", op_download),
ROW("GET",  A "executions",             WHO_USER, SCOPE_READ, 0, POOL_QUICK, DIALECT_A, false, "executions", op_executions),
ROW("GET",  A "executions/{id}",        WHO_USER, SCOPE_READ, 0, POOL_QUICK, DIALECT_A, false, "execution",  op_execution),
ROW("GET",  A "executions/{id}/events", WHO_USER, SCOPE_READ, 0, POOL_EXEC,  DIALECT_A, false, "events",     op_events),
ROW("DELETE", A "executions/{id}",      WHO_USER, SCOPE_RUN,  0, POOL_EXEC,  DIALECT_A, true,  "cancel",     op_cancel),
ROW("GET",  A "contexts",               WHO_USER, SCOPE_READ, 0, POOL_EXEC,  DIALECT_A, false, "contexts",   op_contexts),
ROW("POST", A "contexts",               WHO_USER, SCOPE_RUN,  64 * KIB, POOL_EXEC, DIALECT_A, true, "context_create", op_context_create),
ROW("POST", A "contexts/{id}/restart",  WHO_USER, SCOPE_RUN,  4 * KIB, POOL_EXEC, DIALECT_A, true, "context_restart", op_context_restart),
ROW("DELETE", A "contexts/{id}",        WHO_USER, SCOPE_RUN,  0, POOL_EXEC,  DIALECT_A, true,  "context_remove", op_context_remove),
ROW("POST", A "envs",                   WHO_USER, SCOPE_RUN,  1024 * KIB, POOL_EXEC, DIALECT_A, true, "envs", op_envs),
ROW("POST", A "keepalive",              WHO_USER, SCOPE_RUN,  4 * KIB, POOL_EXEC, DIALECT_A, true, "keepalive", op_keepalive),
ROW("GET",  A "metrics",                WHO_USER, SCOPE_READ, 0, POOL_EXEC,  DIALECT_A, false, "metrics", op_metrics),
ROW("GET",  A "files",    WHO_USER, SCOPE_READ,  0,          POOL_EXEC,  DIALECT_A, false, "files",    op_files),

ROW("POST", B "start",    WHO_USER, SCOPE_RUN,   64 * KIB,   POOL_EXEC,  DIALECT_B, true,  "start",    op_start),
ROW("POST", B "stop",     WHO_USER, SCOPE_RUN,   64 * KIB,   POOL_EXEC,  DIALECT_B, true,  "stop",     op_stop),
ROW("GET",  B "status",   WHO_USER, SCOPE_READ,  0,          POOL_QUICK, DIALECT_B, false, "status",   op_status),
ROW("POST", B "execute",  WHO_USER, SCOPE_RUN,   4096 * KIB, POOL_EXEC,  DIALECT_B, true,  "execute",  op_execute),
ROW("POST", B "install",  WHO_USER, SCOPE_RUN,   64 * KIB,   POOL_EXEC,  DIALECT_B, true,  "install",  op_install),
ROW("POST", B "upload",   WHO_USER, SCOPE_WRITE, BODY_STREAM, POOL_EXEC, DIALECT_B, true,  "upload",   op_upload),
ROW("GET",  B "download", WHO_USER, SCOPE_READ,  0,          POOL_EXEC,  DIALECT_B, true,  "download", op_download),
ROW("GET",  B "executions",             WHO_USER, SCOPE_READ, 0, POOL_QUICK, DIALECT_B, false, "executions", op_executions),
ROW("GET",  B "executions/{id}",        WHO_USER, SCOPE_READ, 0, POOL_QUICK, DIALECT_B, false, "execution",  op_execution),
ROW("GET",  B "executions/{id}/events", WHO_USER, SCOPE_READ, 0, POOL_EXEC,  DIALECT_B, false, "events",     op_events),
ROW("DELETE", B "executions/{id}",      WHO_USER, SCOPE_RUN,  0, POOL_EXEC,  DIALECT_B, true,  "cancel",     op_cancel),
ROW("GET",  B "contexts",               WHO_USER, SCOPE_READ, 0, POOL_EXEC,  DIALECT_B, false, "contexts",   op_contexts),
ROW("POST", B "contexts",               WHO_USER, SCOPE_RUN,  64 * KIB, POOL_EXEC, DIALECT_B, true, "context_create", op_context_create),
ROW("POST", B "contexts/{id}/restart",  WHO_USER, SCOPE_RUN,  4 * KIB, POOL_EXEC, DIALECT_B, true, "context_restart", op_context_restart),
ROW("DELETE", B "contexts/{id}",        WHO_USER, SCOPE_RUN,  0, POOL_EXEC,  DIALECT_B, true,  "context_remove", op_context_remove),
ROW("POST", B "envs",                   WHO_USER, SCOPE_RUN,  1024 * KIB, POOL_EXEC, DIALECT_B, true, "envs", op_envs),
ROW("POST", B "keepalive",              WHO_USER, SCOPE_RUN,  4 * KIB, POOL_EXEC, DIALECT_B, true, "keepalive", op_keepalive),
ROW("GET",  B "metrics",                WHO_USER, SCOPE_READ, 0, POOL_EXEC,  DIALECT_B, false, "metrics", op_metrics),
ROW("GET",  B "files",    WHO_USER, SCOPE_READ,  0,          POOL_EXEC,  DIALECT_B, false, "files",    op_files),
};
/* clang-format on */

#define ROWS (sizeof table / sizeof *table)

static const char *const upstreams[POOLS] = {
	[POOL_QUICK] = "sandgate_quick", [POOL_EXEC] = "sandgate_exec"
};

const struct route *routes_at(size_t i)
{
	return i < ROWS ? &table[i] : NULL;
}

int routes_check(struct err *err)
{
	for (size_t i = 0; i < ROWS; i++) {
		const struct route *r = &table[i];
		bool scoped = r->scope != 0;
		if (r->who < WHO_ANYONE || r->who > WHO_NGINX || scoped != (r->who == WHO_USER) ||
		    !r->handler || !r->name || (strstr(r->path, "{session}") && !r->dialect))
			return err_set(err, ERR_INTERNAL, "the route %s %s says not who may use it",
				       r->method, r->path);
	}
	return 0;
}

/* ---- finding ---- */

/* A segment that does not fit is longer than any id; a part of it is no id either. */
static void keep(struct route_match *m, const char *name, const char *p, size_t n)
{
	char *to = strncmp(name, "{session}", 9) == 0 ? m->session : m->id;
	snprintf(to, ROUTE_SEGMENT, "%.*s", (int)(n < ROUTE_SEGMENT ? n : ROUTE_SEGMENT - 1), p);
}

/* Segment by segment, as they stand in the request: only the variable ones are ever decoded, so
 * that nginx and we cannot disagree on which route it is. */
static bool path_matches(const char *pattern, const char *uri, size_t n, struct route_match *m)
{
	const char *end = uri + n;
	m->session[0] = m->id[0] = '\0';
	while (*pattern) {
		if (*pattern != '{') {
			if (uri == end || *pattern++ != *uri++)
				return false;
			continue;
		}
		const char *slash = memchr(uri, '/', (size_t)(end - uri));
		size_t len = (size_t)((slash ? slash : end) - uri);
		keep(m, pattern, uri, len);
		uri += len;
		pattern += strcspn(pattern, "}") + 1;
	}
	return uri == end;
}

static void add_method(char allow[ROUTE_ALLOW], const char *method)
{
	size_t n = strlen(allow);
	snprintf(allow + n, ROUTE_ALLOW - n, "%s%s", n ? ", " : "", method);
	if (!strcmp(method, "GET"))
		add_method(allow, "HEAD");
}

enum route_answer routes_find(const char *method, const char *uri, struct route_match *out)
{
	const char *get = !strcmp(method, "HEAD") ? "GET" : method;
	size_t n = strcspn(uri, "?#");
	enum route_answer answer = ROUTE_UNKNOWN;
	*out = (struct route_match){ 0 };
	for (size_t i = 0; i < ROWS; i++) {
		if (!path_matches(table[i].path, uri, n, out))
			continue;
		if (strcmp(table[i].method, get) == 0) {
			out->route = &table[i];
			return ROUTE_FOUND;
		}
		add_method(out->allow, table[i].method);
		answer = ROUTE_OTHER_METHOD;
	}
	return answer;
}

/* ---- printing ---- */

static void print_pattern(const struct route *r, FILE *out)
{
	fprintf(out, "\"~^%s ", strcmp(r->method, "GET") ? r->method : "(GET|HEAD)");
	for (const char *p = r->path; *p; p++) {
		if (*p == '{') {
			fputs("[^/?]*", out);
			p += strcspn(p, "}");
		} else {
			fprintf(out, strchr(".+*()[]^$|\\", *p) ? "\\%c" : "%c", *p);
		}
	}
	fputs("(\\?|$)\"", out);
}

/* What is on no row is refused, which the quick pool can do. */
void routes_print_map(FILE *out)
{
	fprintf(out, "# Made by `sandgatectl nginx-map` from the route table.\n");
	fprintf(out, "map \"$request_method $request_uri\" $sandgate_pool {\n");
	fprintf(out, "\tdefault %s;\n", upstreams[POOL_QUICK]);
	for (size_t i = 0; i < ROWS; i++) {
		if (table[i].who == WHO_NGINX)
			continue;
		fputc('\t', out);
		print_pattern(&table[i], out);
		fprintf(out, " %s;\n", upstreams[table[i].pool]);
	}
	fprintf(out, "}\n");
}

void routes_print(FILE *out)
{
	static const char *const who[] = {
		[WHO_ANYONE] = "anyone", [WHO_USER] = "user", [WHO_NGINX] = "nginx"
	};
	for (size_t i = 0; i < ROWS; i++) {
		char scope[SCOPES_TEXT];
		scopes_text(scope, table[i].scope);
		fprintf(out, "%s\t%s\t%s\t%s\t%s\n", table[i].method, table[i].path,
			who[table[i].who], *scope ? scope : "-", upstreams[table[i].pool]);
	}
}
