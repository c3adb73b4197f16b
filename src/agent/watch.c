#include "agent/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/dirs.h"
#include "agent/files.h"
#include "agent/watching.h"
#include "base/cleanup.h"
#include "base/packet.h"

#define QUEUE_MAX  (2u << 20) /* bytes of changes that a watch keeps */
#define LOOK_BACK  16         /* changes among which one is not said twice */
#define READ_SIZE  (64u << 10)
#define ROUNDS_MAX 256 /* reads before a call is answered, however much happens meanwhile */

static struct watch *watches;

static struct watch *find(uint32_t id)
{
	for (struct watch *w = watches; w; w = w->next)
		if (w->id == id)
			return w;
	return NULL;
}

/* ---- the queue ---- */

static void forget_changes(struct watch *w)
{
	buf_free(&w->changes);
	w->said = 0;
}

void watch_lose(struct watch *w, int error)
{
	dirs_leave(w, "");
	forget_changes(w);
	w->error = error;
}

/* Whether it is among the last changes already. Only the order of writes and changes of mode among
 * themselves means nothing. */
static bool is_repeated(const struct watch *w, enum agent_change type, const char *name)
{
	const char *begin = w->changes.p + w->said, *end = w->changes.p + w->changes.len;
	for (int i = 0; i < LOOK_BACK && end > begin; i++) {
		const char *nul = memrchr(begin, '\0', (size_t)(end - 1 - begin));
		const char *last = nul ? nul + 1 : begin;
		if (*last == (char)type && !strcmp(last + 1, name))
			return true;
		if (*last != AGENT_WRITTEN && *last != AGENT_CHMODDED)
			return false;
		end = last;
	}
	return false;
}

void watch_say(struct watch *w, enum agent_change type, const char *name)
{
	const char byte = (char)type;
	if (w->error || (w->changes.len && is_repeated(w, type, name)))
		return;
	if (buf_add(&w->changes, &byte, 1) < 0 || buf_add(&w->changes, name, strlen(name) + 1) < 0)
		watch_lose(w, -EOVERFLOW);
}

/* ---- beginning ---- */

static int begin(struct watch *w)
{
	_close_ int fd = -1;
	char link[32];
	int rc = file_open_dir(w->path, true, &fd);
	if (rc < 0)
		return rc;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, w->real, sizeof w->real - 1);
	if (n < 0)
		return -errno;
	w->real[n] = '\0';
	w->error = 0;
	rc = watch_visit(w, "", VISIT_QUIETLY);
	if (rc < 0)
		watch_lose(w, rc);
	return rc;
}

/* ---- what inotify says ---- */

static enum agent_change type_of(uint32_t mask)
{
	if (mask & (IN_CREATE | IN_MOVED_TO))
		return AGENT_CREATED;
	if (mask & IN_MODIFY)
		return AGENT_WRITTEN;
	if (mask & (IN_DELETE | IN_DELETE_SELF))
		return AGENT_REMOVED;
	if (mask & (IN_MOVED_FROM | IN_MOVE_SELF))
		return AGENT_RENAMED;
	return AGENT_CHMODDED;
}

/* Of what happens to a directory itself its parent speaks, by name; the top has none here. */
static void top_changed(struct watch *w, uint32_t mask)
{
	watch_say(w, type_of(mask), ".");
	if (mask & (IN_DELETE_SELF | IN_MOVE_SELF))
		dirs_leave(w, "");
}

static bool is_directory(const struct watch *w, const char *path)
{
	char full[PATH_TEXT];
	struct stat st;
	return watch_full_path(full, w->real, path) == 0 && lstat(full, &st) == 0 &&
	       S_ISDIR(st.st_mode);
}

static void tree_changed(struct watch *w, enum agent_change type, bool is_dir, const char *path)
{
	int rc = 0;
	if (type == AGENT_CREATED && is_dir) {
		rc = watch_visit(w, path, VISIT_IF_NEW);
	} else {
		watch_say(w, type, path);
		if (type == AGENT_RENAMED && is_dir)
			dirs_leave(w, path);
		/* There may be a directory of that name by now, and already said with its contents:
		 * they would be taken for gone. */
		if ((type == AGENT_RENAMED || type == AGENT_REMOVED) && is_directory(w, path))
			rc = watch_visit(w, path, VISIT_IN_ANY_CASE);
	}
	if (rc < 0 && !w->error)
		watch_lose(w, rc);
}

static void changed(struct watch *w, const struct dir *d, const struct inotify_event *e)
{
	char path[PATH_TEXT];
	enum agent_change type = type_of(e->mask);
	if (e->mask & (IN_IGNORED | IN_UNMOUNT))
		return;
	if (!e->len && !*d->path)
		top_changed(w, e->mask);
	if (!e->len || watch_join(path, d->path, e->name) < 0)
		return;
	if (w->flags & AGENT_RECURSIVE)
		tree_changed(w, type, e->mask & IN_ISDIR, path);
	else
		watch_say(w, type, path);
}

static void take_event(const struct inotify_event *e)
{
	for (struct watch *w = watches; w; w = w->next) {
		const struct dir *d = dirs_find(w, e->wd);
		if (e->mask & IN_Q_OVERFLOW)
			watch_lose(w, -EOVERFLOW);
		else if (d)
			changed(w, d, e);
	}
	if (e->mask & IN_IGNORED)
		dirs_forget(e->wd);
}

/* Whether there was something. */
static bool take_some(void)
{
	static char data[READ_SIZE] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = dirs_fd() < 0 ? 0 : read(dirs_fd(), data, sizeof data);
	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *e = (const void *)(data + at);
		take_event(e);
		at += (ssize_t)(sizeof *e + e->len);
	}
	return n > 0;
}

static void take_all(void)
{
	for (int i = 0; i < ROUNDS_MAX && take_some(); i++)
		;
}

/* ---- what the engine asks ---- */

static void put_entry(const struct watch *w, const char *change, struct buf *json)
{
	char full[PATH_TEXT];
	const char *name = strcmp(change + 1, ".") ? change + 1 : "";
	if (w->flags & AGENT_ENTRIES && *change != AGENT_REMOVED && *change != AGENT_RENAMED &&
	    watch_full_path(full, w->path, name) == 0 && file_entry(full, json) < 0)
		json->len = 0; /* gone again */
}

/* Move changes to out as long as they fit; 1 when some remain. */
static int put_changes(struct watch *w, struct buf *out)
{
	struct buf entry = BUF(PACKET_MAX / 2);
	while (w->said < w->changes.len) {
		const char *change = w->changes.p + w->said;
		size_t n = strlen(change) + 1;
		entry.len = 0;
		put_entry(w, change, &entry);
		if (out->len + n + entry.len + 1 > out->max)
			break;
		buf_add(out, change, n);
		buf_add(out, entry.p, entry.len);
		buf_add(out, "", 1);
		w->said += n;
	}
	buf_free(&entry);
	if (w->said < w->changes.len)
		return 1;
	forget_changes(w);
	return 0;
}

static void answer(struct watch *w, uint32_t call, watch_reply *reply)
{
	struct buf out = BUF(PACKET_MAX - sizeof(struct agent_msg));
	int value = w->error ? w->error : put_changes(w, &out);
	reply(call, value, out.p, out.len);
	buf_free(&out);
}

static bool has_news(const struct watch *w)
{
	return w->error || w->changes.len;
}

static void answer_waiting(watch_reply *reply)
{
	for (struct watch *w = watches; w; w = w->next) {
		uint32_t call = w->waiting;
		if (!call || !has_news(w))
			continue;
		w->waiting = 0;
		answer(w, call, reply);
	}
}

int watch_begin(uint32_t id, const char *path, unsigned flags)
{
	struct watch *w = calloc(1, sizeof *w);
	if (!w)
		return -ENOMEM;
	/* What has happened by now is not for it, though it may share a directory with others. */
	take_all();
	*w = (struct watch){ .next = watches, .id = id, .flags = flags, .changes = BUF(QUEUE_MAX) };
	snprintf(w->path, sizeof w->path, "%s", path);
	int rc = begin(w);
	if (rc < 0)
		free(w);
	else
		watches = w;
	return rc;
}

void watch_end(uint32_t id, watch_reply *reply)
{
	for (struct watch **at = &watches; *at; at = &(*at)->next) {
		struct watch *w = *at;
		if (w->id != id)
			continue;
		*at = w->next;
		if (w->waiting)
			reply(w->waiting, -ECANCELED, NULL, 0);
		watch_lose(w, -ECANCELED);
		free(w);
		return;
	}
}

void watch_changes(uint32_t id, uint32_t call, bool wait, watch_reply *reply)
{
	struct watch *w = find(id);
	if (!w || w->waiting) {
		reply(call, w ? -EBUSY : -ESRCH, NULL, 0);
		return;
	}
	take_all();
	if (wait && !has_news(w)) {
		w->waiting = call;
	} else {
		/* It begins anew before it says that it was lost: from then on nothing is missed.
		 */
		int lost = w->error;
		if (lost && !wait) {
			w->error = begin(w);
			reply(call, lost, NULL, 0);
		} else {
			answer(w, call, reply);
		}
	}
	answer_waiting(reply);
}

int watch_fd(void)
{
	return dirs_fd();
}

void watch_pump(watch_reply *reply)
{
	take_some();
	answer_waiting(reply);
}
