/* Old event logs. Their files are the truth: a log whose execution nobody knows is deleted by its
 * age like any other, and one that is still being written never is. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "core/eventlog.h"
#include "core/passing.h"
#include "core/run.h"
#include "store/executions.h"

#define FILES_MAX 300000 /* that one pass looks at; the next one sees others */
#define FILES_ADD 1024

/* One file, and later one log. */
struct old {
	char id[EXECUTION_ID];
	int64_t written; /* last; CLOCK_REALTIME */
	int64_t bytes;   /* on disk */
};

struct shelf {
	struct old *all;
	size_t n;
};

static void close_folder(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int add(struct shelf *shelf, const char *id, const struct stat *st, struct err *err)
{
	if (shelf->n % FILES_ADD == 0) {
		void *more = realloc(shelf->all, (shelf->n + FILES_ADD) * sizeof *shelf->all);
		if (!more)
			return err_set(err, ERR_INTERNAL, "no memory");
		shelf->all = more;
	}
	struct old *one = &shelf->all[shelf->n++];
	*one = (struct old){ .written = st->st_mtim.tv_sec * SECOND_US,
			     .bytes = (int64_t)st->st_blocks * 512 };
	snprintf(one->id, sizeof one->id, "%s", id);
	return 0;
}

static int read_folder(const char *path, struct shelf *shelf, struct err *err)
{
	_cleanup_(close_folder) DIR *dir = opendir(path);
	const struct dirent *entry;
	if (!dir)
		return err_errno(err, "%s", path);
	while (shelf->n < FILES_MAX && (entry = readdir(dir))) {
		char id[EXECUTION_ID];
		struct stat st;
		/* What is no event log is not ours to delete. */
		if (eventlog_is_part(entry->d_name, id, sizeof id) &&
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && add(shelf, id, &st, err) < 0)
			return -1;
	}
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct old *)a)->id, ((const struct old *)b)->id);
}

static int by_age(const void *a, const void *b)
{
	const struct old *x = a, *y = b;
	return (x->written > y->written) - (x->written < y->written);
}

/* Of files that belong together, one log; the oldest first. */
static void bind_together(struct shelf *shelf)
{
	size_t n = 0;
	if (!shelf->n)
		return;
	qsort(shelf->all, shelf->n, sizeof *shelf->all, by_id);
	for (size_t i = 1; i < shelf->n; i++) {
		struct old *log = &shelf->all[n], *file = &shelf->all[i];
		if (strcmp(log->id, file->id) != 0) {
			shelf->all[++n] = *file;
			continue;
		}
		log->bytes += file->bytes;
		if (file->written > log->written)
			log->written = file->written;
	}
	shelf->n = n + 1;
	qsort(shelf->all, shelf->n, sizeof *shelf->all, by_age);
}

/* *gone is false when it has to stay. */
static int delete_log(struct passing *p, const char *dir, const struct old *log, bool *gone,
		      struct err *err)
{
	struct err why;
	bool unfinished;
	struct pass_event event = { .deed = PASS_DELETE_LOG, .execution_id = log->id };
	*gone = false;
	if (execution_unfinished(p->c->store, log->id, &unfinished, err) < 0)
		return -1;
	if (unfinished)
		return 0;
	*gone = p->config->dry_run || eventlog_remove(dir, log->id, &why) == 0;
	event.failed = *gone ? NULL : &why;
	passing_tell(p, &event);
	return 0;
}

static int sweep(struct passing *p, const char *dir, const struct shelf *shelf, struct err *err)
{
	const struct settings *s = p->c->settings;
	const int64_t oldest = p->began - s->events_max_age * SECOND_US;
	int64_t total = 0;
	for (size_t i = 0; i < shelf->n; i++)
		total += shelf->all[i].bytes;
	for (size_t i = 0; i < shelf->n; i++) {
		const struct old *log = &shelf->all[i];
		bool gone;
		if (log->written > oldest && total <= s->events_max)
			break;
		if (delete_log(p, dir, log, &gone, err) < 0)
			return -1;
		if (gone) {
			total -= log->bytes;
			p->out->log_bytes += log->bytes;
		}
	}
	return 0;
}

int eventsweep(struct passing *p, struct err *err)
{
	char dir[3000];
	struct shelf shelf = { NULL, 0 };
	if (run_events_dir(p->c->settings, dir, sizeof dir, err) < 0)
		return -1;
	int rc = read_folder(dir, &shelf, err);
	bind_together(&shelf);
	if (rc == 0)
		rc = sweep(p, dir, &shelf, err);
	free(shelf.all);
	return rc;
}
