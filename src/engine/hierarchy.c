#include "engine/hierarchy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/ids.h"

#define NAME_LEN  12
#define NAME      "/sandgate-"
#define KEEPER    "keeper"
#define BIT(use)  (1u << (use))
#define LINE      4096
#define TRIES     200 /* of 10 ms, for the processes of a group to be gone */
#define DIR_ROOM  (CGROUP_PATH + 16)
#define FILE_ROOM (CGROUP_PATH + 64)

/* Each sandbox weighs the default, 100 or 1024: however many are busy, the engine is heard. */
#define WEIGHT_V2 "1000"
#define WEIGHT_V1 "10240"

/* What the kernel calls them. The freezer of version 2 is no controller: it is always there. */
static const char *const controllers[CGROUP_USES] = {
	[CGROUP_MEMORY] = "memory",
	[CGROUP_PIDS] = "pids",
	[CGROUP_CPU] = "cpu",
	[CGROUP_FREEZER] = "freezer",
};

static int write_file(const char *dir, const char *name, const char *text)
{
	char path[FILE_ROOM];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

/* The words of a file of one line, as bits of enum cgroup_use. */
static unsigned read_controllers(const char *dir, const char *name)
{
	char path[FILE_ROOM], line[LINE], *at = line;
	unsigned found = 0;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (!fgets(line, sizeof line, f))
		line[0] = '\0';
	fclose(f);
	for (char *word; (word = strsep(&at, " \n"));)
		for (int use = 0; use < CGROUP_FREEZER; use++)
			if (!strcmp(word, controllers[use]))
				found |= BIT(use);
	return found;
}

static bool has_file(const char *dir, const char *name)
{
	char path[FILE_ROOM];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void parent_of(const char *path, char out[CGROUP_PATH])
{
	snprintf(out, CGROUP_PATH, "%s", path);
	*strrchr(out, '/') = '\0';
}

/* ---- finding ---- */

static bool lists(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || p[-1] == ',') && (p[n] == '\0' || p[n] == ','))
			return true;
	return false;
}

/* The folder that shows a group, by the mount of its hierarchy: a line of mountinfo is
 * "id parent dev ROOT POINT options tags... - TYPE source OPTIONS". */
static int find_folder(const char *mounts, const char *list, const char *group,
		       char out[CGROUP_PATH])
{
	char line[LINE], root[LINE], point[LINE], type[64], options[LINE], word[64];
	int rc = -1;
	FILE *f = fopen(mounts, "re");
	snprintf(word, sizeof word, "%.*s", (int)strcspn(list, ","), list);
	while (f && rc < 0 && fgets(line, sizeof line, f)) {
		const char *rest = strstr(line, " - ");
		if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2 ||
		    sscanf(rest, " - %63s %*s %4095s", type, options) != 2)
			continue;
		if (*list ? strcmp(type, "cgroup") != 0 || !lists(options, word)
			  : strcmp(type, "cgroup2") != 0)
			continue;
		size_t n = strcmp(root, "/") ? strlen(root) : 0;
		if (strncmp(group, root, n) != 0 || (group[n] != '/' && group[n] != '\0'))
			continue; /* another part of it is mounted here */
		const char *below = strcmp(group + n, "/") ? group + n : "";
		if ((size_t)snprintf(out, CGROUP_PATH, "%s%s", point, below) <
		    CGROUP_PATH - sizeof NAME - NAME_LEN)
			rc = 0;
	}
	if (f)
		fclose(f);
	return rc;
}

/* A line of /proc/self/cgroup is "id:controllers:group"; version 2 is "0::group". */
static void consider(struct cgroup_tops *t, const char *list, const char *group, const char *mounts,
		     const char *name)
{
	char own[CGROUP_PATH];
	struct cgroup_top *top = &t->top[t->n];
	*top = (struct cgroup_top){ .v2 = !*list };
	for (int use = 0; use < CGROUP_USES; use++)
		if (lists(list, controllers[use]))
			top->can |= BIT(use);
	if ((!top->can && !top->v2) || t->n == CGROUP_TOPS ||
	    find_folder(mounts, list, group, own) < 0)
		return;
	if (top->v2) {
		top->can = read_controllers(own, "cgroup.controllers") | BIT(CGROUP_FREEZER);
		top->enable = top->can & ~BIT(CGROUP_FREEZER) &
			      ~read_controllers(own, "cgroup.subtree_control");
	}
	/* find_folder left room for the name. */
	size_t n = strlen(own);
	memcpy(top->path, own, n);
	snprintf(top->path + n, sizeof top->path - n, NAME "%s", name);
	t->n++;
}

void cgroup_tops_none(struct cgroup_tops *t, const char *why)
{
	*t = (struct cgroup_tops){ 0 };
	for (int use = 0; use < CGROUP_USES; use++) {
		t->by[use] = -1;
		snprintf(t->why[use], sizeof t->why[use], "%s", why);
	}
}

void cgroup_tops_find(struct cgroup_tops *t, const char *groups, const char *mounts)
{
	char line[LINE], name[NAME_LEN + 1];
	cgroup_tops_none(t, "no controller for it is to be had");
	id_alnum(name, NAME_LEN);
	FILE *f = fopen(groups, "re");
	while (f && t->n < CGROUP_TOPS && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
		if (!group || group[1] != '/')
			continue;
		*group++ = '\0';
		consider(t, list + 1, group, mounts, name);
	}
	if (f)
		fclose(f);
}

/* ---- making ---- */

static int give(const char *dir, uid_t uid)
{
	static const char *const files[] = { "cgroup.procs", "cgroup.subtree_control",
					     "cgroup.threads", "tasks" };
	if (uid == geteuid())
		return 0;
	if (chown(dir, uid, uid) < 0)
		return -1;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char path[FILE_ROOM];
		snprintf(path, sizeof path, "%s/%s", dir, files[i]);
		if (chown(path, uid, uid) < 0 && errno != ENOENT)
			return -1;
	}
	return 0;
}

static int make_folders(const struct cgroup_top *top, uid_t uid)
{
	char leaf[DIR_ROOM];
	if (mkdir(top->path, 0755) < 0)
		return -1;
	snprintf(leaf, sizeof leaf, "%s/" CGROUP_LEAF, top->path);
	if (mkdir(leaf, 0755) < 0 || give(top->path, uid) < 0 || give(leaf, uid) < 0) {
		int saved = errno;
		rmdir(leaf);
		rmdir(top->path);
		errno = saved;
		return -1;
	}
	return 0;
}

/* Hand controllers down from a group to its children; those that it then does. One at a time: one
 * that is refused must not take the others along. */
static unsigned hand_down(const char *dir, unsigned wanted)
{
	for (int use = 0; use < CGROUP_FREEZER; use++) {
		char word[16];
		snprintf(word, sizeof word, "+%s", controllers[use]);
		if (wanted & BIT(use) && write_file(dir, "cgroup.subtree_control", word) < 0)
			wanted &= ~BIT(use);
	}
	return wanted;
}

static void take_back(const char *dir, unsigned handed)
{
	for (int use = 0; use < CGROUP_FREEZER; use++) {
		char word[16];
		snprintf(word, sizeof word, "-%s", controllers[use]);
		if (handed & BIT(use))
			write_file(dir, "cgroup.subtree_control", word);
	}
}

static int move_keeper(const struct cgroup_top *top, bool inside)
{
	char dir[DIR_ROOM], own[CGROUP_PATH];
	snprintf(dir, sizeof dir, "%s/" KEEPER, top->path);
	parent_of(top->path, own);
	if (inside)
		return mkdir(dir, 0755) < 0 && errno != EEXIST
			       ? -1
			       : write_file(dir, "cgroup.procs", "0");
	if (write_file(own, "cgroup.procs", "0") < 0)
		return -1;
	return rmdir(dir);
}

/* The controllers of a group come from its parent, which but for the root may then have no process
 * of its own. That is us; where others are in it as well they are not ours to move, and there will
 * be none. */
static void enable_controllers(struct cgroup_tops *t, struct cgroup_top *top)
{
	char own[CGROUP_PATH];
	unsigned wanted = top->can & ~BIT(CGROUP_FREEZER);
	parent_of(top->path, own);
	if (top->enable && has_file(own, "cgroup.type")) {
		if (move_keeper(top, true) < 0) {
			char dir[DIR_ROOM];
			snprintf(dir, sizeof dir, "%s/" KEEPER, top->path);
			rmdir(dir);
			top->enable = 0;
		} else {
			t->keeper_inside = true;
		}
	}
	unsigned handed = hand_down(own, top->enable);
	unsigned usable = hand_down(top->path, (wanted & ~top->enable) | handed);
	top->enable = handed;
	if (t->keeper_inside && !handed && move_keeper(top, false) == 0)
		t->keeper_inside = false;
	top->can = usable | (has_file(top->path, "cgroup.freeze") ? BIT(CGROUP_FREEZER) : 0);
}

/* The engine's share of the processors, in a top that deals them out; and the top's own: beside it
 * there may be single processes, and it is many. */
static void set_weight(const struct cgroup_top *top)
{
	char leaf[DIR_ROOM];
	const char *name = top->v2 ? "cpu.weight" : "cpu.shares",
		   *weight = top->v2 ? WEIGHT_V2 : WEIGHT_V1;
	snprintf(leaf, sizeof leaf, "%s/" CGROUP_LEAF, top->path);
	write_file(leaf, name, weight);
	write_file(top->path, name, weight);
}

static void explain(struct cgroup_tops *t, unsigned uses, const char *why)
{
	for (int use = 0; use < CGROUP_USES; use++)
		if (uses & BIT(use))
			snprintf(t->why[use], sizeof t->why[use], "%s", why);
}

/* One of the tops that were found; whether it stays. `missing` are the uses that nobody serves yet.
 */
static bool make_top(struct cgroup_tops *t, struct cgroup_top *top, unsigned missing, uid_t uid)
{
	char why[96];
	unsigned wanted = top->can & missing;
	if (!wanted)
		return false;
	if (make_folders(top, uid) < 0) {
		snprintf(why, sizeof why, "not delegated: %s", strerror(errno));
		explain(t, wanted, why);
		return false;
	}
	if (top->v2)
		enable_controllers(t, top);
	explain(t, wanted & ~top->can, "other processes share the engine's control group");
	top->can &= missing;
	if (top->can & BIT(CGROUP_CPU))
		set_weight(top);
	return true;
}

void cgroup_tops_make(struct cgroup_tops *t, uid_t uid)
{
	const struct cgroup_tops found = *t;
	unsigned missing = BIT(CGROUP_USES) - 1;
	t->n = 0;
	/* Version 2 first: it is preferred in all. */
	for (int version = 2; version >= 1; version--)
		for (int i = 0; i < found.n; i++) {
			struct cgroup_top top = found.top[i];
			if (top.v2 != (version == 2) || !make_top(t, &top, missing, uid))
				continue;
			for (int use = 0; use < CGROUP_USES; use++)
				if (top.can & BIT(use))
					t->by[use] = t->n;
			missing &= ~top.can;
			t->top[t->n++] = top;
		}
}

int cgroup_tops_enter(const struct cgroup_tops *t, pid_t pid)
{
	char leaf[DIR_ROOM], text[16];
	snprintf(text, sizeof text, "%d", pid);
	for (int i = 0; i < t->n; i++) {
		snprintf(leaf, sizeof leaf, "%s/" CGROUP_LEAF, t->top[i].path);
		if (write_file(leaf, "cgroup.procs", text) < 0)
			return -1;
	}
	return 0;
}

/* ---- removing ---- */

/* Version 2 kills a group at one word. In version 1 what is frozen must thaw to die, and the rest
 * is killed by its numbers. */
static void kill_group(const char *dir)
{
	char path[FILE_ROOM], line[32];
	write_file(dir, "freezer.state", "THAWED");
	if (write_file(dir, "cgroup.kill", "1") == 0)
		return;
	snprintf(path, sizeof path, "%s/cgroup.procs", dir);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		long pid = strtol(line, NULL, 10);
		if (pid > 0 && pid <= INT_MAX && pid != getpid())
			kill((pid_t)pid, SIGKILL);
	}
	if (f)
		fclose(f);
}

/* A group can be removed once its last process is reaped: a matter of milliseconds after the kill.
 */
static void kill_and_remove(const char *top, const char *name)
{
	char dir[CGROUP_PATH + NAME_MAX + 2];
	snprintf(dir, sizeof dir, "%s/%s", top, name);
	if (strlen(dir) >= DIR_ROOM + 32)
		return; /* none of ours has such a name */
	for (int i = 0; i < TRIES; i++) {
		if (rmdir(dir) == 0 || errno != EBUSY)
			return;
		kill_group(dir);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

static void remove_top(const struct cgroup_top *top, bool keeper_inside)
{
	char own[CGROUP_PATH];
	DIR *d = opendir(top->path);
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
		    !(keeper_inside && !strcmp(e->d_name, KEEPER)))
			kill_and_remove(top->path, e->d_name);
	closedir(d);
	if (top->v2) {
		parent_of(top->path, own);
		take_back(top->path, BIT(CGROUP_FREEZER) - 1);
		take_back(own, top->enable);
		if (keeper_inside)
			move_keeper(top, false);
	}
	rmdir(top->path);
}

void cgroup_tops_remove(struct cgroup_tops *t)
{
	for (int i = 0; i < t->n; i++)
		remove_top(&t->top[i], t->top[i].v2 && t->keeper_inside);
	t->n = 0;
	t->keeper_inside = false;
}

/* ---- traces ---- */

void cgroup_top_print(const struct cgroup_top *top, char *out, size_t cap)
{
	snprintf(out, cap, "%d %u %s", top->v2 ? 2 : 1, top->enable, top->path);
}

int cgroup_top_parse(struct cgroup_top *top, const char *line)
{
	int version, at = 0;
	*top = (struct cgroup_top){ 0 };
	if (sscanf(line, "%d %u %n", &version, &top->enable, &at) != 2 || !at ||
	    strlen(line + at) >= sizeof top->path)
		return -1;
	const char *name = strrchr(line + at, '/');
	if (line[at] != '/' || !name || strncmp(name, NAME, strlen(NAME)) != 0)
		return -1;
	top->v2 = version == 2;
	memcpy(top->path, line + at, strlen(line + at) + 1);
	return 0;
}
