#include "agent/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/metadata.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/agentmsg.h"
#include "wire/jsontext.h"
#include "wire/path.h"

#define ENTRIES_MAX 200000

void file_own(int fd, struct owner who)
{
	if (who.uid != (uid_t)-1 && fchown(fd, who.uid, who.gid) < 0)
		return; /* a file system without owners is no reason to refuse a write */
}

static int open_resolved(const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.mode = mode,
		.resolve = resolve,
	};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
	return fd < 0 ? -errno : fd;
}

/* Magic links (/proc/PID/fd, /proc/PID/root) would reach the agent's own descriptors: none is
 * followed. */
static int open_plain(const char *path, uint64_t flags, uint64_t mode)
{
	return open_resolved(path, flags, mode, RESOLVE_NO_MAGICLINKS);
}

int file_open_dir(const char *path, bool links, int *fd)
{
	int f = open_resolved(path, O_RDONLY | O_DIRECTORY, 0,
			      links ? RESOLVE_NO_MAGICLINKS : RESOLVE_NO_SYMLINKS);
	if (f < 0)
		return f;
	*fd = f;
	return 0;
}

/* /proc/1/mem would be the agent itself. Devices and pipes could block whoever reads them. */
static int check_regular(int fd)
{
	struct stat st;
	struct statfs fs;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return S_ISREG(st.st_mode) && fs.f_type != PROC_SUPER_MAGIC ? 0 : -EACCES;
}

int file_open_read(const char *path, int *fd)
{
	_close_ int f = open_plain(path, O_RDONLY, 0);
	if (f < 0)
		return f;
	int rc = check_regular(f);
	if (rc == 0)
		*fd = steal_fd(&f);
	return rc;
}

/* Make one directory that may be there already. */
static int make_one(const char *path, struct owner who)
{
	struct stat st;
	if (mkdir(path, 0755) == 0) {
		if (who.uid != (uid_t)-1 && lchown(path, who.uid, who.gid) < 0)
			return -errno;
		return 0;
	}
	if (errno != EEXIST && errno != EROFS && errno != EACCES)
		return -errno;
	int saved = errno;
	if (stat(path, &st) < 0)
		return -saved;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int file_make_parents(const char *path, struct owner who, char part[PATH_TEXT])
{
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, PATH_TEXT, "%.*s", (int)(slash - path), path);
		int rc = make_one(part, who);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int file_open_write(const char *path, struct owner who, int *fd, char *bad)
{
	int rc = file_make_parents(path, who, bad);
	if (rc < 0)
		return rc;
	_close_ int f = open_plain(path, O_WRONLY | O_CREAT, 0644);
	if (f < 0)
		return f == -ENXIO ? -EACCES : f;
	rc = check_regular(f);
	if (rc < 0)
		return rc;
	if (ftruncate(f, 0) < 0)
		return -errno;
	file_own(f, who);
	*fd = steal_fd(&f);
	return 0;
}

/* The mode as Go prints it, which is not quite as ls does. */
static void mode_text(char out[16], mode_t mode)
{
	size_t n = 0;
	if (S_ISDIR(mode))
		out[n++] = 'd';
	else if (S_ISLNK(mode))
		out[n++] = 'L';
	else if (S_ISCHR(mode)) {
		out[n++] = 'D';
		out[n++] = 'c';
	} else if (S_ISBLK(mode))
		out[n++] = 'D';
	else if (S_ISFIFO(mode))
		out[n++] = 'p';
	else if (S_ISSOCK(mode))
		out[n++] = 'S';
	if (mode & S_ISUID)
		out[n++] = 'u';
	if (mode & S_ISGID)
		out[n++] = 'g';
	if (mode & S_ISVTX)
		out[n++] = 't';
	if (!n)
		out[n++] = '-';
	for (int bit = 8; bit >= 0; bit--)
		out[n++] = (mode >> bit) & 1 ? "xwr"[bit % 3] : '-';
	out[n] = '\0';
}

static const char *owner_name(uid_t id, char number[16])
{
	if (id == 0)
		return "root";
	if (id == AGENT_UID)
		return AGENT_USER;
	if (id == 65534)
		return "nobody";
	snprintf(number, 16, "%u", id);
	return number;
}

static void put_field(struct buf *json, const char *key, const char *value)
{
	buf_addf(json, "\"%s\":", key);
	json_put_string(json, value, strlen(value));
	buf_adds(json, ",");
}

static const char *type_name(mode_t mode)
{
	if (S_ISREG(mode))
		return "FILE_TYPE_FILE";
	if (S_ISDIR(mode))
		return "FILE_TYPE_DIRECTORY";
	return NULL;
}

/* One EntryInfo as protojson writes it: fields with a default value are left out. */
static int put_entry(struct buf *json, const char *path, const struct stat *st)
{
	char perms[16], number[16], when[CLOCK_TEXT], target[PATH_MAX];
	struct stat to = *st;
	const char *type = type_name(st->st_mode);
	bool link = S_ISLNK(st->st_mode);
	if (link) {
		/* The kind and mode of a link are its target's; a broken one has none. */
		if (stat(path, &to) < 0)
			to.st_mode = 0;
		type = type_name(to.st_mode);
	}
	buf_adds(json, "{");
	put_field(json, "name", path_name(path));
	if (type)
		put_field(json, "type", type);
	put_field(json, "path", path);
	if (st->st_size)
		buf_addf(json, "\"size\":\"%lld\",", (long long)st->st_size);
	if (to.st_mode & 0777)
		buf_addf(json, "\"mode\":%u,", to.st_mode & 0777);
	mode_text(perms, st->st_mode);
	put_field(json, "permissions", perms);
	put_field(json, "owner", owner_name(st->st_uid, number));
	put_field(json, "group", owner_name(st->st_gid, number));
	if (link) {
		put_field(json, "symlinkTarget", realpath(path, target) ? target : path);
	}
	metadata_put(json, path, &to);
	int64_t us = (int64_t)st->st_mtim.tv_sec * SECOND_US + st->st_mtim.tv_nsec / 1000;
	return buf_addf(json, "\"modifiedTime\":\"%s\"}", clock_rfc3339(when, us)) < 0 ? -ENOBUFS
										       : 0;
}

int file_entry(const char *path, struct buf *json)
{
	struct stat st;
	return lstat(path, &st) < 0 ? -errno : put_entry(json, path, &st);
}

static int list_level(const char *dir, int depth, struct buf *json, size_t *count)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort);
	if (n < 0)
		return -errno;
	int rc = 0;
	for (int i = 0; i < n; i++) {
		char path[PATH_TEXT];
		struct stat st;
		const char *name = names[i]->d_name;
		bool skip = rc < 0 || !strcmp(name, ".") || !strcmp(name, "..");
		if (!skip)
			skip = snprintf(path, sizeof path, "%s/%s", strcmp(dir, "/") ? dir : "",
					name) >= (int)sizeof path ||
			       lstat(path, &st) < 0; /* gone meanwhile, or too deep to name */
		free(names[i]);
		if (skip)
			continue;
		if (++*count > ENTRIES_MAX) {
			rc = -ENOBUFS;
			continue;
		}
		if (*count > 1)
			buf_adds(json, ",");
		rc = put_entry(json, path, &st);
		if (rc == 0 && depth > 1 && S_ISDIR(st.st_mode)) {
			rc = list_level(path, depth - 1, json, count);
			if (rc == -EACCES || rc == -ENOENT)
				rc = 0;
		}
	}
	free(names);
	return rc;
}

int file_list(const char *path, int depth, struct buf *json)
{
	struct stat st;
	size_t count = 0;
	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	buf_adds(json, "{\"entries\":[");
	int rc = list_level(path, depth < 1 ? 1 : depth, json, &count);
	if (rc < 0)
		return rc;
	return buf_adds(json, "]}") < 0 ? -ENOBUFS : 0;
}

int file_mkdir(const char *path, struct owner who)
{
	struct stat st;
	if (stat(path, &st) == 0)
		return S_ISDIR(st.st_mode) ? -EEXIST : -ENOTEMPTY;
	char part[PATH_TEXT];
	int rc = file_make_parents(path, who, part);
	return rc < 0 ? rc : make_one(path, who);
}

int file_move(const char *from, const char *to, struct owner who)
{
	struct stat st;
	char part[PATH_TEXT];
	if (lstat(from, &st) < 0)
		return -errno;
	int rc = file_make_parents(to, who, part);
	if (rc < 0)
		return rc;
	return rename(from, to) < 0 ? -errno : 0;
}

int file_remove(const char *path)
{
	char *const roots[] = { (char *)path, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_XDEV, NULL);
	if (!tree)
		return -errno;
	int rc = 0;
	for (FTSENT *e; (e = fts_read(tree));) {
		int failed = 0;
		/* Without root's rights a closed folder must be opened first; it is about to go
		 * anyway. */
		if (e->fts_info == FTS_D && geteuid() != 0 &&
		    (e->fts_statp->st_mode & 0700) != 0700)
			failed = chmod(e->fts_accpath, 0700);
		if (e->fts_info == FTS_D || e->fts_errno == ENOENT)
			continue;
		if (e->fts_info == FTS_DP || e->fts_info == FTS_DNR)
			failed = rmdir(e->fts_accpath);
		else
			failed = unlink(e->fts_accpath);
		if (failed && errno != ENOENT && rc == 0)
			rc = -errno;
	}
	fts_close(tree);
	return rc;
}
