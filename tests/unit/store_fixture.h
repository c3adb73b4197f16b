/* What the tests of the store share: a database in a fresh folder, and processes of their own. The
 * handle of a test is closed before it forks, as store.h demands. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <ftw.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ids.h"
#include "store/claims.h"

#define HOUR_US (3600 * SECOND_US)

#define assert_ok(call)                                                                            \
	do {                                                                                       \
		struct err err = { 0 };                                                            \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, err.text);                                       \
	} while (0)

/* The call fails with this code, and the text has this word. */
#define assert_err(call, expected, word)                                                           \
	do {                                                                                       \
		struct err err = { 0 };                                                            \
		if ((call) == 0)                                                                   \
			fail_msg("%s: worked", #call);                                             \
		if (err.code != (expected) || !strstr(err.text, word))                             \
			fail_msg("%s: code %d, %s", #call, err.code, err.text);                    \
	} while (0)

struct place {
	char folder[64]; /* private, removed afterwards */
	char path[128];  /* of the database in it */
	struct store *s; /* an open handle, or NULL */
};

static inline int open_path(struct store **out, const char *path, int busy_ms, struct err *err)
{
	struct store_config config = { .path = path, .slot = 7, .busy_ms = busy_ms };
	return store_open(out, &config, err);
}

static inline int setup_empty(void **state)
{
	static struct place place;
	snprintf(place.folder, sizeof place.folder, "/tmp/sandgate-store-XXXXXX");
	place.s = NULL;
	if (!mkdtemp(place.folder))
		return -1;
	snprintf(place.path, sizeof place.path, "%s/db/sandgate.db", place.folder);
	*state = &place;
	return 0;
}

static inline int setup(void **state)
{
	if (setup_empty(state) < 0)
		return -1;
	struct place *p = *state;
	struct err err = { 0 };
	if (open_path(&p->s, p->path, 0, &err) == 0)
		return 0;
	fprintf(stderr, "%s\n", err.text);
	return -1;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline int teardown(void **state)
{
	struct place *p = *state;
	store_free(p->s);
	return nftw(p->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#define with_store(test)  cmocka_unit_test_setup_teardown(test, setup, teardown)
#define with_folder(test) cmocka_unit_test_setup_teardown(test, setup_empty, teardown)

/* A foreign connection's statement; its result code, and the first value when out is given. */
static inline int shell(const char *path, const char *sql, int64_t *out)
{
	sqlite3 *db;
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_open(path, &db);
	sqlite3_busy_timeout(db, 5000);
	if (rc == SQLITE_OK && out) {
		rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
		if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
			*out = sqlite3_column_int64(st, 0);
			rc = SQLITE_OK;
		}
		sqlite3_finalize(st);
	} else if (rc == SQLITE_OK) {
		rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	}
	sqlite3_close(db);
	return rc;
}

static inline int64_t shell_number(const struct place *p, const char *sql)
{
	int64_t n = -1;
	if (shell(p->path, sql, &n) != SQLITE_OK)
		fail_msg("%s", sql);
	return n;
}

static inline void shell_run(const struct place *p, const char *sql)
{
	if (shell(p->path, sql, NULL) != SQLITE_OK)
		fail_msg("%s", sql);
}

static inline int claim_limited(struct store *s, const char *owner, const char *session, int total,
				int each, struct sandbox_row *row, enum claim_result *how,
				struct err *err)
{
	char nonce[33];
	id_alnum(nonce, 32);
	struct claim want = { .owner = owner,
			      .session_id = session,
			      .template = "code-interpreter-v1",
			      .nonce = nonce,
			      .deadline = clock_real_us() + 60 * SECOND_US,
			      .max_total = total,
			      .max_per_owner = each };
	return sandbox_claim(s, &want, row, how, err);
}

static inline int claim(struct store *s, const char *owner, const char *session,
			struct sandbox_row *row, enum claim_result *how, struct err *err)
{
	return claim_limited(s, owner, session, 0, 0, row, how, err);
}

static inline int started(struct store *s, const struct sandbox_row *row, struct err *err)
{
	char id[21];
	id_alnum(id, 20);
	struct sandbox_facts facts = { .sandbox_id = id,
				       .envd_token = "envd-secret",
				       .traffic_token = "traffic-secret",
				       .domain = "e2b.example",
				       .provider_end_at = clock_real_us() + HOUR_US / 2,
				       .lifetime_at = clock_real_us() + HOUR_US,
				       .idle_us = HOUR_US / 2 };
	return sandbox_started(s, row->id, row->nonce, &facts, err);
}

/* A running sandbox of this session. */
static inline struct sandbox_row running(struct place *p, const char *owner, const char *session)
{
	struct sandbox_row row;
	enum claim_result how;
	assert_ok(claim(p->s, owner, session, &row, &how, &err));
	assert_int_equal(how, CLAIM_MINE);
	assert_ok(started(p->s, &row, &err));
	assert_ok(sandbox_get(p->s, row.id, &row, &err));
	return row;
}

/* Runs work(i) in n processes that begin at the same time. The parent must have no handle open. */
#define BEGIN_TOGETHER 64
static inline void in_processes(int n, int (*work)(struct place *, int, void *), struct place *p,
				void *ctx)
{
	pid_t pids[BEGIN_TOGETHER];
	int gate[2];
	assert_null(p->s);
	assert_true(n <= BEGIN_TOGETHER);
	assert_int_equal(pipe(gate), 0);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			char c;
			close(gate[1]);
			while (read(gate[0], &c, 1) > 0)
				;
			_exit(work(p, i, ctx));
		}
	}
	close(gate[0]);
	close(gate[1]);
	for (int i = 0; i < n; i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		if (status != 0)
			fail_msg("process %d ended with status %x", i, status);
	}
}

static inline void *shared_memory(size_t n)
{
	void *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(m, MAP_FAILED);
	return m;
}

static inline void close_store(struct place *p)
{
	store_free(p->s);
	p->s = NULL;
}

static inline void reopen(struct place *p)
{
	close_store(p);
	assert_ok(open_path(&p->s, p->path, 0, &err));
}

#endif
