/* A call of the REST API while it is served, and what the worker that serves it has. */
#ifndef API_CALL_H
#define API_CALL_H

#include "api/routes.h"
#include "base/buf.h"
#include "core/session.h"
#include "web/request.h"

/* One process. */
struct worker {
	const struct settings *settings;
	struct core core;
	struct board *board;
	struct slot *slot;
	struct call *call;  /* the one being served */
	int64_t checked_at; /* CLOCK_MONOTONIC: when the provider was asked for its health */
	struct err health;  /* what it said; ERR_NONE: it is well */
};

/* Who calls, as the token's row or another way of nginx's to recognise people says. */
struct caller {
	char user[STORE_NAME_MAX + 1];
	unsigned scopes;
	char session[STORE_NAME_MAX + 1]; /* the only one that is open to it, or "" */
	bool by_cookie;                   /* a browser sent it by itself */
};

#define REQUEST_ID_MAX 64

struct call {
	struct worker *w;
	struct web_req *web;
	const struct route *route;
	const char *query; /* behind the '?', or "" */
	char request_id[REQUEST_ID_MAX + 1];
	struct caller caller;
	char session[STORE_NAME_MAX + 1]; /* checked; "" where the route has none */
	char id[STORE_NAME_MAX + 1];      /* of an execution or a context; "" where there is none */
	struct buf body;                  /* unless it is streamed */
	/* For the log and the audit trail. */
	int64_t since;                  /* CLOCK_MONOTONIC */
	int status;                     /* 0 until it is answered */
	const char *code;               /* the error's public name, or NULL */
	char sandbox[STORE_ID_MAX + 1]; /* "" when none is known */
	char inner[512];                /* an error's inner text, or "" */
};

#endif
