#include "engine/memwalk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define PROCESSES_MAX (1 << 18)       /* of all sandboxes; what is beyond is not counted */
#define EXACT_US      (5 * SECOND_US) /* an exact number is this old at the most */
#define EXACT_BYTES   (16ull << 20)   /* or off by this much */
#define TEXT_ROOM     4096

struct place {
	uint64_t ns;
	int sandbox;
};

struct member {
	pid_t pid;
	int sandbox;
};

struct memwalk {
	int proc;
	void (*alive)(void *ctx);
	void *ctx;
	uint64_t own_ns;
	uint64_t page;
	bool swap;            /* the machine has some */
	struct place *places; /* of this walk, by namespace */
	int nplaces, places_room;
	struct member *members; /* of this walk */
	int nmembers, members_room;
};

int memwalk_new(struct memwalk **out, void (*alive)(void *ctx), void *ctx)
{
	struct memwalk *w = calloc(1, sizeof *w);
	struct stat st;
	if (!w)
		return -1;
	w->page = (uint64_t)sysconf(_SC_PAGESIZE);
	w->alive = alive;
	w->ctx = ctx;
	w->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->proc < 0 || fstatat(w->proc, "self/ns/pid", &st, 0) < 0) {
		memwalk_free(w);
		return -1;
	}
	w->own_ns = st.st_ino;
	*out = w;
	return 0;
}

void memwalk_free(struct memwalk *w)
{
	if (!w)
		return;
	close_fd(&w->proc);
	free(w->places);
	free(w->members);
	free(w);
}

/* ---- one process ---- */

static int read_proc(const struct memwalk *w, pid_t pid, const char *name, char out[TEXT_ROOM])
{
	char path[64];
	snprintf(path, sizeof path, "%d/%s", pid, name);
	_close_ int fd = openat(w->proc, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, TEXT_ROOM - 1);
	out[n < 0 ? 0 : n] = '\0';
	return n < 0 ? -1 : 0;
}

/* The pid namespace of a process; 0 when it is gone, not ours to look at, or in ours. */
static uint64_t namespace_of(const struct memwalk *w, pid_t pid)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "%d/ns/pid", pid);
	return fstatat(w->proc, path, &st, 0) < 0 || st.st_ino == w->own_ns ? 0 : st.st_ino;
}

static uint64_t kilobytes(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) << 10 : 0;
}

static uint64_t swapped_out(const struct memwalk *w, pid_t pid)
{
	char text[TEXT_ROOM];
	return read_proc(w, pid, "status", text) < 0 ? 0 : kilobytes(text, "\nVmSwap:");
}

static void add_rough(const struct memwalk *w, pid_t pid, struct memwalk_sandbox *s)
{
	char text[TEXT_ROOM];
	unsigned long long resident, shared;
	if (read_proc(w, pid, "statm", text) < 0 ||
	    sscanf(text, "%*u %llu %llu", &resident, &shared) != 2)
		return;
	uint64_t swapped = w->swap ? swapped_out(w, pid) : 0;
	s->resident += resident * w->page + swapped;
	s->anon += (resident > shared ? resident - shared : 0) * w->page + swapped;
}

static void add_exact(const struct memwalk *w, pid_t pid, struct memwalk_sandbox *s)
{
	char text[TEXT_ROOM];
	if (read_proc(w, pid, "smaps_rollup", text) < 0)
		return;
	s->exact_anon += kilobytes(text, "\nPss_Anon:") + kilobytes(text, "\nSwapPss:");
	s->exact_shared += kilobytes(text, "\nPss_Shmem:");
}

/* ---- all of them ---- */

static int by_ns(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static int find_places(struct memwalk *w, struct memwalk_sandbox *s, int n)
{
	if (n > w->places_room) {
		struct place *more = realloc(w->places, (size_t)n * sizeof *more);
		if (!more)
			return -1;
		w->places = more;
		w->places_room = n;
	}
	w->nplaces = 0;
	for (int i = 0; i < n; i++) {
		if (!s[i].serial)
			continue;
		if (!s[i].ns)
			s[i].ns = namespace_of(w, s[i].pid);
		if (s[i].ns)
			w->places[w->nplaces++] = (struct place){ s[i].ns, i };
	}
	qsort(w->places, (size_t)w->nplaces, sizeof *w->places, by_ns);
	return 0;
}

static int add_member(struct memwalk *w, pid_t pid, int sandbox)
{
	if (w->nmembers == PROCESSES_MAX)
		return 0;
	if (w->nmembers == w->members_room) {
		int room = w->members_room ? 2 * w->members_room : 1024;
		struct member *more = realloc(w->members, (size_t)room * sizeof *more);
		if (!more)
			return -1;
		w->members = more;
		w->members_room = room;
	}
	w->members[w->nmembers++] = (struct member){ pid, sandbox };
	return 0;
}

static int find_members(struct memwalk *w)
{
	int fd = openat(w->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;
	if (!d) {
		close_fd(&fd);
		return -1;
	}
	w->nmembers = 0;
	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		struct place key = { .ns = pid > 0 ? namespace_of(w, pid) : 0 };
		const struct place *at =
			key.ns ? bsearch(&key, w->places, (size_t)w->nplaces, sizeof key, by_ns)
			       : NULL;
		if (at)
			rc = add_member(w, pid, at->sandbox);
	}
	closedir(d);
	return rc;
}

/* The disk is the root of the sandbox's processes, as soon as they are there; before, it is the
 * machine's. */
static uint64_t disk_used(const struct memwalk *w, const struct memwalk_sandbox *s)
{
	char path[64];
	struct statfs fs;
	(void)w;
	snprintf(path, sizeof path, "/proc/%d/root/", s->pid);
	if (statfs(path, &fs) < 0 || fs.f_type != TMPFS_MAGIC ||
	    (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize > s->disk + (uint64_t)fs.f_bsize)
		return 0;
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

static bool suspect(const struct memwalk_sandbox *s)
{
	return s->anon > s->memory || s->resident > s->memory + s->disk;
}

static bool outdated(const struct memwalk_sandbox *s, int64_t now)
{
	uint64_t off = s->anon > s->exact_from ? s->anon - s->exact_from : s->exact_from - s->anon;
	return !s->exact_at || now - s->exact_at > EXACT_US || off > EXACT_BYTES;
}

static bool has_swap(void)
{
	struct sysinfo info;
	return sysinfo(&info) == 0 && info.totalswap;
}

int memwalk_look(struct memwalk *w, struct memwalk_sandbox *s, int n)
{
	w->swap = has_swap();
	if (find_places(w, s, n) < 0 || find_members(w) < 0)
		return -1;
	for (int i = 0; i < n; i++)
		s[i].anon = s[i].resident = 0;
	for (int i = 0; i < w->nmembers; i++) {
		add_rough(w, w->members[i].pid, &s[w->members[i].sandbox]);
		w->alive(w->ctx);
	}
	int64_t now = clock_mono_us();
	for (int i = 0; i < n; i++) {
		if (!s[i].serial)
			continue;
		s[i].files = disk_used(w, &s[i]);
		if (!suspect(&s[i]) && !outdated(&s[i], now))
			continue;
		s[i].exact_anon = s[i].exact_shared = 0;
		s[i].exact_from = s[i].anon;
		s[i].exact_at = now;
	}
	for (int i = 0; i < w->nmembers; i++) {
		if (s[w->members[i].sandbox].exact_at == now)
			add_exact(w, w->members[i].pid, &s[w->members[i].sandbox]);
		w->alive(w->ctx);
	}
	return 0;
}

uint64_t memwalk_used(const struct memwalk_sandbox *s)
{
	uint64_t since = s->anon > s->exact_from ? s->anon - s->exact_from : 0;
	return s->exact_anon + since + s->exact_shared + s->files;
}

bool memwalk_over(const struct memwalk_sandbox *s)
{
	return suspect(s) &&
	       (s->exact_anon > s->memory || s->exact_anon + s->exact_shared > s->memory + s->disk);
}
