#include "core/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "e2b/run.h"
#include "e2b/watch.h"

#define HOME       "/home/user"
#define HEARD_MAX  50000 /* changes of one execution; more, and it is not known what changed */
#define HEARD_ADD  64    /* room is made for so many more */
#define NAMES_MAX  1000  /* names given to one stat(1) */
#define NAMES_SIZE (96u << 10)   /* bytes of them */
#define ANSWER_MAX (1024u << 10) /* bytes of its answer */
#define STAT_SECS  30
#define FRESH_US   (2 * SECOND_US)

/* What was heard of a path: one change, and after fold() the first of all. */
struct heard {
	char *name; /* relative to HOME */
	size_t order;
	enum e2b_change_type first;
	int64_t size; /* -1: it is not there */
};

struct hearing {
	struct heard *all;
	size_t n;
};

/* ---- the watcher ---- */

static int ignore(void *ctx, const struct e2b_change *change)
{
	(void)ctx;
	(void)change;
	return 0;
}

/* What changed before is not this execution's doing. One that has lost something begins anew. */
static bool read_away(struct core *c, const struct e2b_sandbox *sb, const char *watcher)
{
	const struct e2b_wait wait = core_patience(c);
	struct err err;
	return e2b_watch_events(c->e2b, sb, watcher, ignore, NULL, &wait, &err) == 0 ||
	       err.code == ERR_LIMIT;
}

int changes_claim(struct core *c, const char *execution_id, int64_t sandbox, struct changes *out,
		  struct err *err)
{
	return execution_watch(c->store, execution_id, sandbox, &out->watch, err);
}

/* What the execution before it has read a moment ago has nothing new to tell. */
static bool is_fresh(const struct execution_watch *watch)
{
	const int64_t age = clock_real_us() - watch->read_at;
	return age >= 0 && age < FRESH_US;
}

void changes_begin(struct core *c, const char *execution_id, int64_t sandbox,
		   const struct e2b_sandbox *sb, struct changes *changes)
{
	const struct e2b_wait wait = core_patience(c);
	struct execution_watch *w = &changes->watch;
	struct err ignored;
	if (w->shared && w->id[0] && (is_fresh(w) || read_away(c, sb, w->id)))
		return;
	if (e2b_watch_create(c->e2b, sb, HOME, true, w->id, &wait, &ignored) < 0)
		w->id[0] = '\0';
	else if (w->shared)
		execution_set_watcher(c->store, execution_id, sandbox, w->id, &ignored);
}

/* ---- what was heard ---- */

static int hear(void *ctx, const struct e2b_change *change)
{
	struct hearing *h = ctx;
	if (change->type == E2B_CHANGE_OTHER || change->type == E2B_CHMODDED ||
	    !strcmp(change->name, "."))
		return 0;
	/* What is made is mostly written at once. */
	if (h->n && !strcmp(h->all[h->n - 1].name, change->name))
		return 0;
	if (h->n % HEARD_ADD == 0) {
		void *more = h->n < HEARD_MAX ? realloc(h->all, (h->n + HEARD_ADD) * sizeof *h->all)
					      : NULL;
		if (!more)
			return -1;
		h->all = more;
	}
	h->all[h->n] = (struct heard){
		.name = strdup(change->name), .order = h->n, .first = change->type, .size = -1
	};
	if (!h->all[h->n].name)
		return -1;
	h->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct heard *x = a, *y = b;
	int order = strcmp(x->name, y->name);
	return order ? order : x->order < y->order ? -1 : 1;
}

/* One for each name. */
static void fold(struct hearing *h)
{
	size_t n = 0;
	if (!h->n)
		return;
	qsort(h->all, h->n, sizeof *h->all, by_name);
	for (size_t i = 1; i < h->n; i++) {
		if (strcmp(h->all[n].name, h->all[i].name) != 0)
			h->all[++n] = h->all[i];
		else
			free(h->all[i].name);
	}
	h->n = n + 1;
}

static void forget(struct hearing *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->all[i].name);
	free(h->all);
}

/* ---- looking ---- */

/* The answer for a name; names come back in the order in which they were asked for, without those
 * that are not there. */
static void take_line(struct heard *all, size_t n, size_t *at, const char *line)
{
	long long size;
	unsigned mode;
	int used = 0;
	/* The blank behind the mode is one: a name may begin with more. */
	if (sscanf(line, "%lld %x%n", &size, &mode, &used) != 2 || !used || line[used++] != ' ')
		return;
	size_t i = *at;
	while (i < n && strcmp(all[i].name, line + used) != 0)
		i++;
	if (i == n)
		return;
	/* A folder is as if it were not there: its files are told by themselves. */
	all[i].size = S_ISDIR(mode) ? -2 : size;
	*at = i + 1;
}

static int gather(void *ctx, const struct e2b_event *e)
{
	return e->type == E2B_STDOUT ? buf_add(ctx, e->text, e->ntext) : 0;
}

/* By one command: it follows no link, and a thousand files cost as much as one. */
static int stat_some(struct core *c, const struct e2b_sandbox *sb, struct heard *all, size_t n,
		     struct err *err)
{
	const struct e2b_wait wait = { .deadline_mono_us =
					       clock_mono_us() + STAT_SECS * SECOND_US };
	struct buf answer = BUF(ANSWER_MAX);
	_free_ const char **argv = calloc(n + 4, sizeof *argv);
	size_t at = 0;
	if (!argv)
		return err_set(err, ERR_INTERNAL, "no memory");
	argv[0] = "stat";
	argv[1] = "--printf=%s %f %n\\0";
	argv[2] = "--";
	for (size_t i = 0; i < n; i++)
		argv[3 + i] = all[i].name;
	const struct e2b_command what = { .argv = argv,
					  .cwd = HOME,
					  .timeout_ms = STAT_SECS * 1000 };
	int rc = e2b_run_command(c->e2b, sb, &what, gather, &answer, &wait, err);
	for (size_t i = 0; rc == 0 && i < answer.len; i += strlen(answer.p + i) + 1)
		take_line(all, n, &at, answer.p + i);
	buf_free(&answer);
	return rc;
}

static int look(struct core *c, const struct e2b_sandbox *sb, struct hearing *h, struct err *err)
{
	for (size_t i = 0, n; i < h->n; i += n) {
		size_t bytes = 0;
		for (n = 0; i + n < h->n && n < NAMES_MAX && (!n || bytes < NAMES_SIZE); n++)
			bytes += strlen(h->all[i + n].name) + 1;
		if (stat_some(c, sb, h->all + i, n, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- the answer ---- */

/* NULL: nothing of it is left to tell. */
static const char *change_of(const struct heard *one)
{
	const bool was_there = one->first != E2B_CREATED, is_there = one->size >= 0;
	if (one->size == -2)
		return NULL;
	if (is_there)
		return was_there ? "modified" : "created";
	return was_there ? "removed" : NULL;
}

static struct json_object *entry_json(const struct heard *one, const char *change)
{
	struct json_object *o = json_object_new_object();
	struct buf path = BUF(8192);
	buf_addf(&path, HOME "/%s", one->name);
	json_object_object_add(o, "path", json_object_new_string(path.p ? path.p : ""));
	json_object_object_add(o, "size", one->size >= 0 ? json_object_new_int64(one->size) : NULL);
	json_object_object_add(o, "change", json_object_new_string(change));
	buf_free(&path);
	return o;
}

static struct json_object *list(const struct hearing *h, size_t *total)
{
	struct json_object *all = json_object_new_array();
	*total = 0;
	for (size_t i = 0; i < h->n; i++) {
		const char *change = change_of(&h->all[i]);
		if (change && ++*total <= CHANGES_MAX)
			json_object_array_add(all, entry_json(&h->all[i], change));
	}
	return all;
}

/* One that could not be read is not asked again. */
static void let_go(struct core *c, const char *execution_id, int64_t sandbox,
		   const struct e2b_sandbox *sb, const struct execution_watch *w)
{
	const struct e2b_wait wait = core_patience(c);
	struct err ignored;
	e2b_watch_remove(c->e2b, sb, w->id, &wait, &ignored);
	if (w->shared)
		execution_set_watcher(c->store, execution_id, sandbox, "", &ignored);
}

struct json_object *changes_end(struct core *c, const char *execution_id, int64_t sandbox,
				const struct e2b_sandbox *sb, const struct changes *changes,
				size_t *total)
{
	const struct e2b_wait wait = core_patience(c);
	struct hearing h = { 0 };
	struct json_object *o = NULL;
	struct err ignored;
	*total = 0;
	if (!changes->watch.id[0])
		return NULL;
	if (e2b_watch_events(c->e2b, sb, changes->watch.id, hear, &h, &wait, &ignored) == 0) {
		fold(&h);
		if (look(c, sb, &h, &ignored) == 0)
			o = list(&h, total);
	}
	forget(&h);
	if (!o || !changes->watch.shared)
		let_go(c, execution_id, sandbox, sb, &changes->watch);
	return o;
}
