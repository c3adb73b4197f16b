/* What a sandbox uses, measured by its agent. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/sandbox.h"

struct measuring {
	struct sandbox *s;
	void (*fn)(void *ctx, const struct usage_sample *u);
	void *ctx;
};

static void on_usage(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct measuring *m = ctx;
	struct sandbox *s = m->s;
	struct usage_sample *last = s->nsamples ? &s->samples[s->nsamples - 1] : NULL;
	struct usage_sample now = { .real_us = clock_real_us() };
	close_fd(&fd);
	if (value == 0 && n == sizeof now.usage) {
		memcpy(&now.usage, payload, sizeof now.usage);
		if (last && now.real_us > last->real_us && now.usage.cpu_us >= last->usage.cpu_us)
			now.cpu_pct = 100.0 * (double)(now.usage.cpu_us - last->usage.cpu_us) /
				      (double)(now.real_us - last->real_us);
		if (s->nsamples == USAGE_SAMPLES)
			memmove(s->samples, s->samples + 1, --s->nsamples * sizeof *s->samples);
		s->samples[s->nsamples++] = now;
		m->fn(m->ctx, &now);
	} else {
		m->fn(m->ctx, NULL);
	}
	free(m);
}

void sandbox_measure(struct sandbox *s, void (*fn)(void *, const struct usage_sample *), void *ctx)
{
	struct measuring *m = calloc(1, sizeof *m);
	struct agent_msg msg = { .op = AGENT_USAGE };
	if (m)
		*m = (struct measuring){ s, fn, ctx };
	if (!m || !agent_call(s->agent, msg, NULL, 0, NULL, 0, on_usage, m)) {
		free(m);
		fn(ctx, NULL);
	}
}
