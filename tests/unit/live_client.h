/* A client of the real engine, with one sandbox for all tests of a program. */
#ifndef TESTS_LIVE_CLIENT_H
#define TESTS_LIVE_CLIENT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "e2b/sandboxes.h"
#include "live_engine.h"

static struct live_engine engine;
static struct e2b *client;
static struct e2b_sandbox box;

/* The call names its error err. */
#define WORKS(call)                                                                                \
	do {                                                                                       \
		struct err err = { 0 };                                                            \
		if ((call) != 0)                                                                   \
			fail_msg("%s: %d %s", #call, err.code, err.text);                          \
	} while (0)

#define FAILS(call, with)                                                                          \
	do {                                                                                       \
		struct err err = { 0 };                                                            \
		if ((call) != -1 || err.code != (with))                                            \
			fail_msg("%s: %d %s", #call, err.code, err.text);                          \
	} while (0)

/* 0, or -1 with the reason on stderr and everything removed. */
static inline int live_client_start(const struct e2b_create *what)
{
	struct err err = { 0 };
	if (live_start(&engine) < 0)
		return -1;
	const struct e2b_config config = { .api_key = LIVE_KEY,
					   .api_url = engine.url,
					   .sandbox_url = engine.url };
	if (e2b_new(&client, &config, &err) < 0 || e2b_create(client, what, &box, NULL, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		live_stop(&engine);
		return -1;
	}
	return 0;
}

static inline int live_client_stop(void **state)
{
	(void)state;
	e2b_free(client);
	live_stop(&engine);
	return 0;
}

#endif
