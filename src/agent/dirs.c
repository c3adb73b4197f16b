#include "agent/dirs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "wire/path.h"

#define BUCKETS 1024
#define EVENTS                                                                                     \
	(IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |             \
	 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)

static struct dir *buckets[BUCKETS]; /* by wd */
static size_t count;
static int inotify = -1;

int dirs_fd(void)
{
	return inotify;
}

size_t dirs_count(void)
{
	return count;
}

static struct dir **bucket(int wd)
{
	return &buckets[(unsigned)wd % BUCKETS];
}

struct dir *dirs_find(const void *owner, int wd)
{
	for (struct dir *d = *bucket(wd); d; d = d->next)
		if (d->wd == wd && d->owner == owner)
			return d;
	return NULL;
}

static int add_watch(int fd)
{
	char path[32];
	/* By descriptor: what a path leads to may have changed since. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int wd = inotify_add_watch(inotify, path, EVENTS);
	return wd < 0 ? -errno : wd;
}

/* Two watches may know the same directory. */
static void stop_unused(int wd)
{
	for (const struct dir *d = *bucket(wd); d; d = d->next)
		if (d->wd == wd)
			return;
	inotify_rm_watch(inotify, wd); /* fails when the directory is gone, and with it the watch */
}

int dirs_enter(const void *owner, int fd, const char *path)
{
	if (count >= DIRS_MAX)
		return -ENOSPC;
	if (inotify < 0)
		inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (inotify < 0)
		return -errno;
	int wd = add_watch(fd);
	struct dir *d = wd < 0 ? NULL : dirs_find(owner, wd);
	if (d && !strcmp(d->path, path))
		return 0;
	if (d) {
		dirs_leave(owner, d->path);
		wd = add_watch(fd);
	}
	if (wd < 0)
		return wd;
	size_t n = strlen(path) + 1;
	d = malloc(sizeof *d + n);
	if (!d) {
		stop_unused(wd);
		return -ENOMEM;
	}
	*d = (struct dir){ .next = *bucket(wd), .owner = owner, .wd = wd };
	memcpy(d->path, path, n);
	*bucket(wd) = d;
	count++;
	return 1;
}

static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);
	return !n || (!strncmp(path, top, n) && (!path[n] || path[n] == '/'));
}

void dirs_leave(const void *owner, const char *path)
{
	char top[PATH_TEXT]; /* the path may be that of a directory which is freed here */
	snprintf(top, sizeof top, "%s", path);
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct dir **at = &buckets[i]; *at;) {
			struct dir *d = *at;
			if (d->owner != owner || !is_below(d->path, top)) {
				at = &d->next;
				continue;
			}
			*at = d->next;
			stop_unused(d->wd);
			free(d);
			count--;
		}
	}
}

void dirs_forget(int wd)
{
	for (struct dir **at = bucket(wd); *at;) {
		struct dir *d = *at;
		if (d->wd != wd) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		free(d);
		count--;
	}
}
