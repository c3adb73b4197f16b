/* Executions over the real engine, in one sandbox at a time, and what they left behind. */
#ifndef TESTS_LIVE_RUN_H
#define TESTS_LIVE_RUN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "core/eventlog.h"
#include "core/result.h"
#include "core/run.h"
#include "live_core.h"

static struct sandbox_row row;

/* A sandbox for the test, and a run in it. */
static inline void ensure(const char *id)
{
	const struct session s = { .owner = "ann", .id = id };
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
}

static inline void stop(const char *id)
{
	WORKS(session_stop(&core, "ann", id, &err));
}

/* A sandbox that has no interpreter. */
static inline void ensure_custom(const char *id)
{
	const struct session s = { .owner = "ann", .id = id, .type = SANDBOX_CUSTOM };
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
}

static inline struct run_report run(const char *code, int limit, int client_fd)
{
	struct run_report report;
	const struct run_request req = { .row = &row,
					 .code = code,
					 .ncode = strlen(code),
					 .limit_secs = limit,
					 .client_fd = client_fd,
					 .wake_fd = -1 };
	WORKS(run_execution(&core, &req, &report, &err));
	return report;
}

static inline struct run_report command(const char *const *argv, int limit, int client_fd)
{
	struct run_report report;
	const struct run_request req = { .row = &row,
					 .kind = EXECUTION_COMMAND,
					 .argv = argv,
					 .limit_secs = limit,
					 .client_fd = client_fd,
					 .wake_fd = -1 };
	WORKS(run_execution(&core, &req, &report, &err));
	return report;
}

#define COMMAND(limit, client_fd, ...)                                                             \
	command((const char *const[]){ __VA_ARGS__, NULL }, limit, client_fd)

/* The whole result; json_object_put it. */
static inline struct json_object *result_of(const struct run_report *r)
{
	char dir[512];
	const struct result_limits limits = { 4000, 1000 };
	WORKS(run_events_dir(&settings, dir, sizeof dir, &err));
	return result_read(dir, r, &limits);
}

/* Whether a member of the result is this text. */
static inline void assert_member(const struct run_report *r, const char *key, const char *text)
{
	struct json_object *o = result_of(r), *v;
	assert_true(json_object_object_get_ex(o, key, &v));
	assert_string_equal(json_object_get_string(v), text);
	json_object_put(o);
}

/* How many processes of the sandbox have this among their arguments. */
static inline int count_processes(const char *mark)
{
	char code[1024];
	struct json_object *text;
	snprintf(code, sizeof code,
		 "import glob\nn = 0\nfor p in glob.glob('/proc/[0-9]*/cmdline'):\n"
		 "    try: n += b'%s' in open(p, 'rb').read().split(b'\\0')\n"
		 "    except OSError: pass\nn",
		 mark);
	struct run_report r = run(code, 20, -1);
	struct json_object *o = result_of(&r);
	assert_true(json_object_object_get_ex(o, "text", &text));
	int n = json_object_get_int(text);
	json_object_put(o);
	return n;
}

/* One that was killed may need a moment to go. */
static inline void assert_no_process(const char *mark)
{
	int n = 1;
	for (int i = 0; i < 40 && (n = count_processes(mark)) > 0; i++)
		usleep(250000);
	assert_int_equal(n, 0);
}

/* The log as text: "o:" stdout, "e:" stderr, "r:" result, "x:" error, "." its end; what the gateway
 * itself notes is left out. */
static inline const char *log_text(const char *id)
{
	static struct buf text = { .max = 1 << 20 };
	char dir[512];
	struct eventreader *r;
	text.len = 0;
	WORKS(run_events_dir(&settings, dir, sizeof dir, &err));
	WORKS(eventreader_open(&r, dir, id, 0, &err));
	for (;;) {
		enum event_answer answer;
		struct event e;
		struct event_gap gap;
		WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		if (answer != EVENT_NEXT)
			break;
		if (e.type > EVENT_DONE)
			continue;
		static const char *const marks[] = { "", "o:", "e:", "r:", "x:", "." };
		buf_adds(&text, marks[e.type]);
		if (e.type != EVENT_DONE)
			buf_add(&text, e.p, e.n);
	}
	eventreader_free(r);
	return text.p;
}

static inline struct execution_row row_of(const char *id)
{
	struct execution_row e;
	WORKS(execution_find(core.store, "ann", id, &e, &err));
	return e;
}

/* A client: another process with one end of a pipe, which it closes after a while. */
static inline pid_t client_for(int ms, int *fd)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	store_free(core.store); /* no handle may be open while we fork */
	pid_t client = fork();
	if (client == 0) {
		close(p[0]);
		usleep((useconds_t)ms * 1000);
		_exit(0); /* which closes p[1] */
	}
	close(p[1]);
	const struct store_config again = { .path = db, .slot = -1 };
	WORKS(store_open(&core.store, &again, &err));
	*fd = p[0];
	return client;
}

/* Does something to the sandbox from another process after a moment. */
static inline pid_t later(void (*fn)(struct core *c))
{
	/* A child that inherited a connection would keep it open when it is closed here. */
	close_core(&core);
	pid_t pid = fork();
	if (pid == 0) {
		struct core c;
		usleep(1000000);
		open_core(&c);
		fn(&c);
		_exit(0);
	}
	open_core(&core);
	return pid;
}

#endif
