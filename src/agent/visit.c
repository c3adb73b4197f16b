#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/dirs.h"
#include "agent/files.h"
#include "agent/watching.h"
#include "base/cleanup.h"

/* A directory that is still to be looked at. */
struct todo {
	struct todo *next;
	char path[];
};

struct visit {
	struct watch *watch;
	enum visit_how how;
	struct todo *todo;
	size_t ntodo;
};

int watch_join(char out[PATH_TEXT], const char *dir, const char *name)
{
	int n = snprintf(out, PATH_TEXT, "%s%s%s", dir, *dir && *name ? "/" : "", name);
	return n < PATH_TEXT ? 0 : -1;
}

int watch_full_path(char out[PATH_TEXT], const char *top, const char *name)
{
	return watch_join(out, strcmp(top, "/") || !*name ? top : "", name);
}

/* Nothing changes on a read-only mount, and /proc says nothing to inotify. */
static bool is_worth(int fd)
{
	struct statvfs mount;
	struct statfs fs;
	return fstatvfs(fd, &mount) == 0 && !(mount.f_flag & ST_RDONLY) && fstatfs(fd, &fs) == 0 &&
	       fs.f_type != PROC_SUPER_MAGIC;
}

static int remember(struct visit *v, const char *path)
{
	size_t n = strlen(path) + 1;
	struct todo *t = malloc(sizeof *t + n);
	if (!t)
		return -ENOMEM;
	if (dirs_count() + v->ntodo >= DIRS_MAX) {
		free(t);
		return -ENOSPC;
	}
	memcpy(t->path, path, n);
	t->next = v->todo;
	v->todo = t;
	v->ntodo++;
	return 0;
}

static int found(struct visit *v, DIR *dir, const struct dirent *e, const char *path)
{
	struct stat st = { 0 };
	bool is_dir = e->d_type == DT_DIR;
	if (e->d_type == DT_UNKNOWN || (v->how != VISIT_QUIETLY && !is_dir)) {
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0; /* gone meanwhile */
		is_dir = S_ISDIR(st.st_mode);
	}
	if (is_dir)
		return remember(v, path);
	if (v->how != VISIT_QUIETLY)
		watch_say(v->watch, AGENT_CREATED, path);
	if (v->how != VISIT_QUIETLY && S_ISREG(st.st_mode) && st.st_size > 0)
		watch_say(v->watch, AGENT_WRITTEN, path);
	return v->watch->error;
}

/* Take the descriptor over. */
static int read_dir(struct visit *v, int fd, const char *path)
{
	DIR *dir = fdopendir(fd);
	char below[PATH_TEXT];
	int rc = 0;
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	for (struct dirent *e; rc == 0 && (e = readdir(dir));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    watch_join(below, path, e->d_name) == 0)
			rc = found(v, dir, e, below);
	closedir(dir);
	return rc;
}

/* Watch one directory, then see what is in it: in this order nothing is missed. */
static int visit_dir(struct visit *v, const char *path)
{
	struct watch *w = v->watch;
	char full[PATH_TEXT];
	_close_ int fd = -1;
	bool top = !*path;
	int rc = watch_full_path(full, w->real, path) < 0 ? -ENAMETOOLONG
							  : file_open_dir(full, false, &fd);
	if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || (top && rc < 0))
		return rc;
	if (rc == 0 && (top || is_worth(fd))) {
		rc = dirs_enter(w, fd, path);
		if (rc < 0 || (rc == 0 && v->how != VISIT_IN_ANY_CASE))
			return rc;
	} else {
		close_fd(&fd);
	}
	if (v->how != VISIT_QUIETLY)
		watch_say(w, AGENT_CREATED, path);
	if (w->error || fd < 0 || !(w->flags & AGENT_RECURSIVE))
		return w->error;
	return read_dir(v, steal_fd(&fd), path);
}

int watch_visit(struct watch *w, const char *path, enum visit_how how)
{
	struct visit v = { .watch = w, .how = how };
	int rc = visit_dir(&v, path);
	while (v.todo) {
		struct todo *t = v.todo;
		v.todo = t->next;
		v.ntodo--;
		if (rc == 0)
			rc = visit_dir(&v, t->path);
		free(t);
	}
	return rc;
}
