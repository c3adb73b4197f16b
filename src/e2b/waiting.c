/* Waiting for the network, the caller's descriptors and the clock at once. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "e2b/client.h"

#define TICK_US SECOND_US

/* libcurl does not report a hang-up of our descriptors, so they are asked once more. */
static unsigned ready_fds(const struct pollfd *fds, int n)
{
	struct pollfd again[2];
	unsigned ready = 0;
	memcpy(again, fds, sizeof again);
	if (n && poll(again, (nfds_t)n, 0) > 0)
		for (int i = 0; i < n; i++)
			if (again[i].revents)
				ready |= 1u << i;
	return ready;
}

/* When the wait has to be over for what the caller does in between. */
static int64_t ask_caller(const struct e2b_wait *wait)
{
	int ms = wait->before ? wait->before(wait->ctx) : -1;
	return ms < 0 ? INT64_MAX : clock_mono_us() + ms * 1000LL;
}

int call_wait(struct e2b *c, const struct e2b_wait *wait, int64_t deadline, int64_t until,
	      int64_t *ticked, bool *tick, const char *what, struct err *err)
{
	struct curl_waitfd extra[2];
	struct pollfd fds[2] = { 0 };
	static const struct e2b_wait no_wait;
	if (!wait)
		wait = &no_wait;
	const int64_t again = ask_caller(wait);
	int n = wait->nfds < 0 ? 0 : wait->nfds > 2 ? 2 : wait->nfds;
	for (int i = 0; i < n; i++) {
		fds[i].fd = wait->fds[i];
		fds[i].events = wait->events[i] ? wait->events[i] : POLLIN;
		extra[i] = (struct curl_waitfd){ .fd = fds[i].fd };
		if (fds[i].events & POLLIN)
			extra[i].events |= CURL_WAIT_POLLIN;
		if (fds[i].events & POLLOUT)
			extra[i].events |= CURL_WAIT_POLLOUT;
	}
	int64_t now = clock_mono_us();
	if (wait->deadline_mono_us)
		deadline = wait->deadline_mono_us;
	if (now >= deadline)
		return err_set(err, ERR_TIMEOUT, "%s: the deadline has passed", what);
	if (until > deadline)
		until = deadline;
	if (until > *ticked + TICK_US)
		until = *ticked + TICK_US;
	if (until > again)
		until = again;
	int ms = until > now ? (int)((until - now + 999) / 1000) : 0;
	CURLMcode rc = curl_multi_poll(c->multi, extra, (unsigned)n, ms, NULL);
	if (rc)
		return err_set(err, ERR_INTERNAL, "%s: %s", what, curl_multi_strerror(rc));
	unsigned ready = ready_fds(fds, n);
	const bool at_once = again <= now;
	now = clock_mono_us();
	*tick = ready || at_once || now >= *ticked + TICK_US;
	if (!*tick)
		return 0;
	*ticked = now;
	if (wait->tick && wait->tick(wait->ctx, ready) < 0)
		return err_set(err, ERR_ABANDONED, "%s: given up by the caller", what);
	return 0;
}

int call_sleep(struct e2b *c, int64_t us, int64_t deadline_mono_us, const struct e2b_wait *wait,
	       struct err *err)
{
	int64_t ticked = clock_mono_us(), until = ticked + us;
	bool tick;
	while (clock_mono_us() < until)
		if (call_wait(c, wait, deadline_mono_us, until, &ticked, &tick, "waiting", err) < 0)
			return -1;
	return 0;
}
