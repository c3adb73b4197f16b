#include "engine/pool.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/kernelproc.h"
#include "engine/memory.h"

#define SOON_US  20000           /* after a create its client goes first */
#define LATER_US (5 * SECOND_US) /* after a failure, or when memory is short */

struct place {
	const struct template *template;
	bool internet;
	int64_t asked;     /* when one of this kind was last asked for */
	struct sandbox *s; /* NULL while it is to be filled */
};

struct pool {
	struct engine *e;
	struct timer timer;
	bool filling; /* one is starting */
	int n;
	struct place places[];
};

static bool is_kind(const struct place *at, const struct sandbox_config *c)
{
	return at->template == c->template && at->internet == c->internet;
}

static void fill_at(struct pool *p, int64_t us);

static void fill(void *ctx)
{
	struct pool *p = ctx;
	struct err err;
	if (p->filling || p->e->stopping)
		return;
	if (memory_short(p->e)) {
		fill_at(p, LATER_US);
		return;
	}
	for (int i = 0; i < p->n; i++) {
		struct place *at = &p->places[i];
		struct sandbox_config config = { .template = at->template,
						 .internet = at->internet,
						 .pooled = true };
		if (at->s)
			continue;
		at->s = sandbox_prepare(p->e, &config, &err);
		p->filling = at->s != NULL;
		if (!at->s)
			fill_at(p, LATER_US);
		return;
	}
}

static void fill_at(struct pool *p, int64_t us)
{
	timer_at(&p->timer, p->e->loop, clock_mono_us() + us, fill, p);
}

struct pool *pool_new(struct engine *e)
{
	const struct template *usual;
	int n = e->opt->pool;
	struct pool *p = n ? calloc(1, sizeof *p + (size_t)n * sizeof *p->places) : NULL;
	if (!p || template_find(e->templates, "code-interpreter-v1", &usual, NULL) < 0) {
		free(p);
		return NULL;
	}
	p->e = e;
	p->n = n;
	for (int i = 0; i < n; i++)
		p->places[i] = (struct place){ .template = usual, .internet = true };
	fill_at(p, 0);
	return p;
}

void pool_free(struct pool *p)
{
	if (p)
		timer_stop(&p->timer);
	free(p);
}

/* Whether a place is the better one to give away: what nobody has asked for the longest goes first,
 * and of that what is not filled. */
static bool goes_before(const struct place *a, const struct place *b)
{
	return a->asked != b->asked ? a->asked < b->asked : !a->s && b->s;
}

/* The kind is wanted and no place has it: another kind loses one. */
static void give_place(struct pool *p, const struct sandbox_config *config)
{
	struct place *oldest = p->places;
	for (int i = 1; i < p->n; i++)
		if (goes_before(&p->places[i], oldest))
			oldest = &p->places[i];
	struct sandbox *s = oldest->s;
	*oldest = (struct place){ .template = config->template,
				  .internet = config->internet,
				  .asked = clock_mono_us() };
	if (s)
		sandbox_end(s);
	p->filling = false;
	for (int i = 0; i < p->n; i++)
		p->filling |= p->places[i].s && p->places[i].s->state == SANDBOX_STARTING;
}

struct sandbox *pool_take(struct pool *p, const struct sandbox_config *config)
{
	struct place *has = NULL;
	/* What a template starts may depend on what this request brings along, and so does a
	 * Python; rules of the network must hold from the beginning. */
	if (!p || config->template->start || config->network ||
	    kernelproc_looks_early(config->envs))
		return NULL;
	for (int i = 0; i < p->n; i++) {
		struct place *at = &p->places[i];
		/* The one that is there the longest is the one most surely ready. */
		if (is_kind(at, config) &&
		    (!has || !has->s || (at->s && at->s->serial < has->s->serial)))
			has = at;
	}
	fill_at(p, SOON_US);
	if (!has) {
		give_place(p, config);
		return NULL;
	}
	struct sandbox *s = has->s;
	has->s = NULL;
	has->asked = clock_mono_us();
	if (s && s->state == SANDBOX_STARTING)
		p->filling = false;
	return s;
}

void pool_changed(struct pool *p, struct sandbox *s)
{
	bool ended = s->state == SANDBOX_ENDED;
	for (int i = 0; p && i < p->n; i++) {
		if (p->places[i].s != s)
			continue;
		if (ended)
			p->places[i].s = NULL;
		p->filling = false;
		fill_at(p, ended ? LATER_US : 0);
	}
}

void pool_drain(struct pool *p)
{
	int n = 0;
	for (int i = 0; p && i < p->n; i++) {
		struct sandbox *s = p->places[i].s;
		p->places[i].s = NULL;
		n += s != NULL;
		if (s)
			sandbox_end(s);
	}
	if (!p)
		return;
	p->filling = false;
	fill_at(p, LATER_US);
	if (n)
		log_line(LOG_WARN, "op=pool drained=%d reason=\"memory is short\"", n);
}
