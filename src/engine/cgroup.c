#include "engine/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/ids.h"

#define NAME_LEN 12

static int write_at(int dir, const char *name, const char *text)
{
	_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

/* Where the unified hierarchy is mounted. */
static int find_mount(char *out, size_t cap)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	int rc = -1;
	errno = ENOENT;
	while (f && rc < 0 && (m = getmntent(f)))
		if (!strcmp(m->mnt_type, "cgroup2") &&
		    (size_t)snprintf(out, cap, "%s", m->mnt_dir) < cap)
			rc = 0;
	if (f)
		endmntent(f);
	return rc;
}

/* This process's own group in it: the line "0::/path". */
static int find_own(char *out, size_t cap)
{
	char line[CGROUP_PATH];
	int rc = -1;
	FILE *f = fopen("/proc/self/cgroup", "re");
	while (f && rc < 0 && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::/", 4) && (size_t)snprintf(out, cap, "%s", line + 3) < cap)
			rc = 0;
	}
	if (f)
		fclose(f);
	return rc;
}

static int give(const char *dir, uid_t uid)
{
	static const char *const files[] = { "cgroup.procs", "cgroup.subtree_control",
					     "cgroup.threads" };
	if (chown(dir, uid, uid) < 0)
		return -1;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char path[CGROUP_PATH + 32];
		snprintf(path, sizeof path, "%s/%s", dir, files[i]);
		if (chown(path, uid, uid) < 0 && errno != ENOENT)
			return -1;
	}
	return 0;
}

int cgroup_name_top(char out[CGROUP_PATH])
{
	char mount[200], own[200], name[NAME_LEN + 1];
	if (find_mount(mount, sizeof mount) < 0 || find_own(own, sizeof own) < 0)
		return -1;
	id_alnum(name, NAME_LEN);
	snprintf(out, CGROUP_PATH, "%s%s/sandgate-%s", mount, strcmp(own, "/") ? own : "", name);
	return 0;
}

int cgroup_make_top(const char *top, uid_t uid)
{
	char leaf[CGROUP_PATH + 16];
	if (mkdir(top, 0755) < 0)
		return -1;
	snprintf(leaf, sizeof leaf, "%s/engine", top);
	if (mkdir(leaf, 0755) < 0 || give(top, uid) < 0 || give(leaf, uid) < 0) {
		int saved = errno;
		cgroup_remove_top(top);
		errno = saved;
		return -1;
	}
	return 0;
}

int cgroup_enter_leaf(const char *top, pid_t pid)
{
	char path[CGROUP_PATH + 32], text[32];
	snprintf(path, sizeof path, "%s/engine/cgroup.procs", top);
	snprintf(text, sizeof text, "%d", pid);
	return write_at(AT_FDCWD, path, text);
}

/* A group can be removed once its last process is reaped: a matter of milliseconds after the kill.
 */
static void kill_and_remove(int parent, const char *name)
{
	for (int i = 0; i < 200; i++) {
		if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno != EBUSY)
			return;
		_close_ int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir >= 0)
			cgroup_kill(dir);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

void cgroup_remove_top(const char *top)
{
	DIR *d = opendir(top);
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			kill_and_remove(dirfd(d), e->d_name);
	closedir(d);
	rmdir(top);
}

int cgroup_make(const char *top, const char *name)
{
	char path[CGROUP_PATH + 64];
	snprintf(path, sizeof path, "%s/%s", top, name);
	if (mkdir(path, 0755) < 0)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_remove(const char *top, const char *name)
{
	char path[CGROUP_PATH + 64];
	snprintf(path, sizeof path, "%s/%s", top, name);
	rmdir(path);
}

int cgroup_freeze(int dir, bool frozen)
{
	return write_at(dir, "cgroup.freeze", frozen ? "1" : "0");
}

int cgroup_kill(int dir)
{
	return write_at(dir, "cgroup.kill", "1");
}
