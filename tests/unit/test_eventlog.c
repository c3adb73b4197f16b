/* The event log: what goes in comes out, in order; what is lost is counted exactly; readers follow
 * a writer. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/eventlog.h"

static char dir[64];
static struct err err;

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof dir, "/tmp/sandgate-events-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	eventlog_remove(dir, "x_1", NULL);
	return rmdir(dir);
}

#define WORKS(call)                                                                                \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			fail_msg("%s: %s", #call, err.text);                                       \
	} while (0)

static struct eventlog *create(void)
{
	struct eventlog *l;
	WORKS(eventlog_create(&l, dir, "x_1", &err));
	return l;
}

static struct eventreader *open_after(uint64_t after)
{
	struct eventreader *r;
	WORKS(eventreader_open(&r, dir, "x_1", after, &err));
	return r;
}

/* Payload k is k's own number over and over, of a length that depends on it. */
static size_t payload(char *out, uint64_t k, size_t most)
{
	size_t n = 1 + k * 7919 % most;
	memset(out, (int)('a' + k % 26), n);
	return n;
}

struct tally {
	uint64_t events, lost, lost_bytes, bytes, last;
};

/* Everything that can be read now; every event is checked against what it must be. */
static void drain(struct eventreader *r, struct tally *t, size_t most)
{
	static char want[1 << 20];
	for (;;) {
		enum event_answer answer;
		struct event e;
		struct event_gap gap;
		WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		if (answer == EVENT_NONE)
			return;
		if (answer == EVENT_LOST) {
			assert_int_equal(gap.from, t->last + 1);
			assert_true(gap.to >= gap.from);
			t->lost += gap.to - gap.from + 1;
			t->lost_bytes += gap.bytes;
			t->last = gap.to;
			continue;
		}
		assert_int_equal(e.seq, t->last + 1);
		t->last = e.seq;
		size_t n = payload(want, e.seq, most);
		assert_int_equal(e.n, n);
		assert_memory_equal(e.p, want, n);
		assert_int_equal(e.p[e.n], 0);
		t->events++;
		t->bytes += e.n;
	}
}

static void a_few_events(void **state)
{
	(void)state;
	struct eventlog *l = create();
	struct eventreader *r = open_after(0);
	enum event_answer answer;
	struct event e;
	struct event_gap gap;
	uint64_t seq;
	WORKS(eventreader_next(r, &answer, &e, &gap, &err));
	assert_int_equal(answer, EVENT_NONE);
	WORKS(eventlog_add(l, EVENT_STDOUT, "hi\n", 3, &seq, &err));
	assert_int_equal(seq, 1);
	WORKS(eventlog_add(l, EVENT_RESULT, "", 0, NULL, &err));
	WORKS(eventlog_add(l, EVENT_STDERR, NULL, 0, NULL, &err));
	WORKS(eventlog_add(l, EVENT_DONE, "{}", 2, &seq, &err));
	assert_int_equal(seq, 4);
	const int types[] = { EVENT_STDOUT, EVENT_RESULT, EVENT_STDERR, EVENT_DONE };
	const char *const texts[] = { "hi\n", "", "", "{}" };
	for (int i = 0; i < 4; i++) {
		WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		assert_int_equal(answer, EVENT_NEXT);
		assert_int_equal(e.type, types[i]);
		assert_string_equal(e.p, texts[i]);
	}
	WORKS(eventreader_next(r, &answer, &e, &gap, &err));
	assert_int_equal(answer, EVENT_NONE);
	eventreader_free(r);
	eventlog_free(l);
	for (uint64_t after = 0; after < 6; after++) { /* from any place, also behind the end */
		r = open_after(after);
		WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		assert_int_equal(answer, after < 4 ? EVENT_NEXT : EVENT_NONE);
		if (after < 4)
			assert_int_equal(e.seq, after + 1);
		eventreader_free(r);
	}
}

static void write_many(struct eventlog *l, uint64_t from, uint64_t to, size_t most, struct tally *t)
{
	static char data[1 << 20];
	for (uint64_t k = from; k <= to; k++) {
		size_t n = payload(data, k, most);
		WORKS(eventlog_add(l, EVENT_STDOUT, data, n, NULL, &err));
		t->bytes += n;
	}
}

static void a_long_log_keeps_its_ends(void **state)
{
	(void)state;
	struct eventlog *l = create();
	struct tally in = { 0 }, out = { 0 };
	const size_t most = 60000;
	write_many(l, 1, 3000, most, &in); /* about 90 MB */
	eventlog_free(l);
	struct eventreader *r = open_after(0);
	drain(r, &out, most);
	eventreader_free(r);
	assert_int_equal(out.last, 3000);
	assert_int_equal(out.events + out.lost, 3000);
	assert_int_equal(out.bytes + out.lost_bytes, in.bytes); /* exact to the byte */
	assert_true(out.lost > 0);
	assert_in_range(out.bytes, 2 * EVENTLOG_PART - 200000, 3 * EVENTLOG_PART);
	/* From within the lost part a reader begins with what is left. */
	struct tally late = { .last = 1500 };
	r = open_after(1500);
	drain(r, &late, most);
	eventreader_free(r);
	assert_int_equal(late.last, 3000);
	assert_int_equal(1500 + late.events + late.lost, 3000);
}

static void a_reader_that_keeps_up_loses_nothing(void **state)
{
	(void)state;
	struct eventlog *l = create();
	struct eventreader *r = open_after(0);
	struct tally in = { 0 }, out = { 0 };
	const size_t most = 60000;
	for (uint64_t k = 1; k <= 2000; k += 10) {
		write_many(l, k, k + 9, most, &in);
		drain(r, &out, most);
	}
	assert_int_equal(out.lost, 0);
	assert_int_equal(out.events, 2000);
	assert_int_equal(out.bytes, in.bytes);
	eventreader_free(r);
	eventlog_free(l);
}

/* Readers race with a writer in another process; whatever they miss, they are told. */
static void readers_of_a_racing_writer(void **state)
{
	(void)state;
	const size_t most = 60000;
	const uint64_t count = 4000;
	struct eventlog *l = create();
	pid_t writer = fork();
	if (writer == 0) {
		struct tally t = { 0 };
		write_many(l, 1, count, most, &t);
		_exit(0);
	}
	eventlog_free(l);
	struct tally t[3] = { 0 };
	struct eventreader *r[3];
	for (int i = 0; i < 3; i++)
		r[i] = open_after(0);
	for (int round = 0, status = -1; round < 100000; round++) {
		bool over = waitpid(writer, &status, WNOHANG) == writer;
		for (int i = 0; i < 3; i++)
			if (over || round % (i * 40 + 1) == 0)
				drain(r[i], &t[i], most);
		if (over)
			break;
		usleep(100);
	}
	uint64_t all = 0;
	static char data[1 << 20];
	for (uint64_t k = 1; k <= count; k++)
		all += payload(data, k, most);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(t[i].last, count);
		assert_int_equal(t[i].events + t[i].lost, count);
		assert_int_equal(t[i].bytes + t[i].lost_bytes, all);
		eventreader_free(r[i]);
	}
}

static void large_records(void **state)
{
	(void)state;
	struct eventlog *l = create();
	char *big = malloc(EVENT_MAX + 1);
	memset(big, 'x', EVENT_MAX);
	WORKS(eventlog_add(l, EVENT_RESULT, big, EVENT_MAX, NULL, &err));
	WORKS(eventlog_add(l, EVENT_RESULT, big, EVENT_MAX, NULL, &err));
	assert_int_equal(eventlog_add(l, EVENT_RESULT, big, EVENT_MAX + 1, NULL, &err), -1);
	assert_int_equal(err.code, ERR_LIMIT);
	WORKS(eventlog_add(l, EVENT_DONE, "{}", 2, NULL, &err));
	struct eventreader *r = open_after(0);
	for (int i = 0; i < 4; i++) {
		enum event_answer answer;
		struct event e;
		struct event_gap gap;
		WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		assert_int_equal(answer, i == 2 ? EVENT_LOST : EVENT_NEXT);
		if (answer == EVENT_LOST)
			assert_int_equal(gap.bytes, EVENT_MAX + 1);
		else
			assert_int_equal(e.n, i < 2 ? EVENT_MAX : 2);
	}
	eventreader_free(r);
	eventlog_free(l);
	free(big);
}

static void what_is_missing_at_the_end_is_told(void **state)
{
	(void)state;
	enum event_answer answer;
	struct event e;
	struct event_gap gap;
	struct eventlog *l = create();
	WORKS(eventlog_add(l, EVENT_STDOUT, "abc", 3, NULL, &err));
	WORKS(eventlog_add(l, EVENT_STDOUT, "de", 2, NULL, &err));
	eventlog_free(l);
	for (uint64_t after = 0; after < 3; after++) {
		struct eventreader *r = open_after(after);
		do
			WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		while (answer == EVENT_NEXT);
		assert_false(eventreader_rest(r, 2, 3, &gap)); /* the second was the last */
		assert_false(eventreader_rest(r, 3, 5, &gap)); /* only the last is missing */
		assert_true(eventreader_rest(r, 7, 105, &gap));
		assert_int_equal(gap.from, 3);
		assert_int_equal(gap.to, 6);
		assert_int_equal(gap.bytes, 100);
		eventreader_free(r);
	}
}

/* A file that may not grow stands for a full disk. */
static void a_full_disk_is_a_gap_not_an_end(void **state)
{
	(void)state;
	struct rlimit old, small;
	struct eventlog *l = create();
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	WORKS(eventlog_add(l, EVENT_STDOUT, "before", 6, NULL, &err));
	small = (struct rlimit){ 150, old.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	char large[400] = "";
	assert_int_equal(eventlog_add(l, EVENT_STDOUT, large, sizeof large, NULL, &err), -1);
	setrlimit(RLIMIT_FSIZE, &old);
	WORKS(eventlog_add(l, EVENT_STDOUT, "after", 5, NULL, &err));
	eventlog_free(l);
	struct eventreader *r = open_after(0);
	enum event_answer answer;
	struct event e;
	struct event_gap gap;
	WORKS(eventreader_next(r, &answer, &e, &gap, &err));
	assert_string_equal(e.p, "before");
	WORKS(eventreader_next(r, &answer, &e, &gap, &err));
	assert_int_equal(answer, EVENT_LOST);
	assert_int_equal(gap.from, 2);
	assert_int_equal(gap.to, 2);
	assert_int_equal(gap.bytes, sizeof large);
	WORKS(eventreader_next(r, &answer, &e, &gap, &err));
	assert_string_equal(e.p, "after");
	eventreader_free(r);
}

/* The last record cut at every byte, and every byte of it changed: never anything but whole
 * records. */
static void torn_and_damaged_records(void **state)
{
	(void)state;
	char path[128], saved[200];
	struct stat st;
	struct eventlog *l = create();
	WORKS(eventlog_add(l, EVENT_STDOUT, "one", 3, NULL, &err));
	snprintf(path, sizeof path, "%s/x_1.head", dir);
	stat(path, &st);
	off_t first = st.st_size;
	WORKS(eventlog_add(l, EVENT_STDOUT, "second", 6, NULL, &err));
	eventlog_free(l);
	stat(path, &st);
	FILE *f = fopen(path, "r");
	assert_int_equal(fread(saved, 1, sizeof saved, f), st.st_size);
	fclose(f);
	for (off_t cut = first; cut < st.st_size; cut++) {
		for (int damage = 0; damage < 2; damage++) {
			f = fopen(path, "w");
			fwrite(saved, 1, (size_t)(damage ? st.st_size : cut), f);
			if (damage) {
				fseek(f, cut, SEEK_SET);
				fputc(saved[cut] ^ 0x55, f);
			}
			fclose(f);
			struct eventreader *r = open_after(0);
			enum event_answer answer;
			struct event e;
			struct event_gap gap;
			WORKS(eventreader_next(r, &answer, &e, &gap, &err));
			assert_string_equal(e.p, "one");
			WORKS(eventreader_next(r, &answer, &e, &gap, &err));
			assert_int_equal(answer, EVENT_NONE);
			eventreader_free(r);
		}
	}
}

static void names_that_are_none(void **state)
{
	(void)state;
	struct eventreader *r;
	struct eventlog *l;
	assert_int_equal(eventreader_open(&r, dir, "x_none", 0, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(eventreader_open(&r, dir, "../../etc/passwd", 0, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_int_equal(eventlog_create(&l, dir, "a/b", &err), -1);
	assert_int_equal(eventlog_create(&l, "/nonexistent", "x", &err), -1);
	WORKS(eventlog_remove(dir, "x_none", &err));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_few_events),
		T(a_long_log_keeps_its_ends),
		T(a_reader_that_keeps_up_loses_nothing),
		T(readers_of_a_racing_writer),
		T(large_records),
		T(what_is_missing_at_the_end_is_told),
		T(a_full_disk_is_a_gap_not_an_end),
		T(torn_and_damaged_records),
		T(names_that_are_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
