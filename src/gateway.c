/* The gateway: a FastCGI server behind nginx. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/routes.h"
#include "api/serve.h"
#include "base/log.h"
#include "base/version.h"
#include "store/store.h"
#include "web/sockets.h"

#define EXEC_START 4 /* exec workers that are there from the beginning */

static const char usage[] =
	"Usage: sandgate [-c FILE]\n"
	"\n"
	"Gives every user session its own sandbox. Serves FastCGI on two sockets in\n"
	"SANDGATE_STATE_DIR, quick.sock and exec.sock, or on systemd's.\n"
	"\n"
	"  -c FILE      settings, KEY=value lines; the environment wins\n"
	"  --help       this text\n"
	"  --version    the version\n"
	"\n"
	"`sandgatectl config --describe` lists the settings. SIGTERM drains and ends,\n"
	"SIGHUP reads the settings again.\n";

static int fail(const struct err *err)
{
	fprintf(stderr, "sandgate: %s\n", err->text);
	return 2;
}

/* 0 to go on, else the exit status plus one. */
static int read_arguments(int argc, char **argv, const char **file)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' },
						 { "version", no_argument, NULL, 'V' },
						 { NULL, 0, NULL, 0 } };
	int o;
	while ((o = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		switch (o) {
		case 'c':
			*file = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		case 'V':
			puts("sandgate " SANDGATE_VERSION);
			return 1;
		default:
			fputs("Try `sandgate --help`.\n", stderr);
			return 3;
		}
	}
	if (optind == argc)
		return 0;
	fprintf(stderr, "sandgate: unexpected argument '%s'\n", argv[optind]);
	return 3;
}

/* Migrates the database and finds out about a bad one before anything is served; no handle stays
 * open across a fork. */
static int check_store(const struct settings *s, struct err *err)
{
	const struct store_config config = { .path = s->db, .slot = -1 };
	struct store *store;
	if (store_open(&store, &config, err) < 0)
		return -1;
	int rc = store_verify(store, err);
	store_free(store);
	return rc;
}

static const char *provider(const struct settings *s)
{
	return s->api_url ? s->api_url : s->domain;
}

static void ready(void *ctx)
{
	const struct settings *s = &((const struct serve_config *)ctx)->settings;
	fprintf(stderr, "sandgate: ready on %s/quick.sock and exec.sock; sandboxes of %s\n",
		s->state_dir, provider(s));
}

static void ready_on_passed(void *ctx)
{
	const struct settings *s = &((const struct serve_config *)ctx)->settings;
	fprintf(stderr, "sandgate: ready on the sockets of systemd; sandboxes of %s\n",
		provider(s));
}

static int run(struct serve_config *config, struct err *err)
{
	const struct settings *s = &config->settings;
	char quick[PATH_MAX], exec[PATH_MAX];
	const struct prefork_app app = serve_app(config);
	snprintf(quick, sizeof quick, "%s/quick.sock", s->state_dir);
	snprintf(exec, sizeof exec, "%s/exec.sock", s->state_dir);
	const bool passed = sockets_passed();
	const struct prefork_config prefork = {
		.socket = { passed ? NULL : quick, passed ? NULL : exec },
		.group = s->socket_group,
		.size = { (int)s->quick_workers, (int)s->exec_workers },
		.exec_start = s->exec_workers < EXEC_START ? (int)s->exec_workers : EXEC_START,
		.drain_secs = (int)s->drain,
		.app = &app,
		.ready = passed ? ready_on_passed : ready,
	};
	return prefork_run(&prefork, err);
}

int main(int argc, char **argv)
{
	struct serve_config config = { .file = NULL };
	struct err err = { 0 };
	int stop = read_arguments(argc, argv, &config.file);
	if (stop)
		return stop - 1;
	umask(0077);
	if (settings_load(&config.settings, config.file, &err) < 0)
		return fail(&err);
	log_set_level(config.settings.log_level);
	int status = 0;
	if (routes_check(&err) < 0 || check_store(&config.settings, &err) < 0 ||
	    run(&config, &err) < 0)
		status = fail(&err);
	settings_free(&config.settings);
	return status;
}
