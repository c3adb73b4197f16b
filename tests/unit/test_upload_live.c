/* Uploads over the real engine, from clients that dawdle, break off and lie; and against a server
 * that misbehaves by a script, for the faults that the engine does not have. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <sqlite3.h>

#include "base/buf.h"
#include "base/clock.h"
#include "core/upload.h"
#include "e2b/remote_files.h"
#include "store/leases.h"
#include "fake_server.h"
#include "live_core.h"

#define TYPE     "multipart/form-data; boundary=XyZ"
#define PART     "--XyZ\r\nContent-Disposition: form-data; name="
#define FILE_OF  PART "\"file\"; filename="
#define FIELD    PART "\"note\"\r\n\r\nnot the file\r\n"
#define END      "\r\n--XyZ--\r\n"
#define HOME     "/home/user"
#define MAX_SIZE (64 << 20)

static struct sandbox_row row;
static struct upload_report report;

static int ensure(void **state)
{
	const struct session s = { .owner = "ann", .id = "up" };
	set_up(state);
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	return 0;
}

static int run(const struct upload_request *req)
{
	struct upload *u;
	memset(&report, 0, sizeof report);
	if (upload_new(&u, &core, req, &err) < 0)
		return -1;
	memset(&report, 0xff, sizeof report);
	int rc = upload_run(u, &row, &report, &err);
	upload_free(u);
	return rc;
}

/* ---- clients ---- */

/* One that sends its text piece by piece from a thread of its own. */
struct client {
	const char *p;
	size_t n, piece; /* 0: pieces of many sizes */
	int ends[2];     /* it writes to the second */
	bool breaks_off; /* what looks like the end is not */
	bool hides;      /* its first three readings find nothing, though there is something */
	int reads;
	pthread_t thread;
};

static void *send_all(void *ctx)
{
	struct client *c = ctx;
	size_t at = 0, turn = 0;
	while (at < c->n) {
		static const size_t sizes[] = { 1, 7, 4096, 3, 65537, 100001, 2, 30000 };
		size_t n = c->piece ? c->piece : sizes[turn++ % 8];
		if (n > c->n - at)
			n = c->n - at;
		ssize_t done = send(c->ends[1], c->p + at, n, MSG_NOSIGNAL);
		if (done <= 0)
			break; /* nobody reads any more */
		at += (size_t)done;
		if (turn % 8 == 3)
			usleep(2000);
	}
	shutdown(c->ends[1], SHUT_WR);
	return NULL;
}

static ssize_t read_client(void *ctx, char *p, size_t n)
{
	struct client *c = ctx;
	if (c->hides && c->reads++ < 3)
		return E2B_PULL_LATER;
	ssize_t got = recv(c->ends[0], p, n, MSG_DONTWAIT);
	if (got < 0)
		return errno == EAGAIN ? E2B_PULL_LATER : -1;
	return got == 0 && c->breaks_off ? -1 : got;
}

static int upload(struct client *c, const char *dir, const char *type, int64_t max)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, c->ends), 0);
	assert_int_equal(pthread_create(&c->thread, NULL, send_all, c), 0);
	const struct upload_request req = { .dir = dir,
					    .content_type = type,
					    .max_bytes = max,
					    .read = read_client,
					    .ctx = c,
					    .fd = c->hides ? -1 : c->ends[0],
					    .idle_secs = 30 };
	memset(&report, 0xff, sizeof report);
	err = (struct err){ 0 };
	int rc = run(&req);
	close(c->ends[0]);
	pthread_join(c->thread, NULL);
	close(c->ends[1]);
	bool leased = true;
	struct err ignored;
	assert_int_equal(lease_live(core.store, row.id, &leased, &ignored), 0);
	assert_false(leased);
	return rc;
}

static int upload_text(const char *text, const char *dir)
{
	struct client c = { .p = text, .n = strlen(text) };
	return upload(&c, dir, TYPE, MAX_SIZE);
}

#define FAILS(call, want, part)                                                                    \
	do {                                                                                       \
		if ((call) != -1 || err.code != (want) || !strstr(err.text, part))                 \
			fail_msg("%s: %d %s", #call, err.code, err.text);                          \
		assert_string_equal(report.path, "");                                              \
	} while (0)

/* ---- what the sandbox has ---- */

static int on_byte(void *ctx, const char *p, size_t n)
{
	return buf_add(ctx, p, n);
}

static struct buf contents(const char *path)
{
	struct e2b_sandbox sb;
	struct buf b = BUF(MAX_SIZE);
	session_address(&row, &sb);
	WORKS(e2b_read(core.e2b, &sb, path, on_byte, &b, NULL, &err));
	return b;
}

static void assert_contents(const char *path, const char *want, size_t n)
{
	struct buf b = contents(path);
	assert_int_equal(b.len, n);
	if (n)
		assert_memory_equal(b.p, want, n);
	buf_free(&b);
}

static int on_name(void *ctx, const struct e2b_entry *e)
{
	return buf_addf(ctx, "%s;", e->name);
}

/* The names in a folder, each with a ';' behind it. Temporary files would be among them. */
static void assert_names(const char *dir, const char *want)
{
	struct e2b_sandbox sb;
	struct buf b = BUF(64 << 10);
	session_address(&row, &sb);
	buf_adds(&b, "");
	WORKS(e2b_list_files(core.e2b, &sb, dir, 1, on_name, &b, NULL, &err));
	assert_string_equal(b.p, want);
	buf_free(&b);
}

static void remove_all(const char *path)
{
	struct e2b_sandbox sb;
	session_address(&row, &sb);
	WORKS(e2b_remove(core.e2b, &sb, path, NULL, &err));
}

/* ---- the tests ---- */

static struct buf form(const char *name, const char *file, size_t n)
{
	struct buf b = BUF(MAX_SIZE);
	assert_int_equal(buf_addf(&b, FIELD FILE_OF "\"%s\"\r\n\r\n", name), 0);
	assert_int_equal(buf_add(&b, file, n), 0);
	assert_int_equal(buf_adds(&b, "\r\n" FIELD "--XyZ--\r\nan epilogue"), 0);
	return b;
}

static void bytes_and_hash_are_exact(void **state)
{
	(void)state;
	static const size_t sizes[] = { 0, 1, 65536, 5 << 20 };
	char *file = malloc(5 << 20), hash[SHA256_HEX];
	assert_non_null(file);
	/* Full of what begins a boundary, and of every byte. */
	for (size_t i = 0; i < 5 << 20; i++)
		file[i] = i % 1000 < 8 ? "\r\n--XyX-"[i % 1000] : (char)(i * 7 + i / 256);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct buf b = form("a b.bin", file, sizes[i]);
		struct client c = { .p = b.p, .n = b.len, .hides = i == 1 };
		int64_t before = clock_real_us();
		WORKS(upload(&c, HOME "/new/er", TYPE, (int64_t)sizes[i]));
		assert_string_equal(report.path, HOME "/new/er/a b.bin");
		assert_int_equal(report.size, sizes[i]);
		sha256_hex(hash, file, sizes[i]);
		assert_string_equal(report.sha256, hash);
		assert_int_equal(report.mode, 0644);
		assert_true(report.modified_us > before - 5 * SECOND_US);
		assert_false(report.sandbox_gone);
		assert_contents(HOME "/new/er/a b.bin", file, sizes[i]);
		assert_names(HOME "/new/er", "a b.bin;");
		buf_free(&b);
	}
	free(file);
	remove_all(HOME "/new");
}

static void names_cannot_do_harm(void **state)
{
	(void)state;
	static char longest[256], expected[PATH_TEXT];
	for (size_t i = 0; i + 2 < 254; i += 3)
		memcpy(longest + i, "\xe2\x82\xac", 3); /* a cut falls inside a character */
	static const char *const rows[][2] = {
		{ "../../etc/passwd", "passwd" },
		{ "C:\\\\x\\\\y.txt", "y.txt" },
		{ "a%22b%0Ac", "a\"b\nc" },
		{ "\xc3\xbc \xf0\x9f\x90\x8d.txt", "\xc3\xbc \xf0\x9f\x90\x8d.txt" },
		{ "$(touch x);&?#%.txt", "$(touch x);&?#%.txt" },
		{ ".hidden", ".hidden" },
		{ longest, longest },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf b = form(rows[i][0], "x", 1);
		WORKS(upload_text(b.p, HOME "/names"));
		snprintf(expected, sizeof expected, HOME "/names/%s", rows[i][1]);
		assert_string_equal(report.path, expected);
		assert_contents(expected, "x", 1);
		snprintf(expected, sizeof expected, "%s;", rows[i][1]);
		assert_names(HOME "/names", expected);
		remove_all(HOME "/names");
		buf_free(&b);
	}
	WORKS(upload_text(FILE_OF "\"at the root\"\r\n\r\nx" END, "/"));
	assert_string_equal(report.path, "/at the root");
	remove_all("/at the root");
}

static void what_is_no_upload_is_said(void **state)
{
	(void)state;
	static const char body[] = FILE_OF "a\r\n\r\nx" END;
	struct client c = { .p = body, .n = strlen(body) };
	FAILS(upload(&c, HOME "/no", NULL, 9), ERR_INVALID, "multipart/form-data");
	FAILS(upload(&c, HOME "/no", "application/json", 9), ERR_INVALID, "multipart/form-data");
	FAILS(upload(&c, HOME "/no", "multipart/form-data", 9), ERR_INVALID, "boundary");
	FAILS(upload(&c, HOME "/no", "multipart/form-data; boundary=other", 9), ERR_INVALID,
	      "closing boundary");
	static const char *const rows[][2] = {
		{ "", "closing boundary" },
		{ "--XyZ--\r\n", "no part named 'file'" },
		{ FIELD "--XyZ--\r\n", "no part named 'file'" },
		{ PART "file\r\n\r\nx" END, "curl -F file=@NAME" },
		{ PART "File; filename=a\r\n\r\nx" END, "no part named 'file'" },
		{ FILE_OF "\"\"\r\n\r\nx" END, "no name" },
		{ FILE_OF "\"..\"\r\n\r\nx" END, "no name" },
		{ FILE_OF "\"\xff\"\r\n\r\nx" END, "UTF-8" },
		{ FILE_OF "a\r\n\r\nx\r\n" FILE_OF "b\r\n\r\ny" END, "one file per upload" },
		{ "--XyZ\r\n\r\nx" END, "multipart" },
		{ FILE_OF "a\r\n\r\nx\r\n--XyZ?", "multipart" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		/* In one piece nothing is written; byte by byte it is noticed half way. */
		for (size_t piece = 1; piece < 100000; piece *= 99999) {
			c = (struct client){ .p = rows[i][0], .n = strlen(rows[i][0]), piece };
			FAILS(upload(&c, HOME "/no", TYPE, 9), ERR_INVALID, rows[i][1]);
			assert_false(report.sandbox_gone);
		}
	}
	struct buf dir = BUF(PATH_TEXT);
	while (dir.len < 4080)
		buf_adds(&dir, "/12345678901234567890123456789");
	FAILS(upload_text(body, dir.p), ERR_INVALID, "too long");
	buf_free(&dir);
	struct e2b_sandbox sb;
	session_address(&row, &sb);
	struct buf names = BUF(1000);
	WORKS(e2b_list_files(core.e2b, &sb, HOME, 1, on_name, &names, NULL, &err));
	if (names.p && strstr(names.p, "no;"))
		assert_names(HOME "/no", ""); /* the folder may be there, a file may not */
	buf_free(&names);
	remove_all(HOME "/no");
}

/* Wherever the body stops, the old file stands and nothing else does. */
static void cut_off_anywhere_leaves_nothing(void **state)
{
	(void)state;
	static const char body[] = FILE_OF "a\r\n\r\n0123456789\r\n" FIELD "--XyZ--";
	static const char old[] = "old contents";
	struct buf b = form("a", old, strlen(old));
	WORKS(upload_text(b.p, HOME "/cut"));
	buf_free(&b);
	for (size_t n = 0; n < strlen(body); n++) {
		struct client c = { .p = body, .n = n, .breaks_off = n % 2, .piece = 1 + n % 5 };
		if (n % 2)
			FAILS(upload(&c, HOME "/cut", TYPE, 99), ERR_ABANDONED, "broke off");
		else
			FAILS(upload(&c, HOME "/cut", TYPE, 99), ERR_INVALID, "closing boundary");
		assert_names(HOME "/cut", "a;");
	}
	assert_contents(HOME "/cut/a", old, strlen(old));
	/* The whole body, but then the client goes without having ended it. */
	struct client c = { .p = body, .n = strlen(body), .breaks_off = true };
	FAILS(upload(&c, HOME "/cut", TYPE, 99), ERR_ABANDONED, "broke off");
	assert_contents(HOME "/cut/a", old, strlen(old));
	c.breaks_off = false;
	WORKS(upload(&c, HOME "/cut", TYPE, 99));
	assert_contents(HOME "/cut/a", "0123456789", 10);
	assert_names(HOME "/cut", "a;");
	remove_all(HOME "/cut");
}

static void a_large_one_that_breaks_off(void **state)
{
	(void)state;
	char *file = calloc(1, 3 << 20);
	assert_non_null(file);
	struct buf b = form("big", file, 3 << 20);
	struct client c = { .p = b.p, .n = 2 << 20, .breaks_off = true };
	FAILS(upload(&c, HOME "/big", TYPE, MAX_SIZE), ERR_ABANDONED, "broke off");
	assert_names(HOME "/big", "");
	buf_free(&b);
	free(file);
	remove_all(HOME "/big");
}

static void there_is_a_limit(void **state)
{
	(void)state;
	char *file = calloc(1, 200001);
	assert_non_null(file);
	struct buf b = form("a", file, 200001);
	struct client c = { .p = b.p, .n = b.len };
	FAILS(upload(&c, HOME "/limit", TYPE, 200000), ERR_LIMIT, "larger than 200000 bytes");
	assert_names(HOME "/limit", "");
	WORKS(upload(&c, HOME "/limit", TYPE, 200001));
	assert_names(HOME "/limit", "a;");
	buf_free(&b);
	free(file);
	remove_all(HOME "/limit");
}

static void what_is_in_the_way(void **state)
{
	(void)state;
	static const char body[] = FILE_OF "a\r\n\r\nx" END;
	WORKS(upload_text(body, HOME "/way/a/a"));
	FAILS(upload_text(body, HOME "/way"), ERR_CONFLICT, "'a' is a directory");
	assert_names(HOME "/way", "a;");
	assert_contents(HOME "/way/a/a/a", "x", 1);
	/* A file where a folder would have to be, itself or above it. */
	FAILS(upload_text(body, HOME "/way/a/a/a"), ERR_CONFLICT, "a file is in the way");
	FAILS(upload_text(body, HOME "/way/a/a/a/b"), ERR_CONFLICT, "a file is in the way");
	assert_names(HOME "/way/a/a", "a;");
	remove_all(HOME "/way");
}

/* It says what it has, then nothing more, and counts how often it is asked. */
struct dawdler {
	const char *text;
	int asked;
	int64_t until;    /* when it has the rest of it */
	int64_t lease[2]; /* when the lease ends, at first and at last */
};

/* When the only lease ends. */
static int64_t lease_end(void)
{
	sqlite3 *s;
	sqlite3_stmt *st;
	assert_int_equal(sqlite3_open_v2(db, &s, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	sqlite3_busy_timeout(s, 5000);
	assert_int_equal(sqlite3_prepare_v2(s, "SELECT until FROM leases", -1, &st, NULL), 0);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	int64_t end = sqlite3_column_int64(st, 0);
	assert_int_equal(sqlite3_step(st), SQLITE_DONE);
	sqlite3_finalize(st);
	sqlite3_close(s);
	return end;
}

static ssize_t dawdle(void *ctx, char *p, size_t n)
{
	struct dawdler *d = ctx;
	(void)n;
	if (d->until && clock_mono_us() >= d->until) {
		d->lease[1] = lease_end();
		d->until = 0;
		d->text = END;
	} else if (d->asked++ == 1 && d->until) {
		d->lease[0] = lease_end(); /* the first piece had the file's name */
	}
	size_t len = strlen(d->text);
	if (!len && d->lease[1])
		return 0;
	memcpy(p, d->text, len);
	d->text = "";
	return len ? (ssize_t)len : E2B_PULL_LATER;
}

static int upload_slowly(struct dawdler *d, int idle_secs)
{
	int never[2];
	assert_int_equal(pipe(never), 0);
	const struct upload_request req = { .dir = HOME "/slow",
					    .content_type = TYPE,
					    .max_bytes = 99,
					    .read = dawdle,
					    .ctx = d,
					    .fd = never[0],
					    .idle_secs = idle_secs };
	int rc = run(&req);
	close(never[0]);
	close(never[1]);
	return rc;
}

static void silence_has_an_end(void **state)
{
	(void)state;
	static const char *const starts[] = { FIELD, FILE_OF "a\r\n\r\nx" };
	for (size_t i = 0; i < 2; i++) {
		struct dawdler d = { .text = starts[i] };
		FAILS(upload_slowly(&d, 2), ERR_TIMEOUT, "nothing for 2 seconds");
		assert_true(d.asked < 100); /* it slept meanwhile */
	}
	assert_names(HOME "/slow", "");
	remove_all(HOME "/slow");
}

static void a_slow_one_keeps_its_lease(void **state)
{
	(void)state;
	struct dawdler d = { .text = FILE_OF "a\r\n\r\nx",
			     .until = clock_mono_us() + LEASE_RENEW_US + 2 * SECOND_US };
	WORKS(upload_slowly(&d, 0));
	assert_true(d.lease[1] >= d.lease[0] + LEASE_RENEW_US - SECOND_US);
	assert_true(d.asked < 100);
	assert_contents(HOME "/slow/a", "x", 1);
	remove_all(HOME "/slow");
}

/* 48 MiB out of nowhere. */
#define LARGE (48 << 20)

static ssize_t read_nowhere(void *ctx, char *p, size_t n)
{
	static const char head[] = FILE_OF "a\r\n\r\n";
	size_t *at = ctx, from = *at;
	const char *text = from < strlen(head) ? head : from >= LARGE ? END : NULL;
	if (from == SIZE_MAX)
		return 0;
	if (!text) {
		n = n < LARGE - from ? n : LARGE - from;
		memset(p, 'z', n);
	} else {
		n = strlen(text);
		memcpy(p, text, n);
	}
	*at = text && text != head ? SIZE_MAX : from + n;
	return (ssize_t)n;
}

static long peak_kib(void)
{
	char line[128];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "VmHWM:", 6))
			kib = strtol(line + 6, NULL, 10);
	fclose(f);
	return kib;
}

static void a_large_one_needs_no_memory(void **state)
{
	(void)state;
	size_t at = 0;
	const struct upload_request req = { .dir = HOME "/large",
					    .content_type = TYPE,
					    .max_bytes = LARGE,
					    .read = read_nowhere,
					    .ctx = &at,
					    .fd = -1 };
	FILE *f = fopen("/proc/self/clear_refs", "we"); /* the peak so far is forgotten */
	if (f && fputs("5", f) >= 0)
		fflush(f);
	if (f)
		fclose(f);
	long before = peak_kib();
	WORKS(run(&req));
	assert_true(peak_kib() - before < 8 << 10);
	assert_int_equal(report.size, LARGE - strlen(FILE_OF "a\r\n\r\n"));
	remove_all(HOME "/large");
}

/* After its first reading the user stops the sandbox and sends no more. */
static ssize_t read_and_stop(void *ctx, char *p, size_t n)
{
	static const char text[] = FILE_OF "a\r\n\r\nx";
	int *reads = ctx;
	struct core other;
	(void)n;
	if (++*reads == 2) {
		open_core(&other);
		WORKS(session_stop(&other, "ann", "up", &err));
		close_core(&other);
	}
	if (*reads > 1)
		return E2B_PULL_LATER;
	memcpy(p, text, strlen(text));
	return (ssize_t)strlen(text);
}

static void one_into_a_sandbox_that_is_stopped_ends(void **state)
{
	(void)state;
	int reads = 0;
	const struct upload_request req = { .dir = HOME,
					    .content_type = TYPE,
					    .max_bytes = MAX_SIZE,
					    .read = read_and_stop,
					    .ctx = &reads,
					    .fd = -1,
					    .idle_secs = 30 };
	memset(&report, 0, sizeof report);
	FAILS(run(&req), ERR_CONFLICT, "stopped during the upload");
}

/* Its second reading finds that somebody else has killed the sandbox. */
static ssize_t read_and_kill(void *ctx, char *p, size_t n)
{
	int *reads = ctx;
	struct core other;
	if (*reads != 1) {
		static const char *const texts[] = { FILE_OF "a\r\n\r\nx", "", END, "" };
		const char *text = texts[(*reads)++];
		memcpy(p, text, strlen(text));
		return (ssize_t)strlen(text);
	}
	++*reads;
	open_core(&other);
	WORKS(e2b_kill(other.e2b, row.sandbox_id, NULL, NULL, &err));
	close_core(&other);
	memset(p, 'x', n);
	return (ssize_t)n;
}

static void a_sandbox_that_is_gone(void **state)
{
	(void)state;
	static const char body[] = FILE_OF "a\r\n\r\nx" END;
	int reads = 0;
	const struct upload_request req = { .dir = HOME,
					    .content_type = TYPE,
					    .max_bytes = MAX_SIZE,
					    .read = read_and_kill,
					    .ctx = &reads,
					    .fd = -1 };
	/* The transfer is cut; that the sandbox is gone shows when the file is to be removed. */
	assert_int_equal(run(&req), -1);
	assert_true(report.sandbox_gone);
	FAILS(upload_text(body, HOME), ERR_NOT_FOUND, "sandbox was not found");
	assert_true(report.sandbox_gone);
	/* A client that breaks off does not hide it. */
	struct client c = { .p = body, .n = strlen(body) - 5, .breaks_off = true };
	assert_int_equal(upload(&c, HOME, TYPE, 99), -1);
	assert_true(report.sandbox_gone);
	WORKS(session_stop(&core, "ann", "up", &err));
	FAILS(upload_text(body, HOME), ERR_CONFLICT, "not running");
	assert_false(report.sandbox_gone);
}

/* ---- a server that misbehaves ---- */

#define REPLY(status, json)                                                                        \
	{                                                                                          \
		"HTTP/1.1 " status                                                                 \
		"\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" json,            \
			FAKE_CLOSE                                                                 \
	}
#define FULL REPLY("507 Insufficient Storage", "{\"code\":507,\"message\":\"no space\"}")
#define DONE REPLY("200 OK", "{}")
#define STAT(size)                                                                                 \
	REPLY("200 OK", "{\"entry\":{\"name\":\"a\",\"path\":\"/a\",\"type\":\"FILE_TYPE_FILE\","  \
			"\"size\":\"" size "\",\"mode\":420}}")

/* Upload the three bytes "xyz" to it, and find the temporary file removed in the last request. */
static void upload_to(const struct fake_reply *replies, size_t n, enum err_code code)
{
	struct fake fake;
	struct e2b *engines = core.e2b;
	char url[64];
	const char *body = FILE_OF "a\r\n\r\nxyz" END;
	fake_start(&fake, replies, n, NULL);
	snprintf(url, sizeof url, "http://127.0.0.1:%d", fake.port);
	const struct e2b_config config = { .api_key = LIVE_KEY,
					   .api_url = url,
					   .sandbox_url = url };
	WORKS(e2b_new(&core.e2b, &config, &err));
	row.provider_end_at = clock_real_us() + 86400 * SECOND_US; /* no call for that */
	FAILS(upload_text(body, "/d"), code, "");
	e2b_free(core.e2b);
	core.e2b = engines;
	assert_int_equal(atomic_load(&fake.requests), n);
	assert_non_null(strstr(fake.seen[0], "path=%2Fd%2F.a.sg-"));
	assert_non_null(strstr(fake.seen[0], "xyz"));
	assert_non_null(strstr(fake.seen[n - 1], "Filesystem/Remove"));
	assert_non_null(strstr(fake.seen[n - 1], "/.a.sg-"));
	fake_stop(&fake);
}

static void faults_of_the_provider(void **state)
{
	(void)state;
	static const struct fake_reply full[] = { FULL, DONE };
	upload_to(full, 2, ERR_NO_SPACE);
	static const struct fake_reply shorter[] = { DONE, STAT("2"), DONE };
	upload_to(shorter, 3, ERR_INTERNAL);
	assert_non_null(strstr(err.text, "2 bytes of 3"));
	assert_true(err.remote);
	static const struct fake_reply lost[] = { DONE, STAT("3"), { NULL, FAKE_CLOSE }, DONE };
	upload_to(lost, 4, ERR_UNKNOWN_OUTCOME);
	assert_false(report.sandbox_gone);
}

int main(void)
{
	if (live_core_start("base") < 0)
		return 1;
#define T(name) cmocka_unit_test_setup_teardown(name, ensure, tear_down)
	const struct CMUnitTest tests[] = {
		T(bytes_and_hash_are_exact),
		T(names_cannot_do_harm),
		T(what_is_no_upload_is_said),
		T(cut_off_anywhere_leaves_nothing),
		T(a_large_one_that_breaks_off),
		T(there_is_a_limit),
		T(what_is_in_the_way),
		T(silence_has_an_end),
		T(a_slow_one_keeps_its_lease),
		T(a_large_one_needs_no_memory),
		T(one_into_a_sandbox_that_is_stopped_ends),
		T(faults_of_the_provider),
		T(a_sandbox_that_is_gone),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	live_core_stop();
	return failed;
}
