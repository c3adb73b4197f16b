#include "engine/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"

#define BATCH 64

struct loop {
	int epoll;
	bool stop;
	struct timer *first, *last; /* by time; new ones are mostly the latest */
	struct epoll_event ready[BATCH];
	int nready;
};

int loop_new(struct loop **out, struct err *err)
{
	struct loop *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(err, ERR_INTERNAL, "no memory for the event loop");
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0) {
		free(l);
		return err_errno(err, "epoll_create1");
	}
	*out = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	close(l->epoll);
	free(l);
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}

int watch_add(struct watch *w, struct loop *l, int fd, uint32_t events,
	      void (*fn)(void *, uint32_t), void *ctx)
{
	*w = (struct watch){ .loop = l, .fd = fd, .events = events, .fn = fn, .ctx = ctx };
	struct epoll_event e = { .events = events, .data.ptr = w };
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		return -1;
	w->added = true;
	return 0;
}

void watch_set(struct watch *w, uint32_t events)
{
	if (!w->added || w->events == events)
		return;
	struct epoll_event e = { .events = events, .data.ptr = w };
	epoll_ctl(w->loop->epoll, EPOLL_CTL_MOD, w->fd, &e);
	w->events = events;
}

void watch_del(struct watch *w)
{
	if (!w->added)
		return;
	w->added = false;
	epoll_ctl(w->loop->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	/* Its owner may be freed next: forget what this round still holds of it. */
	for (int i = 0; i < w->loop->nready; i++)
		if (w->loop->ready[i].data.ptr == w)
			w->loop->ready[i].data.ptr = NULL;
}

void timer_stop(struct timer *t)
{
	if (!t->loop)
		return;
	*(t->prev ? &t->prev->next : &t->loop->first) = t->next;
	*(t->next ? &t->next->prev : &t->loop->last) = t->prev;
	t->loop = NULL;
}

void timer_at(struct timer *t, struct loop *l, int64_t mono_us, void (*fn)(void *), void *ctx)
{
	timer_stop(t);
	struct timer *before = l->last;
	while (before && before->at > mono_us)
		before = before->prev;
	struct timer *after = before ? before->next : l->first;
	*t = (struct timer){
		.loop = l, .at = mono_us, .fn = fn, .ctx = ctx, .prev = before, .next = after
	};
	*(before ? &before->next : &l->first) = t;
	*(after ? &after->prev : &l->last) = t;
}

static int wait_ms(const struct loop *l)
{
	if (!l->first)
		return -1;
	int64_t us = l->first->at - clock_mono_us();
	if (us <= 0)
		return 0;
	return us > 3600 * SECOND_US ? 3600 * 1000 : (int)((us + 999) / 1000);
}

static void fire_timers(struct loop *l)
{
	int64_t now = clock_mono_us();
	while (l->first && l->first->at <= now) {
		struct timer *t = l->first;
		timer_stop(t);
		t->fn(t->ctx);
	}
}

void loop_run(struct loop *l)
{
	while (!l->stop) {
		l->nready = epoll_wait(l->epoll, l->ready, BATCH, wait_ms(l));
		for (int i = 0; i < l->nready; i++) {
			struct watch *w = l->ready[i].data.ptr;
			if (w)
				w->fn(w->ctx, l->ready[i].events);
		}
		l->nready = 0;
		fire_timers(l);
	}
}
