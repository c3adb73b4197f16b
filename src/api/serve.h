/* The gateway's application: what a worker does with a request. */
#ifndef API_SERVE_H
#define API_SERVE_H

#include "base/settings.h"
#include "web/prefork.h"

struct serve_config {
	struct settings settings;
	const char *file; /* of the settings, read again at SIGHUP; NULL: only the environment */
};

/* Whether the settings can be used; a sentence for a person when not. */
int serve_check(const struct serve_config *config, struct err *err);

/* The application over a configuration that outlives it. */
struct prefork_app serve_app(struct serve_config *config);

#endif
