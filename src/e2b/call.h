/* One HTTP exchange, and the waiting that goes with it. Only src/e2b includes this. */
#ifndef E2B_CALL_H
#define E2B_CALL_H

#include <curl/curl.h>
#include <stdbool.h>

#include "base/buf.h"
#include "e2b/remote_files.h"

/* One exchange. call_init, fill in, call_run, look, call_free. */
struct call {
	const char *what;   /* names it in error texts */
	const char *method; /* GET, POST or DELETE */
	struct buf url;
	struct curl_slist *headers;
	bool no_memory; /* while it was filled in */

	struct buf body; /* of a POST */
	e2b_pull *pull;  /* or where it comes from */
	void *pull_ctx;
	int64_t length;  /* of what is pulled; -1 unknown */
	bool repeatable; /* libcurl may send it again when a kept connection turns out dead */
	bool bulk;       /* large buffers */
	int64_t deadline_mono_us; /* where wait names none; 0: the configured timeout */

	/* Of a 2xx answer; other answers are always collected. take: 0, -1, or 1 "not now". */
	int (*began)(void *ctx, struct err *err);
	int (*take)(void *ctx, const char *p, size_t n, struct err *err);
	int (*again)(void *ctx, struct err *err); /* 0, -1, or 1: something still waits */
	void *ctx;

	int status; /* 0 until the headers are there */
	struct buf answer;
	long retry_after; /* seconds; 0 when not told */
	char next_token[1024];
	bool sent; /* the other end may have seen the whole request */

	CURL *easy;
	size_t pos; /* in body */
	bool paused, refused, done, cut_answer;
	CURLcode result;
	char text[CURL_ERROR_SIZE];
	struct err why; /* what take or pull said */
};

void call_init(struct call *call, const char *what, const char *method, size_t answer_max);
void call_header(struct call *call, const char *name, const char *value); /* "" is skipped */
void call_free(struct call *call);

/* 0 when there is a whole answer, whatever its status; else -1: ERR_TIMEOUT, ERR_ABANDONED,
 * ERR_UNAVAILABLE, ERR_INTERNAL, or what take said. */
int call_run(struct e2b *c, struct call *call, const struct e2b_wait *wait, struct err *err);

/* Whether the other end may have done what it was asked for though the call failed: the reply is
 * lost, broken, or that of a proxy that knows no more than we do. */
bool call_may_have_acted(const struct call *call);

/* One wait of a call: for the network, the descriptors, the clock; then a tick if one is due, which
 * *tick tells. deadline is for a wait that names none; *ticked is when the last tick was. */
int call_wait(struct e2b *c, const struct e2b_wait *wait, int64_t deadline, int64_t until,
	      int64_t *ticked, bool *tick, const char *what, struct err *err);

/* Wait without a call. 0 when the time is over, -1 with ERR_TIMEOUT or ERR_ABANDONED. */
int call_sleep(struct e2b *c, int64_t us, int64_t deadline_mono_us, const struct e2b_wait *wait,
	       struct err *err);

#endif
