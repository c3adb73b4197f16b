#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "e2b/client.h"

#define FAILED_TEXT_MAX (64u << 10) /* of an answer that only explains a failure */
#define CONNECT_MS      10000L
#define IDLE_SECS       50L /* shorter than any server's or proxy's idle limit that we know of */

void call_init(struct call *call, const char *what, const char *method, size_t answer_max)
{
	*call = (struct call){ .what = what,
			       .method = method,
			       .url = BUF(64u << 10),
			       .body = BUF(64u << 20),
			       .answer = BUF(answer_max) };
	/* libcurl would wait a second for "100 Continue" before a large body. */
	call_header(call, "Expect", NULL);
}

void call_header(struct call *call, const char *name, const char *value)
{
	struct buf line = BUF(8u << 10);
	if (value && !*value)
		return;
	/* A name without a value takes libcurl's own header away. */
	int rc = value ? buf_addf(&line, "%s: %s", name, value) : buf_addf(&line, "%s:", name);
	struct curl_slist *list = rc ? NULL : curl_slist_append(call->headers, line.p);
	if (list)
		call->headers = list;
	else
		call->no_memory = true;
	buf_free(&line);
}

void call_free(struct call *call)
{
	curl_slist_free_all(call->headers);
	buf_free(&call->url);
	buf_free(&call->body);
	buf_free(&call->answer);
}

static bool succeeded(const struct call *call)
{
	return call->status >= 200 && call->status < 300;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
	struct call *call = ctx;
	long status = 0;
	(void)size;
	/* The empty line ends the headers of this answer, or of a 1xx before it. */
	if (n > 2 || (*p != '\r' && *p != '\n') || call->status)
		return n;
	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200)
		return n;
	call->status = (int)status;
	call->sent = true;
	if (succeeded(call) && call->began && call->began(call->ctx, &call->why) < 0) {
		call->refused = true;
		return 0;
	}
	return n;
}

/* What explains a failure may be cut; an answer that is asked for may not. */
static size_t collect(struct call *call, const char *p, size_t n)
{
	size_t room = call->answer.max - call->answer.len, keep = n;
	if (!succeeded(call)) {
		if (room > FAILED_TEXT_MAX)
			room = FAILED_TEXT_MAX;
		if (keep > room)
			keep = room;
	}
	if (buf_add(&call->answer, p, keep) == 0)
		return n;
	call->cut_answer = true;
	return 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
	struct call *call = ctx;
	(void)size;
	if (!call->take || !succeeded(call))
		return collect(call, p, n);
	int rc = call->take(call->ctx, p, n, &call->why);
	if (rc == 0)
		return n;
	if (rc > 0) {
		call->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	call->refused = true;
	return 0;
}

static size_t on_pull(char *p, size_t size, size_t n, void *ctx)
{
	struct call *call = ctx;
	n *= size;
	if (call->pull) {
		ssize_t got = call->pull(call->pull_ctx, p, n);
		if (got == E2B_PULL_LATER) {
			call->paused = true;
			return CURL_READFUNC_PAUSE;
		}
		if (got >= 0) {
			call->pos += (size_t)got;
			/* libcurl would wait for the rest for ever. */
			if (got || call->length < 0 || call->pos >= (size_t)call->length)
				return (size_t)got;
		}
		err_set(&call->why, ERR_ABANDONED, "%s: the source ended too early", call->what);
		call->refused = true;
		return CURL_READFUNC_ABORT;
	}
	if (n > call->body.len - call->pos)
		n = call->body.len - call->pos;
	if (n)
		memcpy(p, call->body.p + call->pos, n);
	call->pos += n;
	return n;
}

static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	struct call *call = ctx;
	if (origin != SEEK_SET || offset < 0 || (size_t)offset > call->body.len)
		return CURL_SEEKFUNC_FAIL;
	call->pos = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

static CURLcode set_body(struct call *call)
{
	CURL *e = call->easy;
	int64_t length = call->pull ? call->length : (int64_t)call->body.len;
	if (length < 0)
		call_header(call, "Transfer-Encoding", "chunked");
	CURLcode rc = curl_easy_setopt(e, CURLOPT_POST, 1L);
	if (!rc)
		rc = curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
	/* libcurl sends a request again by itself when a kept connection dies before the answer,
	 * also a POST that was sent whole. It cannot where the body comes from a function without a
	 * seek: then nothing is ever run twice. */
	if (!rc)
		rc = curl_easy_setopt(e, CURLOPT_READFUNCTION, on_pull);
	if (!rc)
		rc = curl_easy_setopt(e, CURLOPT_READDATA, call);
	if (!rc && call->repeatable && !call->pull) {
		rc = curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
		if (!rc)
			rc = curl_easy_setopt(e, CURLOPT_SEEKDATA, call);
	}
	return rc;
}

static CURLcode set_method(struct call *call)
{
	if (!strcmp(call->method, "POST"))
		return set_body(call);
	CURLcode rc = curl_easy_setopt(call->easy, CURLOPT_HTTPGET, 1L);
	if (!rc && strcmp(call->method, "GET") != 0)
		rc = curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, call->method);
	return rc;
}

static CURLcode set_options(const struct e2b *c, struct call *call)
{
	CURL *e = call->easy;
	CURLcode rc = CURLE_OK;
	long size = call->bulk ? 256L << 10 : 64L << 10;
#define SET(option, value)                                                                         \
	do {                                                                                       \
		if (!rc)                                                                           \
			rc = curl_easy_setopt(e, option, value);                                   \
	} while (0)
	SET(CURLOPT_URL, call->url.p);
	SET(CURLOPT_PRIVATE, call);
	SET(CURLOPT_ERRORBUFFER, call->text);
	SET(CURLOPT_USERAGENT, "sandgate/" SANDGATE_VERSION);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	/* Closing the connection is how code is interrupted, so each call has one of its own. */
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_NOSIGNAL, 1L);
	/* Else giving a call up while its name is being resolved would wait for the resolver. */
	SET(CURLOPT_QUICK_EXIT, 1L);
	SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	SET(CURLOPT_MAXAGE_CONN, IDLE_SECS);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_BUFFERSIZE, size);
	SET(CURLOPT_UPLOAD_BUFFERSIZE, size);
	/* With a folder of certificates libcurl reads all of them anew for each connection; with a
	 * file alone it keeps them parsed in the multi handle. */
	SET(CURLOPT_CAPATH, NULL);
	if (c->ca_file)
		SET(CURLOPT_CAINFO, c->ca_file);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, call);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, call);
#undef SET
	if (!rc)
		rc = set_method(call);
	if (!rc)
		rc = curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->headers);
	return call->no_memory ? CURLE_OUT_OF_MEMORY : rc;
}

/* ---- driving it ---- */

/* Calls that were begun inside a tick share the multi handle, so a message may be another's. */
static void read_messages(struct e2b *c)
{
	CURLMsg *m;
	int left;
	while ((m = curl_multi_info_read(c->multi, &left))) {
		struct call *call = NULL;
		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &call);
		call->result = m->data.result;
		call->done = true;
	}
}

/* Offer again what the consumer did not want, and let the transfer go on if it took it. */
static int resume(struct call *call, bool *waits, struct err *err)
{
	int rc = call->again ? call->again(call->ctx, &call->why) : 0;
	*waits = rc > 0;
	if (rc < 0) {
		*err = call->why;
		return -1;
	}
	if (rc == 0 && call->paused && !call->done) {
		call->paused = false;
		curl_easy_pause(call->easy, CURLPAUSE_CONT);
	}
	return 0;
}

static int drive(struct e2b *c, struct call *call, const struct e2b_wait *wait, struct err *err)
{
	int64_t ticked = clock_mono_us();
	if (!call->deadline_mono_us)
		call->deadline_mono_us = ticked + c->timeout_us;
	for (;;) {
		int running;
		bool waits = false, tick;
		CURLMcode rc = curl_multi_perform(c->multi, &running);
		if (rc)
			return err_set(err, ERR_INTERNAL, "%s: %s", call->what,
				       curl_multi_strerror(rc));
		read_messages(c);
		if (call->refused || call->cut_answer)
			return 0;
		/* The last piece may have come while the consumer was still busy. */
		if (call->done && resume(call, &waits, err) < 0)
			return -1;
		if (call->done && !waits)
			return 0;
		if (call_wait(c, wait, call->deadline_mono_us, INT64_MAX, &ticked, &tick,
			      call->what, err) < 0)
			return -1;
		if (tick && resume(call, &waits, err) < 0)
			return -1;
	}
}

/* ---- the exchange ---- */

/* Where the settings are wrong, trying again cannot help. */
static bool is_hopeless(CURLcode rc)
{
	return rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE ||
	       rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL ||
	       rc == CURLE_OUT_OF_MEMORY;
}

static void look(struct call *call)
{
	struct curl_header *h;
	curl_off_t wait = 0, began = 0;
	curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &wait);
	curl_easy_getinfo(call->easy, CURLINFO_PRETRANSFER_TIME_T, &began);
	call->retry_after = wait > 0 && wait < 86400 ? (long)wait : 0;
	/* A body of which nothing was taken cannot have arrived. */
	if (began > 0 && (call->pos || (!call->body.len && !call->pull)))
		call->sent = true;
	if (curl_easy_header(call->easy, "X-Next-Token", 0, CURLH_HEADER, -1, &h) == CURLHE_OK &&
	    strlen(h->value) < sizeof call->next_token)
		memcpy(call->next_token, h->value, strlen(h->value) + 1);
}

static int judge(struct call *call, struct err *err)
{
	if (call->refused) {
		*err = call->why;
		return -1;
	}
	if (call->cut_answer)
		return err_set(err, ERR_INTERNAL, "%s: the answer is longer than %zu bytes",
			       call->what, call->answer.max);
	if (call->result == CURLE_OK && call->status)
		return 0;
	const char *text = call->text[0] ? call->text : curl_easy_strerror(call->result);
	return err_set(err, is_hopeless(call->result) ? ERR_INTERNAL : ERR_UNAVAILABLE, "%s: %s",
		       call->what, text);
}

bool call_may_have_acted(const struct call *call)
{
	return call->sent && (call->status < 400 || call->status == 500 || call->status == 502 ||
			      call->status == 504);
}

int call_run(struct e2b *c, struct call *call, const struct e2b_wait *wait, struct err *err)
{
	struct err local;
	if (!err)
		err = &local;
	call->easy = curl_easy_init();
	CURLcode rc = call->easy ? set_options(c, call) : CURLE_OUT_OF_MEMORY;
	if (rc) {
		curl_easy_cleanup(call->easy);
		return err_set(err, ERR_INTERNAL, "%s: %s", call->what, curl_easy_strerror(rc));
	}
	CURLMcode added = curl_multi_add_handle(c->multi, call->easy);
	if (added) {
		curl_easy_cleanup(call->easy);
		return err_set(err, ERR_INTERNAL, "%s: %s", call->what, curl_multi_strerror(added));
	}
	int result = drive(c, call, wait, err);
	look(call);
	/* Taking away a call that is not done closes its connection. */
	curl_multi_remove_handle(c->multi, call->easy);
	if (result == 0)
		result = judge(call, err);
	curl_easy_cleanup(call->easy);
	call->easy = NULL;
	c->last.what = call->what;
	c->last.status = call->status;
	c->last.tries++;
	c->last.why = result < 0 && !call->sent ? E2B_WHY_NOT_SENT : E2B_WHY_OTHER;
	return result;
}
