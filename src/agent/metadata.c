#include "agent/metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "wire/agentmsg.h"
#include "wire/jsontext.h"

#define BUCKETS 1024

/* Which file it is. Without a time of birth (before Linux 5.19) that is 0: numbers of a tmpfs are
 * counted up, and do not come again soon. */
struct identity {
	dev_t dev;
	uint64_t ino;
	int64_t born;
	uint32_t born_ns;
};

struct entry {
	struct entry *next;
	struct identity file;
	char *path; /* where it was last seen */
	size_t n;   /* bytes of pairs */
	char pairs[];
};

static struct entry *buckets[BUCKETS]; /* by inode */
static size_t files, bytes;

static int identify(int dir, const char *path, int flags, struct identity *out)
{
	struct statx st;
	if (statx(dir, path, flags, STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	bool dated = st.stx_mask & STATX_BTIME;
	*out = (struct identity){ .dev = makedev(st.stx_dev_major, st.stx_dev_minor),
				  .ino = st.stx_ino,
				  .born = dated ? st.stx_btime.tv_sec : 0,
				  .born_ns = dated ? st.stx_btime.tv_nsec : 0 };
	return 0;
}

static bool is_same(const struct identity *a, const struct identity *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->born == b->born &&
	       a->born_ns == b->born_ns;
}

static bool is_at_its_path(const struct entry *e)
{
	struct identity now;
	return identify(AT_FDCWD, e->path, 0, &now) == 0 && is_same(&now, &e->file);
}

/* The place of the entry with this device and inode, whoever was born with them. */
static struct entry **find(dev_t dev, uint64_t ino)
{
	struct entry **at = &buckets[ino % BUCKETS];
	while (*at && ((*at)->file.dev != dev || (*at)->file.ino != ino))
		at = &(*at)->next;
	return at;
}

static size_t cost(const struct entry *e)
{
	return sizeof *e + e->n + strlen(e->path) + 1;
}

static void forget(struct entry **at)
{
	struct entry *e = *at;
	if (!e)
		return;
	*at = e->next;
	files--;
	bytes -= cost(e);
	free(e->path);
	free(e);
}

static void sweep(void)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct entry **at = &buckets[i]; *at;) {
			if (is_at_its_path(*at))
				at = &(*at)->next;
			else
				forget(at);
		}
	}
}

static bool has_room(size_t more)
{
	return files < METADATA_FILES && bytes + more <= METADATA_BYTES;
}

int metadata_set(int fd, const char *path, const char *pairs, size_t n)
{
	struct identity file;
	size_t more = sizeof(struct entry) + n + strlen(path) + 1;
	int rc = identify(fd, "", AT_EMPTY_PATH, &file);
	if (rc < 0)
		return n ? rc : 0;
	forget(find(file.dev, file.ino));
	if (!n)
		return 0;
	if (!has_room(more))
		sweep();
	if (!has_room(more))
		return -ENOBUFS;
	struct entry *e = malloc(sizeof *e + n);
	char *copy = strdup(path);
	if (!e || !copy) {
		free(e);
		free(copy);
		return -ENOMEM;
	}
	struct entry **at = &buckets[file.ino % BUCKETS];
	*e = (struct entry){ .next = *at, .file = file, .path = copy, .n = n };
	memcpy(e->pairs, pairs, n);
	*at = e;
	files++;
	bytes += more;
	return 0;
}

/* It may have been moved: where it is now is where it will be looked for. */
static void seen_at(struct entry *e, const char *path)
{
	bool moved = strcmp(e->path, path) && bytes + strlen(path) <= METADATA_BYTES;
	char *copy = moved ? strdup(path) : NULL;
	if (!copy)
		return;
	bytes += strlen(copy) - strlen(e->path);
	free(e->path);
	e->path = copy;
}

void metadata_put(struct buf *json, const char *path, const struct stat *st)
{
	struct entry *e = S_ISREG(st->st_mode) ? *find(st->st_dev, st->st_ino) : NULL;
	struct identity now;
	if (!e || identify(AT_FDCWD, path, 0, &now) < 0 || !is_same(&now, &e->file))
		return;
	seen_at(e, path);
	buf_adds(json, "\"metadata\":{");
	for (size_t pos = 0; pos < e->n;) {
		bool first = pos == 0;
		const char *key = agent_string(e->pairs, e->n, &pos);
		const char *value = agent_string(e->pairs, e->n, &pos);
		if (!key || !value)
			break;
		buf_adds(json, first ? "" : ",");
		json_put_string(json, key, strlen(key));
		buf_adds(json, ":");
		json_put_string(json, value, strlen(value));
	}
	buf_adds(json, "},");
}
