/* Control groups, over a hierarchy of plain files: what is made, written and given back where. The
 * kernel's part is played by mkdir and rmdir below, which fill a new group and empty an old one. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/cgroup.h"

static char base[64];   /* the folder of this test */
static const char *bad; /* a group that no folder can be made in */

static void put(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void take(const char *dir, const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	assert_int_equal(unlink(path), 0);
}

static const char *got(const char *dir, const char *name)
{
	static char text[4096];
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "r");
	if (!f)
		return "(none)";
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static void fill(const char *dir)
{
	static const char *const v2[] = { "cgroup.procs",      "cgroup.subtree_control",
					  "cgroup.freeze",     "cgroup.kill",
					  "cgroup.type",       "memory.max",
					  "memory.swap.max",   "memory.oom.group",
					  "memory.events",     "pids.max",
					  "cpu.max",           "cpu.weight",
					  "cgroup.controllers" };
	static const char *const v1[] = { "cgroup.procs",
					  "tasks",
					  "memory.limit_in_bytes",
					  "memory.memsw.limit_in_bytes",
					  "memory.max_usage_in_bytes",
					  "memory.oom_control",
					  "cgroup.event_control",
					  "pids.max",
					  "cpu.cfs_period_us",
					  "cpu.cfs_quota_us",
					  "cpu.shares",
					  "freezer.state" };
	bool new = strstr(dir, "/unified") != NULL;
	size_t n = new ? sizeof v2 / sizeof *v2 : sizeof v1 / sizeof *v1;
	for (size_t i = 0; i < n; i++)
		put(dir, new ? v2[i] : v1[i], "");
}

int mkdir(const char *path, mode_t mode)
{
	if (bad && strstr(path, bad)) {
		errno = EACCES;
		return -1;
	}
	int rc = mkdirat(AT_FDCWD, path, mode);
	if (rc == 0 && strstr(path, "sandgate-"))
		fill(path);
	return rc;
}

int rmdir(const char *path)
{
	DIR *d = opendir(path);
	if (!d)
		return -1;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_type == DT_REG)
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* A machine with these hierarchies; the engine was started in the group /unit of each. */
struct machine {
	char groups[96], mounts[96], v2[96], memory[96], pids[96], cpu[96], freezer[96];
};

static void make_group(char *out, size_t cap, const char *name)
{
	char parent[80];
	snprintf(parent, sizeof parent, "%s/%s", base, name);
	snprintf(out, cap, "%s/unit", parent);
	mkdirat(AT_FDCWD, parent, 0755);
	assert_int_equal(mkdirat(AT_FDCWD, out, 0755), 0);
	fill(out);
}

static struct machine make_machine(bool v2, bool v1)
{
	struct machine m = { 0 };
	char line[4096] = "";
	snprintf(base, sizeof base, "/tmp/sandgate-cgroup-XXXXXX");
	assert_non_null(mkdtemp(base));
	bad = NULL;
	snprintf(m.groups, sizeof m.groups, "%s/groups", base);
	snprintf(m.mounts, sizeof m.mounts, "%s/mounts", base);
	put(base, "groups",
	    v2 && v1 ? "4:cpu,cpuacct:/unit\n3:pids:/unit\n2:memory:/unit\n"
		       "1:freezer:/unit\n9:name=systemd:/unit\n0::/unit\n"
	    : v2     ? "0::/unit\n"
	    : v1     ? "4:cpu,cpuacct:/unit\n3:pids:/unit\n2:memory:/unit\n"
		       "1:freezer:/unit\n"
		     : "");
	int at = snprintf(line, sizeof line, "20 1 8:1 / / rw - ext4 /dev/root rw\n");
	if (v2) {
		make_group(m.v2, sizeof m.v2, "unified");
		at += snprintf(line + at, sizeof line - (size_t)at,
			       "31 20 0:28 / %s/unified rw - cgroup2 cgroup2 rw\n", base);
	}
	if (v1) {
		make_group(m.memory, sizeof m.memory, "memory");
		make_group(m.pids, sizeof m.pids, "pids");
		make_group(m.cpu, sizeof m.cpu, "cpu");
		make_group(m.freezer, sizeof m.freezer, "freezer");
		for (int i = 0; i < 4; i++) {
			static const char *const names[] = { "memory", "pids", "cpu", "freezer" };
			at += snprintf(line + at, sizeof line - (size_t)at,
				       "4%d 20 0:3%d / %s/%s rw shared:7 - cgroup cgroup rw,%s%s\n",
				       i, i, base, names[i], names[i], i == 2 ? ",cpuacct" : "");
		}
	}
	put(base, "mounts", line);
	return m;
}

static void remove_machine(void)
{
	char command[96];
	snprintf(command, sizeof command, "%s", base);
	pid_t pid = fork();
	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", command, (char *)NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

static void make_tops(const struct machine *m, struct cgroup_tops *t)
{
	cgroup_tops_find(t, m->groups, m->mounts);
	cgroup_tops_make(t, getuid());
}

static const struct cgroup_limits limits = { .memory = 300 << 20, .pids = 77, .cpus = 3 };

/* ---- version 2 ---- */

static void version_2_has_it_all(void **state)
{
	(void)state;
	struct machine m = make_machine(true, false);
	struct cgroup_tops t;
	struct cgroup g;
	int parts[CGROUP_TOPS];
	char dir[PATH_MAX];
	put(m.v2, "cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
	make_tops(&m, &t);
	assert_int_equal(t.n, 1);
	for (int use = 0; use < CGROUP_USES; use++)
		assert_int_equal(t.by[use], 0);
	/* Nothing but its own group is above: the keeper has left that. */
	assert_true(t.keeper_inside);
	snprintf(dir, sizeof dir, "%s/keeper", t.top[0].path);
	assert_string_equal(got(dir, "cgroup.procs"), "0");
	/* In a plain file the words lie upon each other: +memory, +pids, +cpu. */
	assert_string_equal(got(m.v2, "cgroup.subtree_control"), "+cpusry");
	assert_string_equal(got(t.top[0].path, "cgroup.subtree_control"), "+cpusry");
	snprintf(dir, sizeof dir, "%s/engine", t.top[0].path);
	assert_string_equal(got(dir, "cpu.weight"), "1000");
	assert_string_equal(got(t.top[0].path, "cpu.weight"), "1000");
	assert_int_equal(cgroup_tops_enter(&t, 4711), 0);
	assert_string_equal(got(dir, "cgroup.procs"), "4711");

	assert_int_equal(cgroup_make(&g, &t, "sandgate-one", &limits, NULL), 0);
	snprintf(dir, sizeof dir, "%s/sandgate-one", t.top[0].path);
	assert_string_equal(got(dir, "memory.max"), "314572800");
	assert_string_equal(got(dir, "memory.swap.max"), "0");
	assert_string_equal(got(dir, "memory.oom.group"), "1");
	assert_string_equal(got(dir, "pids.max"), "77");
	assert_string_equal(got(dir, "cpu.max"), "300000 100000");
	assert_int_equal(cgroup_birthplace(&g), g.dir[0]);
	assert_int_equal(cgroup_parts(&g, parts), 1);
	assert_int_equal(parts[0], g.dir[0]);
	assert_int_equal(cgroup_join(&g), 0);
	assert_string_equal(got(dir, "cgroup.procs"), "");
	assert_int_equal(cgroup_freeze(&g, true), 0);
	assert_string_equal(got(dir, "cgroup.freeze"), "1");
	cgroup_kill(&g);
	assert_string_equal(got(dir, "cgroup.kill"), "1");

	assert_int_equal(cgroup_oom_events(&g), EPOLLPRI);
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_NO);
	put(dir, "memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\noom_group_kill 0\n");
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_NO);
	put(dir, "memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 1\n");
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_OWN_LIMIT);
	put(dir, "memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\noom_group_kill 1\n");
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_ABOVE);
	cgroup_free(&g);
	assert_null(g.tops);
	assert_int_equal(access(dir, F_OK), -1);

	/* The engine's own is no sandbox's. */
	put(t.top[0].path, "memory.stat", "anon 3000\nfile 7000000\nkernel 5\nshmem 24\n");
	put(t.top[0].path, "engine/memory.stat", "anon 1999\nfile 7000\nkernel 1\nshmem 1\n");
	assert_int_equal(cgroup_memory_used(&t), 1024);
	take(t.top[0].path, "engine/memory.stat");
	put(m.v2, "memory.max", "max\n");
	assert_true(cgroup_memory_ceiling(&t) == UINT64_MAX);
	put(m.v2, "memory.max", "4096\n");
	put(t.top[0].path, "memory.max", "max\n");
	assert_int_equal(cgroup_memory_ceiling(&t), 4096);

	/* All as before: the keeper is back, and nothing is handed down. */
	const struct cgroup_top top = t.top[0];
	put(m.v2, "cgroup.subtree_control", "");
	cgroup_tops_remove(&t);
	assert_int_equal(access(top.path, F_OK), -1);
	assert_string_equal(got(m.v2, "cgroup.subtree_control"), "-cpusry");
	assert_string_equal(got(m.v2, "cgroup.procs"), "0");
	remove_machine();
}

static void version_2_in_the_root_moves_nobody(void **state)
{
	(void)state;
	struct machine m = make_machine(true, false);
	struct cgroup_tops t;
	char type[PATH_MAX];
	put(m.v2, "cgroup.controllers", "memory pids\n");
	put(m.v2, "cgroup.subtree_control", "memory pids\n"); /* as systemd leaves it */
	snprintf(type, sizeof type, "%s/cgroup.type", m.v2);
	unlink(type);
	make_tops(&m, &t);
	assert_false(t.keeper_inside);
	assert_int_equal(t.top[0].enable, 0);
	assert_int_equal(t.by[CGROUP_MEMORY], 0);
	assert_int_equal(t.by[CGROUP_PIDS], 0);
	assert_int_equal(t.by[CGROUP_CPU], -1);
	assert_int_equal(t.by[CGROUP_FREEZER], 0);
	cgroup_tops_remove(&t);
	/* It was so before. */
	assert_string_equal(got(m.v2, "cgroup.subtree_control"), "memory pids\n");
	remove_machine();
}

/* ---- both ---- */

static void what_version_2_lacks_comes_from_1(void **state)
{
	(void)state;
	struct machine m = make_machine(true, true);
	struct cgroup_tops t;
	struct cgroup g;
	int parts[CGROUP_TOPS];
	char dir[PATH_MAX];
	make_tops(&m, &t);
	assert_int_equal(t.n, 4); /* the freezer of version 1 is not needed */
	assert_true(t.top[t.by[CGROUP_FREEZER]].v2);
	for (int use = 0; use < CGROUP_FREEZER; use++)
		assert_false(t.top[t.by[use]].v2);
	snprintf(dir, sizeof dir, "%s/engine", t.top[t.by[CGROUP_CPU]].path);
	assert_string_equal(got(dir, "cpu.shares"), "10240");

	/* The word of the end of memory needs a real kernel. */
	bool made = cgroup_make(&g, &t, "sandgate-one", &limits, NULL) == 0;
	assert_true(made);
	const char *memory = t.top[t.by[CGROUP_MEMORY]].path, *pids = t.top[t.by[CGROUP_PIDS]].path;
	snprintf(dir, sizeof dir, "%s/sandgate-one", memory);
	assert_string_equal(got(dir, "memory.limit_in_bytes"), "314572800");
	assert_string_equal(got(dir, "memory.memsw.limit_in_bytes"), "314572800");
	assert_int_equal(cgroup_oom_events(&g), EPOLLIN);
	put(dir, "memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 0\n");
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_NO);
	put(dir, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
	put(dir, "memory.max_usage_in_bytes", "314560000\n");
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_OWN_LIMIT);
	put(dir, "memory.max_usage_in_bytes", "20000000\n");
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_ABOVE);
	assert_int_equal(cgroup_join(&g), 0);
	assert_string_equal(got(dir, "tasks"), "0");
	snprintf(dir, sizeof dir, "%s/sandgate-one", pids);
	assert_string_equal(got(dir, "pids.max"), "77");
	assert_string_equal(got(dir, "tasks"), "0");
	assert_int_equal(cgroup_parts(&g, parts), t.n);
	assert_int_equal(parts[0], cgroup_birthplace(&g) < 0 ? g.dir[0] : cgroup_birthplace(&g));
	snprintf(dir, sizeof dir, "%s/sandgate-one", t.top[t.by[CGROUP_CPU]].path);
	assert_string_equal(got(dir, "cpu.cfs_period_us"), "100000");
	assert_string_equal(got(dir, "cpu.cfs_quota_us"), "300000");
	cgroup_free(&g);
	cgroup_tops_remove(&t);
	remove_machine();
}

static void version_1_alone_freezes_as_well(void **state)
{
	(void)state;
	struct machine m = make_machine(false, true);
	struct cgroup_tops t;
	struct cgroup g;
	char dir[PATH_MAX];
	make_tops(&m, &t);
	assert_int_equal(t.n, 4);
	assert_int_equal(cgroup_make(&g, &t, "sandgate-one", &limits, NULL), 0);
	assert_int_equal(cgroup_birthplace(&g), -1);
	assert_true(cgroup_can_freeze(&g));
	assert_int_equal(cgroup_freeze(&g, true), 0);
	snprintf(dir, sizeof dir, "%s/sandgate-one", t.top[t.by[CGROUP_FREEZER]].path);
	assert_string_equal(got(dir, "freezer.state"), "FROZEN");
	cgroup_kill(&g); /* what is frozen cannot die */
	assert_string_equal(got(dir, "freezer.state"), "THAWED");
	cgroup_free(&g);
	cgroup_tops_remove(&t);
	remove_machine();
}

/* ---- what is not to be had ---- */

static void what_is_not_delegated_is_said(void **state)
{
	(void)state;
	struct machine m = make_machine(false, true);
	struct cgroup_tops t;
	bad = "/memory/unit/";
	make_tops(&m, &t);
	assert_int_equal(t.n, 3);
	assert_int_equal(t.by[CGROUP_MEMORY], -1);
	assert_string_equal(t.why[CGROUP_MEMORY], "not delegated: Permission denied");
	assert_true(t.by[CGROUP_PIDS] >= 0);
	assert_int_equal(cgroup_memory_used(&t), -1);
	cgroup_tops_remove(&t);
	remove_machine();
}

static void nothing_at_all_is_fine(void **state)
{
	(void)state;
	struct machine m = make_machine(false, false);
	struct cgroup_tops t;
	struct cgroup g = { .oom = 5 };
	int parts[CGROUP_TOPS];
	make_tops(&m, &t);
	assert_int_equal(t.n, 0);
	assert_int_equal(cgroup_make(&g, &t, "one", &limits, NULL), 0);
	assert_null(g.tops);
	assert_int_equal(cgroup_join(&g), 0);
	assert_int_equal(cgroup_parts(&g, parts), 0);
	assert_false(cgroup_can_freeze(&g));
	assert_int_equal(cgroup_freeze(&g, true), -1);
	assert_int_equal(cgroup_oom(&g), CGROUP_OOM_NO);
	cgroup_kill(&g);
	cgroup_free(&g);
	remove_machine();
}

static void a_mount_of_another_part_is_not_taken(void **state)
{
	(void)state;
	struct machine m = make_machine(true, false);
	struct cgroup_tops t;
	char line[512];
	snprintf(line, sizeof line, "31 20 0:28 /elsewhere %s/unified rw - cgroup2 cgroup2 rw\n",
		 base);
	put(base, "mounts", line);
	cgroup_tops_find(&t, m.groups, m.mounts);
	assert_int_equal(t.n, 0);
	/* A container sees its own part as the root of the mount. */
	snprintf(line, sizeof line, "31 20 0:28 /unit %s/unified/unit rw - cgroup2 cgroup2 rw\n",
		 base);
	put(base, "mounts", line);
	cgroup_tops_find(&t, m.groups, m.mounts);
	assert_int_equal(t.n, 1);
	assert_int_equal(strncmp(t.top[0].path, m.v2, strlen(m.v2)), 0);
	assert_int_equal(strncmp(t.top[0].path + strlen(m.v2), "/sandgate-", 10), 0);
	remove_machine();
}

static void a_trace_is_read_back(void **state)
{
	(void)state;
	struct cgroup_top top = { .path = "/sys/fs/cgroup/unit/sandgate-abc",
				  .v2 = true,
				  .enable = 5 };
	struct cgroup_top back;
	char line[CGROUP_PATH + 32];
	cgroup_top_print(&top, line, sizeof line);
	assert_int_equal(cgroup_top_parse(&back, line), 0);
	assert_string_equal(back.path, top.path);
	assert_true(back.v2);
	assert_int_equal(back.enable, 5);
	static const char *const others[] = { "",
					      "2",
					      "2 0",
					      "2 0 ",
					      "2 0 /",
					      "2 0 /sys/fs/cgroup",
					      "2 0 sandgate-abc",
					      "2 0 sys/sandgate-abc",
					      "/sys/fs/cgroup/sandgate-abc" };
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_int_equal(cgroup_top_parse(&back, others[i]), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_2_has_it_all),
		cmocka_unit_test(version_2_in_the_root_moves_nobody),
		cmocka_unit_test(what_version_2_lacks_comes_from_1),
		cmocka_unit_test(version_1_alone_freezes_as_well),
		cmocka_unit_test(what_is_not_delegated_is_said),
		cmocka_unit_test(nothing_at_all_is_fine),
		cmocka_unit_test(a_mount_of_another_part_is_not_taken),
		cmocka_unit_test(a_trace_is_read_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
