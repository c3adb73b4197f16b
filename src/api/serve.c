#include "api/serve.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/caller.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/sha256.h"
#include "core/initial.h"
#include "store/audit.h"
#include "store/executions.h"
#include "store/leases.h"
#include "wire/uri.h"

#define UNREAD_MAX (64 << 20)      /* bytes that are heard of a body that nobody wants */
#define UNREAD_MS  1000            /* and how long its next piece is waited for */
#define UNREAD_US  (5 * SECOND_US) /* in all */

/* ---- one process ---- */

/* A second at most: whoever finishes wakes the key, and everyone looks again by himself. */
static int sleep_on(void *ctx, const char *key, int ms)
{
	struct worker *w = ctx;
	struct web_req *web = w->call ? w->call->web : NULL;
	/* An unread body makes it readable as well, and one who is gone stays so. */
	struct pollfd p[] = { { .fd = w->slot->wake, .events = POLLIN },
			      { .fd = web && !web_gone(web) ? web_fd(web) : -1,
				.events = web && web_body_read(web) ? POLLIN : POLLRDHUP } };
	board_wait_for(w->slot, board_key("session", key));
	poll(p, 2, ms);
	board_wait_for(w->slot, 0);
	if (p[0].revents)
		board_clear_wake(w->slot);
	return web && web_gone(web) ? -1 : 0;
}

static void wake(void *ctx, const char *key)
{
	struct worker *w = ctx;
	board_wake(w->board, board_key("session", key), w->slot);
}

static void log_provider_call(void *ctx, const struct e2b_last *last, const struct err *err)
{
	const struct worker *w = ctx;
	const struct call *c = w->call;
	char user[LOG_PLAIN], text[LOG_PLAIN];
	log_line(LOG_INFO,
		 "request_id=%s user=\"%s\" session=%s sandbox=%s op=\"e2b %s\" status=%d ms=%.1f "
		 "tries=%d%s%s%s",
		 c ? c->request_id : "", c ? log_plain(user, c->caller.user) : "",
		 c ? c->session : "", last->sandbox, last->what, last->status,
		 (double)last->us / 1000, last->tries, err ? " error=\"" : "",
		 err ? log_plain(text, err->text) : "", err ? "\"" : "");
}

static void complain(void *ctx, const struct err *err)
{
	const struct worker *w = ctx;
	char text[LOG_PLAIN];
	log_line(LOG_ERROR, "request_id=%s op=start error=\"%s\"",
		 w->call ? w->call->request_id : "", log_plain(text, err->text));
}

static void close_worker(void *worker)
{
	struct worker *w = worker;
	store_free(w->core.store);
	e2b_free(w->core.e2b);
	free(w);
}

static int slot_number(struct board *board, const struct slot *slot)
{
	return (int)(slot - board_slot(board, 0));
}

static void *open_worker(void *ctx, struct board *board, struct slot *slot, struct err *err)
{
	const struct settings *s = &((struct serve_config *)ctx)->settings;
	struct worker *w = calloc(1, sizeof *w);
	if (!w) {
		err_set(err, ERR_INTERNAL, "no memory");
		return NULL;
	}
	*w = (struct worker){ .settings = s,
			      .core = { .settings = s,
					.sleep = sleep_on,
					.wake = wake,
					.complain = complain,
					.ctx = w },
			      .board = board,
			      .slot = slot };
	const struct store_config store = { .path = s->db, .slot = slot_number(board, slot) };
	const struct e2b_config e2b = core_provider(s);
	if (store_open(&w->core.store, &store, err) < 0 || e2b_new(&w->core.e2b, &e2b, err) < 0) {
		close_worker(w);
		return NULL;
	}
	e2b_on_done(w->core.e2b, log_provider_call, w);
	return w;
}

static void served(void *worker)
{
	store_tidy(((struct worker *)worker)->core.store);
}

/* ---- before the handler ---- */

static void name_request(struct call *c)
{
	const char *given = web_param(c->web, "REQUEST_ID");
	if (given && *given && strlen(given) <= REQUEST_ID_MAX &&
	    strspn(given, "0123456789abcdefABCDEF-") == strlen(given))
		snprintf(c->request_id, sizeof c->request_id, "%s", given);
	else
		id_alnum(c->request_id, 32);
}

/* What is no id is forgotten here, or it could put words into the log; it is refused once the
 * caller is known. */
static void read_id(char *out, size_t size, const char *raw)
{
	if (uri_decode(out, size, raw, strlen(raw), false) < 0 || !session_id_valid(out))
		out[0] = '\0';
}

/* The route, and the ids in its path. */
static bool find_route(struct call *c)
{
	struct route_match match;
	const char *method = web_param(c->web, "REQUEST_METHOD"),
		   *uri = web_param(c->web, "REQUEST_URI");
	if (!method || !uri) {
		answer_problem(c, INTERNAL, "%s", "");
		return false;
	}
	const char *query = strchr(uri, '?');
	c->query = query ? query + 1 : "";
	switch (routes_find(method, uri, &match)) {
	case ROUTE_UNKNOWN:
		answer_problem(c, NO_SUCH_ROUTE, "the README lists all operations");
		return false;
	case ROUTE_OTHER_METHOD:
		web_header(c->web, "Allow", match.allow);
		answer_problem(c, METHOD_NOT_ALLOWED, "use %s", match.allow);
		return false;
	case ROUTE_FOUND:
		break;
	}
	c->route = match.route;
	if (c->route->pool == POOL_EXEC && c->w->slot->pool != POOL_EXEC) {
		snprintf(c->inner, sizeof c->inner,
			 "nginx's map of pools is out of date: see sandgatectl nginx-map");
		answer_problem(c, INTERNAL, "%s", "");
		return false;
	}
	read_id(c->session, sizeof c->session, match.session);
	read_id(c->id, sizeof c->id, match.id);
	return true;
}

static bool check_session(struct call *c)
{
	if (!c->route->dialect || c->session[0])
		return true;
	answer_problem(c, BAD_SESSION_ID, "1 to %d characters of A-Z a-z 0-9 . _ ~ : - are allowed",
		       STORE_NAME_MAX);
	return false;
}

/* It is heard to its end in any case, or nginx might not pass the answer on; nginx bounds it. */
static bool read_body(struct call *c)
{
	int64_t max = c->route->body_max;
	char piece[16384];
	ssize_t n;
	bool over = false;
	if (max == BODY_STREAM)
		return true;
	c->body = BUF((size_t)max);
	while ((n = web_read(c->web, piece, sizeof piece)) > 0)
		over |= buf_add(&c->body, piece, (size_t)n) < 0;
	if (n < 0)
		answer_nobody(c);
	else if (over && max) /* where none is asked for, one is ignored */
		answer_problem(c, TOO_LARGE, "the body may have %lld bytes", (long long)max);
	return n == 0 && (!over || !max);
}

/* Requests wait in the backlog of a busy pool, and people do not. */
static bool still_wanted(struct call *c)
{
	if (board_draining(c->w->board, NULL) && c->route->who == WHO_USER &&
	    c->route->pool == POOL_EXEC) {
		answer_problem(c, DRAINING, "try again in a moment");
		return false;
	}
	if (!web_gone(c->web))
		return true;
	answer_nobody(c);
	return false;
}

/* ---- after it ---- */

/* nginx asks who it is before each request, and balancers ask all day. When the answer is that it
 * is nobody, no other line of that request follows. */
static enum log_level level_of(const struct call *c)
{
	if (c->status >= 500)
		return LOG_ERROR;
	bool expected = c->route && c->route->who != WHO_USER && !c->route->audited;
	return expected && c->status < 400 ? LOG_DEBUG : LOG_INFO;
}

static void note(struct call *c)
{
	struct err err = { 0 };
	char user[LOG_PLAIN], text[LOG_PLAIN];
	const struct audit_entry entry = { .request_id = c->request_id,
					   .user = c->caller.user,
					   .action = c->route ? c->route->name : "",
					   .target = c->session,
					   .outcome = c->code ? c->code : "ok" };
	/* Somebody, or a failed attempt to be somebody. */
	if (c->route && c->route->audited && (c->caller.user[0] || c->code) &&
	    audit_append(c->w->core.store, &entry, &err) < 0)
		log_line(LOG_ERROR, "request_id=%s op=audit error=\"%s\"", c->request_id, err.text);
	log_line(
		level_of(c),
		"request_id=%s user=\"%s\" session=%s sandbox=%s op=%s status=%d ms=%.1f%s%s%s%s%s",
		c->request_id, log_plain(user, c->caller.user), c->session, c->sandbox,
		c->route ? c->route->name : "none", c->status,
		(double)(clock_mono_us() - c->since) / 1000, c->code ? " code=" : "",
		c->code ? c->code : "", c->inner[0] ? " error=\"" : "", log_plain(text, c->inner),
		c->inner[0] ? "\"" : "");
}

/* A call that was refused before its body was read. A client that sends nothing for a moment may be
 * waiting for the answer. */
static void hear_out(struct call *c)
{
	struct pollfd p = { .fd = web_fd(c->web), .events = POLLIN };
	const int64_t deadline = clock_mono_us() + UNREAD_US;
	char piece[16384];
	ssize_t n;
	if (web_body_read(c->web) || web_flush(c->web) < 0)
		return;
	for (int64_t left = UNREAD_MAX; left > 0 && clock_mono_us() < deadline; left -= n) {
		if (!web_buffered(c->web) && poll(&p, 1, UNREAD_MS) == 0)
			return;
		if ((n = web_read(c->web, piece, sizeof piece)) <= 0)
			return;
	}
}

static void serve(void *worker, struct web_req *r)
{
	struct worker *w = worker;
	struct call c = { .w = w, .web = r, .query = "", .since = clock_mono_us() };
	w->call = &c;
	name_request(&c);
	if (find_route(&c) && caller_may(&c) && check_session(&c) && read_body(&c) &&
	    still_wanted(&c))
		c.route->handler(&c);
	hear_out(&c);
	w->call = NULL;
	note(&c);
	buf_free(&c.body);
}

/* ---- in the master ---- */

static int reload(void *ctx, struct err *err)
{
	struct serve_config *config = ctx;
	struct settings fresh;
	if (settings_load(&fresh, config->file, err) < 0)
		return -1;
	if (initial_check(&fresh, err) < 0) {
		settings_free(&fresh);
		return -1;
	}
	settings_free(&config->settings);
	config->settings = fresh;
	log_set_level(fresh.log_level);
	return 0;
}

/* The store is closed again before the next fork. */
static void tend(void *ctx)
{
	const struct settings *s = &((struct serve_config *)ctx)->settings;
	const struct store_config config = { .path = s->db, .slot = -1 };
	struct store *store = NULL;
	struct err err = { 0 };
	size_t n = 0;
	bool whole;
	if (store_open(&store, &config, &err) < 0 || lease_prune(store, &err) < 0 ||
	    execution_end_dead(store, &n, &err) < 0 || store_checkpoint(store, &whole, &err) < 0)
		log_line(LOG_ERROR, "op=tend error=\"%s\"", err.text);
	else if (n)
		log_line(LOG_WARN, "op=tend unfinished_executions=%zu", n);
	store_free(store);
}

int serve_check(const struct serve_config *config, struct err *err)
{
	return initial_check(&config->settings, err);
}

struct prefork_app serve_app(struct serve_config *config)
{
	char hash[SHA256_HEX];
	/* At the first use of each, hundreds of KiB are made that all workers can share. */
	e2b_prepare();
	sha256_hex(hash, "", 0);
	return (struct prefork_app){ .open = open_worker,
				     .serve = serve,
				     .served = served,
				     .close = close_worker,
				     .reload = reload,
				     .tend = tend,
				     .ctx = config };
}
