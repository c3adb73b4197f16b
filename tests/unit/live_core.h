/* What a worker has, over the real database and the real engine. */
#ifndef TESTS_LIVE_CORE_H
#define TESTS_LIVE_CORE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "core/session.h"
#include "live_engine.h"

static struct live_engine engine;
static struct settings settings;
static char db[256];
static struct err err;

static int plain_sleep(void *ctx, const char *key, int ms)
{
	(void)ctx;
	(void)key;
	usleep((useconds_t)(ms < 50 ? ms : 50) * 1000);
	return 0;
}

static void no_wake(void *ctx, const char *key)
{
	(void)ctx;
	(void)key;
}

/* What a worker has; opened in the process that uses it. */
static void open_core(struct core *c)
{
	const struct store_config store = { .path = db, .slot = -1, .busy_ms = 20000 };
	const struct e2b_config e2b = { .api_key = LIVE_KEY,
					.api_url = engine.url,
					.sandbox_url = engine.url };
	*c = (struct core){ .settings = &settings, .sleep = plain_sleep, .wake = no_wake };
	if (store_open(&c->store, &store, &err) < 0 || e2b_new(&c->e2b, &e2b, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
}

static void close_core(struct core *c)
{
	store_free(c->store);
	e2b_free(c->e2b);
}

static struct core core;

static int set_up(void **state)
{
	(void)state;
	open_core(&core);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	close_core(&core);
	return 0;
}

#define WORKS(call)                                                                                \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			fail_msg("%s: %d %s", #call, err.code, err.text);                          \
	} while (0)

/* Start the engine and load settings that point at it; 0 or -1. */
static inline int live_core_start(const char *template)
{
	if (live_start(&engine) < 0)
		return -1;
	snprintf(db, sizeof db, "%s/store/sandgate.db", engine.dir);
	setenv("E2B_API_URL", engine.url, 1);
	setenv("SANDGATE_CODE_INTERPRETER_TEMPLATE", template, 1);
	setenv("SANDGATE_INSTANCE", "unit-test", 1);
	setenv("SANDGATE_STATE_DIR", engine.dir, 1);
	if (settings_load(&settings, NULL, &err) == 0)
		return 0;
	fprintf(stderr, "%s\n", err.text);
	live_stop(&engine);
	return -1;
}

static inline void live_core_stop(void)
{
	settings_free(&settings);
	live_stop(&engine);
}

#endif
