/* The route table. A row is the whole policy of a route, and its handler starts only when all of it
 * holds. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "store/tokens.h"
#include "web/scoreboard.h"

struct call;

/* Who may ask at all. There is no zero: a row that says nothing is refused at the start. */
enum who {
	WHO_ANYONE = 1,
	WHO_USER,  /* somebody whom nginx has recognised */
	WHO_NGINX, /* nginx itself; never reachable from outside */
};

/* Two front ends, two shapes of the same answers. */
enum dialect { DIALECT_NONE, DIALECT_A, DIALECT_B };

#define BODY_STREAM (-1) /* the handler reads it, and limits it by a setting */

struct route {
	const char *method; /* GET stands for HEAD, too */
	const char *path;   /* {session} and {id} are one segment each */
	enum who who;
	enum token_scope scope; /* of WHO_USER */
	int64_t body_max;       /* bytes, or BODY_STREAM */
	enum pool pool;
	enum dialect dialect;
	bool audited;
	const char *name; /* in the log and the audit trail */
	void (*handler)(struct call *c);
};

/* 0, or -1 when a row is not complete. */
int routes_check(struct err *err);

/* Row by row; NULL behind the last. */
const struct route *routes_at(size_t i);

enum route_answer { ROUTE_FOUND, ROUTE_UNKNOWN, ROUTE_OTHER_METHOD };

#define ROUTE_ALLOW 64

/* A raw segment of a path: three characters for one that is encoded, and room to see that it is too
 * long. */
#define ROUTE_SEGMENT (3 * STORE_NAME_MAX + 8)

struct route_match {
	const struct route *route;
	char session[ROUTE_SEGMENT]; /* as it stands in the URI; "" when the path has none */
	char id[ROUTE_SEGMENT];      /* the same of {id} */
	char allow[ROUTE_ALLOW];     /* of ROUTE_OTHER_METHOD: the value of the Allow header */
};

/* Find the row for a raw request URI. */
enum route_answer routes_find(const char *method, const char *uri, struct route_match *out);

/* nginx's map from "METHOD URI" to the upstream of the pool. */
void routes_print_map(FILE *out);

/* A line for each route: method, path, who, scope, pool; for tests that walk them all. */
void routes_print(FILE *out);

#endif
