#include "agent/compose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/ids.h"
#include "wire/agentmsg.h"

#define CHUNK       (256u << 10)
#define RANDOM_PART 16

struct target {
	char path[PATH_TEXT]; /* without a link at its end */
	int dir;
	char temporary[sizeof ".compose-" + RANDOM_PART];
	int fd;
};

static int fail(char failed[1 + PATH_TEXT], enum agent_compose step, const char *path, int rc)
{
	failed[0] = (char)step;
	snprintf(failed + 1, PATH_TEXT, "%s", path);
	return rc;
}

static int copy(int from, int to)
{
	static char data[CHUNK];
	ssize_t n;
	while ((n = read(from, data, sizeof data)) > 0) {
		for (ssize_t at = 0; at < n;) {
			ssize_t done = write(to, data + at, (size_t)(n - at));
			if (done < 0)
				return -errno;
			at += done;
		}
	}
	return n < 0 ? -errno : 0;
}

/* What is there must be a file, or nothing; if it is a link, what that leads to is meant, as for a
 * write. */
static int resolve(struct target *t, const char *path)
{
	char real[PATH_MAX];
	struct stat st;
	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && realpath(path, real))
		path = real;
	if (snprintf(t->path, sizeof t->path, "%s", path) >= (int)sizeof t->path)
		return -ENAMETOOLONG;
	if (stat(path, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return S_ISREG(st.st_mode) ? 0 : -EACCES;
}

static int open_beside(struct target *t, struct owner who, char bad[PATH_TEXT])
{
	char parent[PATH_TEXT];
	int rc = file_make_parents(t->path, who, bad);
	if (rc < 0)
		return rc;
	snprintf(bad, PATH_TEXT, "%s", t->path);
	int n = (int)(path_name(t->path) - t->path);
	snprintf(parent, sizeof parent, "%.*s", n, t->path);
	rc = file_open_dir(parent, true, &t->dir);
	if (rc < 0)
		return rc;
	int head = snprintf(t->temporary, sizeof t->temporary, ".compose-");
	id_alnum(t->temporary + head, RANDOM_PART);
	t->fd = openat(t->dir, t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		       0644);
	if (t->fd < 0)
		return -errno;
	file_own(t->fd, who);
	return 0;
}

/* Each source must be there and be a file before anything is written. */
static int check_sources(const char *strings, size_t n, size_t pos, char failed[1 + PATH_TEXT])
{
	for (const char *source; (source = agent_string(strings, n, &pos));) {
		_close_ int fd = -1;
		int rc = file_open_read(source, &fd);
		if (rc < 0)
			return fail(failed, AGENT_COMPOSE_READ, source, rc);
	}
	return 0;
}

static int append_sources(const struct target *t, const char *strings, size_t n, size_t pos,
			  char failed[1 + PATH_TEXT])
{
	for (const char *source; (source = agent_string(strings, n, &pos));) {
		_close_ int fd = -1;
		int rc = file_open_read(source, &fd);
		if (rc < 0)
			return fail(failed, AGENT_COMPOSE_READ, source, rc);
		rc = copy(fd, t->fd);
		if (rc < 0)
			return fail(failed, AGENT_COMPOSE_WRITE, t->path, rc);
	}
	return 0;
}

/* A source may be named twice, or be the destination: that one stays. */
static int remove_sources(const struct target *t, const char *strings, size_t n, size_t pos,
			  char failed[1 + PATH_TEXT])
{
	struct stat made, st;
	if (fstat(t->fd, &made) < 0)
		return fail(failed, AGENT_COMPOSE_REMOVE, t->path, -errno);
	for (const char *source; (source = agent_string(strings, n, &pos));) {
		if (stat(source, &st) == 0 && st.st_dev == made.st_dev && st.st_ino == made.st_ino)
			continue;
		if (unlink(source) < 0 && errno != ENOENT)
			return fail(failed, AGENT_COMPOSE_REMOVE, source, -errno);
	}
	return 0;
}

static int fill(const struct target *t, const char *strings, size_t n, size_t pos,
		char failed[1 + PATH_TEXT])
{
	int rc = append_sources(t, strings, n, pos, failed);
	if (rc < 0)
		return rc;
	if (renameat(t->dir, t->temporary, t->dir, path_name(t->path)) < 0)
		return fail(failed, AGENT_COMPOSE_WRITE, t->path, -errno);
	return remove_sources(t, strings, n, pos, failed);
}

int compose(const char *strings, size_t n, struct owner who, char failed[1 + PATH_TEXT])
{
	struct target t = { .dir = -1, .fd = -1 };
	size_t pos = 0;
	char bad[PATH_TEXT];
	const char *destination = agent_string(strings, n, &pos);
	if (!destination || pos == n)
		return fail(failed, AGENT_COMPOSE_WRITE, "", -EINVAL);
	int rc = check_sources(strings, n, pos, failed);
	if (rc < 0)
		return rc;
	rc = resolve(&t, destination);
	if (rc < 0)
		return fail(failed, AGENT_COMPOSE_WRITE, destination, rc);
	rc = open_beside(&t, who, bad);
	if (rc < 0)
		fail(failed, AGENT_COMPOSE_WRITE, bad, rc);
	else
		rc = fill(&t, strings, n, pos, failed);
	/* Once it has its name, there is nothing under the temporary one. */
	if (rc < 0 && t.fd >= 0)
		unlinkat(t.dir, t.temporary, 0);
	close_fd(&t.fd);
	close_fd(&t.dir);
	return rc;
}
