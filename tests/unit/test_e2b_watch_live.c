/* The client's watchers against the real engine: what changes is told once and in order, and every
 * end has its own error. */
#include "base/buf.h"
#include "e2b/run.h"
#include "e2b/watch.h"
#include "live_client.h"

static int ignore(void *ctx, const struct e2b_event *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

static void shell(const char *text)
{
	const struct e2b_command command = {
		.argv = (const char *const[]){ "/bin/bash", "-c", text, NULL }, .cwd = "/home/user"
	};
	WORKS(e2b_run_command(client, &box, &command, ignore, NULL, NULL, &err));
}

/* Each change as a letter and its name, in one line. */
static int note(void *ctx, const struct e2b_change *change)
{
	return buf_addf(ctx, "%c %s;", "?+w-rm"[change->type], change -> name);
}

static void assert_changes(const char *id, const char *expected)
{
	struct buf log = BUF(1 << 20);
	WORKS(e2b_watch_events(client, &box, id, note, &log, NULL, &err));
	assert_string_equal(log.len ? log.p : "", expected);
	buf_free(&log);
}

static void changes_are_told_once(void **state)
{
	(void)state;
	char deep[E2B_WATCHER_ID], flat[E2B_WATCHER_ID];
	shell("mkdir -p one/two; echo old > one/two/old");
	WORKS(e2b_watch_create(client, &box, "/home/user/one", true, deep, NULL, &err));
	WORKS(e2b_watch_create(client, &box, "one", false, flat, NULL, &err));
	assert_changes(deep, "");
	shell("cd one; echo new > two/new; mv two/old two/$'a\\n\"\\xc3\\xbc\"'; rm two/new");
	assert_changes(deep, "+ two/new;w two/new;r two/old;+ two/a\n\"\xc3\xbc\";- two/new;");
	assert_changes(deep, "");
	assert_changes(flat, "");
	shell("cd one; mkdir -p x/y; chmod 700 two; mv two ..");
	assert_changes(flat, "+ x;m two;r two;");
	assert_changes(deep, "+ x;+ x/y;m two;r two;");
	shell("rm -r one");
	assert_changes(flat, "- x;- .;");
	WORKS(e2b_watch_remove(client, &box, deep, NULL, &err));
	WORKS(e2b_watch_remove(client, &box, deep, NULL, &err));
	FAILS(e2b_watch_events(client, &box, deep, note, NULL, NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_OTHER);
	WORKS(e2b_watch_remove(client, &box, flat, NULL, &err));
}

static int give_up(void *ctx, const struct e2b_change *change)
{
	(void)change;
	++*(int *)ctx;
	return -1;
}

static void what_cannot_be_watched_is_refused(void **state)
{
	(void)state;
	char id[E2B_WATCHER_ID] = "untouched", long_path[5000];
	int calls = 0;
	shell("echo x > file; mkdir dir");
	FAILS(e2b_watch_create(client, &box, "/no/such", true, id, NULL, &err), ERR_NOT_FOUND);
	FAILS(e2b_watch_create(client, &box, "/home/user/file", true, id, NULL, &err), ERR_INVALID);
	memset(long_path, 'x', sizeof long_path);
	long_path[0] = '/';
	long_path[sizeof long_path - 1] = '\0';
	FAILS(e2b_watch_create(client, &box, long_path, true, id, NULL, &err), ERR_INVALID);
	assert_string_equal(id, "untouched");
	FAILS(e2b_watch_events(client, &box, "wnobody", note, NULL, NULL, &err), ERR_NOT_FOUND);
	FAILS(e2b_watch_events(client, &box, long_path, note, NULL, NULL, &err), ERR_INVALID);
	WORKS(e2b_watch_create(client, &box, "dir", false, id, NULL, &err));
	shell("touch dir/a dir/b");
	FAILS(e2b_watch_events(client, &box, id, give_up, &calls, NULL, &err), ERR_ABANDONED);
	assert_int_equal(calls, 1);
	WORKS(e2b_watch_remove(client, &box, id, NULL, &err));
}

static int count(void *ctx, const struct e2b_change *change)
{
	(void)change;
	++*(int *)ctx;
	return 0;
}

/* More than a watcher keeps; then it goes on. */
static void a_loss_is_told(void **state)
{
	(void)state;
	char id[E2B_WATCHER_ID];
	int n = 0;
	shell("mkdir many");
	WORKS(e2b_watch_create(client, &box, "many", true, id, NULL, &err));
	shell("cd many; for j in 1 2; do for i in {10000..26000}; do "
	      ": > a-name-that-is-rather-long-so-that-few-of-them-fit-into-the-queue-$i; done; "
	      "rm -r ../many/*; done");
	FAILS(e2b_watch_events(client, &box, id, count, &n, NULL, &err), ERR_LIMIT);
	assert_int_equal(n, 0);
	assert_changes(id, "");
	shell("echo x > many/after");
	assert_changes(id, "+ after;w after;");
	WORKS(e2b_watch_remove(client, &box, id, NULL, &err));
}

static void a_dead_sandbox_is_noticed(void **state)
{
	(void)state;
	char id[E2B_WATCHER_ID];
	WORKS(e2b_watch_create(client, &box, "/tmp", true, id, NULL, &err));
	WORKS(e2b_kill(client, box.id, NULL, NULL, &err));
	FAILS(e2b_watch_events(client, &box, id, note, NULL, NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_NO_SANDBOX);
	FAILS(e2b_watch_remove(client, &box, id, NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_NO_SANDBOX);
	FAILS(e2b_watch_create(client, &box, "/tmp", true, id, NULL, &err), ERR_NOT_FOUND);
}

static int set_up(void **state)
{
	(void)state;
	return live_client_start(
		&(struct e2b_create){ .template_id = "base", .timeout_secs = 600 });
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("no_proxy", "*", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_are_told_once),
		cmocka_unit_test(what_cannot_be_watched_is_refused),
		cmocka_unit_test(a_loss_is_told),
		cmocka_unit_test(a_dead_sandbox_is_noticed),
	};
	return cmocka_run_group_tests(tests, set_up, live_client_stop);
}
