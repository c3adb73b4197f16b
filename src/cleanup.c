/* sandgate-cleanup: ends what has expired, finds what was lost or forgotten, deletes old event
 * logs. A systemd timer runs it every minute; where there is none, --every does. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "core/pass.h"
#include "core/run.h"

enum status {
	STATUS_DONE = 0,
	STATUS_LEFT = 1,    /* something is left for the next pass */
	STATUS_CANNOT = 2,  /* the command line, a setting, the database */
	STATUS_NOT_NOW = 3, /* on purpose: another pass runs, or the clock was set */
};

static const char usage[] =
	"Usage: sandgate-cleanup [-c FILE] [--dry-run | --every SECS]\n"
	"\n"
	"Ends sandboxes past their limits, retries kills, finds what the provider has lost and\n"
	"what nobody knows, deletes old event logs and checkpoints the database: one pass.\n"
	"\n"
	"  -c FILE        settings, KEY=value lines; the environment wins\n"
	"  --dry-run      print what a pass would do, as JSON, and change nothing\n"
	"  --every SECS   one pass after the other, with this pause, until SIGTERM\n"
	"  --help         this text\n"
	"  --version      the version\n"
	"\n"
	"Exit status: 0 done, 1 something is left for the next pass, 2 the command line, a "
	"setting\n"
	"or the database is wrong, 3 nothing was done because another pass is running or the\n"
	"machine's clock was set.\n";

struct options {
	const char *file;
	bool dry_run;
	long every; /* seconds; 0: one pass */
};

static enum status cannot(const struct err *err)
{
	fprintf(stderr, "sandgate-cleanup: %s\n", err->text);
	/* A database that stayed locked is there again for the next pass. */
	return err->code == ERR_UNAVAILABLE ? STATUS_LEFT : STATUS_CANNOT;
}

/* ---- telling ---- */

/* error="..." behind a line, or nothing. */
#define ERROR_TEXT (LOG_PLAIN + 16)
static const char *error_text(char out[ERROR_TEXT], const struct err *err)
{
	char plain[LOG_PLAIN];
	out[0] = '\0';
	if (err)
		snprintf(out, ERROR_TEXT, " error=\"%s\"", log_plain(plain, err->text));
	return out;
}

static void log_call(void *ctx, const struct e2b_last *last, const struct err *err)
{
	char error[ERROR_TEXT];
	(void)ctx;
	log_line(LOG_INFO, "sandbox=%s op=\"e2b %s\" status=%d ms=%.1f tries=%d%s", last->sandbox,
		 last->what ? last->what : "none", last->status, (double)last->us / 1000,
		 last->tries, error_text(error, err));
}

static void log_event(void *ctx, const struct pass_event *e)
{
	char user[LOG_PLAIN], error[ERROR_TEXT];
	(void)ctx;
	if (e->deed == PASS_DELETE_LOG && !e->failed)
		return; /* the summary has their number */
	log_line(e->failed ? LOG_WARN : LOG_INFO,
		 "op=%s sandbox=%s user=\"%s\" session=%s execution=%s reason=%s%s",
		 pass_deed_name(e->deed), e->sandbox_id, log_plain(user, e->owner), e->session_id,
		 e->execution_id, e->reason, error_text(error, e->failed));
}

static void log_summary(const struct pass_report *r, int64_t us)
{
	char error[ERROR_TEXT];
	log_line(r->left ? LOG_WARN : LOG_INFO,
		 "op=cleanup expired=%zu given_up=%zu killed=%zu lost=%zu orphans_seen=%zu "
		 "orphans_killed=%zu logs_deleted=%zu log_bytes=%lld left=%zu clock_jumped=%s "
		 "checkpoint=%s ms=%.1f%s",
		 r->done[PASS_EXPIRE], r->done[PASS_GIVE_UP], r->done[PASS_KILL],
		 r->done[PASS_LOSE], r->done[PASS_SEE_ORPHAN], r->done[PASS_KILL_ORPHAN],
		 r->done[PASS_DELETE_LOG], (long long)r->log_bytes, r->left,
		 r->clock_jumped ? "yes" : "no", r->checkpointed ? "whole" : "part",
		 (double)us / 1000, error_text(error, r->left ? &r->why : NULL));
}

static void add_text(struct json_object *o, const char *key, const char *text)
{
	if (*text)
		json_object_object_add(o, key, json_object_new_string(text));
}

/* ctx is the array of what would be done. */
static void list_event(void *ctx, const struct pass_event *e)
{
	struct json_object *o = json_object_new_object();
	add_text(o, "do", pass_deed_name(e->deed));
	add_text(o, "sandbox_id", e->sandbox_id);
	add_text(o, "user", e->owner);
	add_text(o, "session_id", e->session_id);
	add_text(o, "execution_id", e->execution_id);
	add_text(o, "reason", e->reason);
	if (e->failed)
		add_text(o, "error", e->failed->text);
	json_object_array_add(ctx, o);
}

static void print_plan(const struct pass_report *r, struct json_object *would)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "dry_run", json_object_new_boolean(true));
	json_object_object_add(o, "clock_jumped", json_object_new_boolean(r->clock_jumped));
	json_object_object_add(o, "would", json_object_get(would));
	json_object_object_add(o, "log_bytes", json_object_new_int64(r->log_bytes));
	json_object_object_add(o, "error", r->left ? json_object_new_string(r->why.text) : NULL);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

/* ---- one pass ---- */

/* One pass at a time: the lock is on the folder of event logs and goes with the process. */
static int lock(const struct settings *s, int *out, bool *ours, struct err *err)
{
	char dir[3000];
	if (run_events_dir(s, dir, sizeof dir, err) < 0)
		return -1;
	_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, "%s", dir);
	*ours = flock(fd, LOCK_EX | LOCK_NB) == 0;
	if (!*ours && errno != EWOULDBLOCK)
		return err_errno(err, "%s cannot be locked", dir);
	*out = steal_fd(&fd);
	return 0;
}

static enum status status_of(const struct pass_report *r)
{
	if (r->clock_jumped)
		return STATUS_NOT_NOW;
	return r->left ? STATUS_LEFT : STATUS_DONE;
}

static int run_pass(struct core *core, bool dry_run, struct pass_report *report, struct err *err)
{
	struct json_object *would = json_object_new_array();
	const struct pass_config config = { .core = core,
					    .dry_run = dry_run,
					    .tell = dry_run ? list_event : log_event,
					    .ctx = would };
	const int64_t since = clock_mono_us();
	int rc = pass_run(&config, report, err);
	if (rc == 0 && dry_run)
		print_plan(report, would);
	else if (rc == 0)
		log_summary(report, clock_mono_us() - since);
	json_object_put(would);
	return rc;
}

static void free_store(struct store **s)
{
	store_free(*s);
}

static void free_e2b(struct e2b **c)
{
	e2b_free(*c);
}

static enum status work(const struct settings *s, bool dry_run)
{
	const struct store_config where = { .path = s->db, .slot = -1 };
	const struct e2b_config provider = core_provider(s);
	_cleanup_(free_store) struct store *store = NULL;
	_cleanup_(free_e2b) struct e2b *e2b = NULL;
	struct pass_report report;
	struct err err;
	if (store_open(&store, &where, &err) < 0 || e2b_new(&e2b, &provider, &err) < 0)
		return cannot(&err);
	if (!dry_run)
		e2b_on_done(e2b, log_call, NULL);
	struct core core = core_of_tool(s, store, e2b);
	return run_pass(&core, dry_run, &report, &err) < 0 ? cannot(&err) : status_of(&report);
}

static enum status pass(const struct settings *s, bool dry_run)
{
	_close_ int held = -1;
	struct err err;
	bool ours = true;
	if (!dry_run && lock(s, &held, &ours, &err) < 0)
		return cannot(&err);
	if (ours)
		return work(s, dry_run);
	log_line(LOG_INFO, "op=cleanup skipped=\"another pass is running\"");
	return STATUS_NOT_NOW;
}

/* ---- the program ---- */

/* Only between two passes: what is under way is finished first. */
static bool told_to_stop(const sigset_t *signals, long secs)
{
	const struct timespec pause = { .tv_sec = secs };
	return sigtimedwait(signals, NULL, &pause) > 0;
}

static enum status repeat(const struct settings *s, long secs)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fprintf(stderr, "sandgate-cleanup: ready, a pass every %ld s\n", secs);
	do
		pass(s, false);
	while (!told_to_stop(&signals, secs));
	return STATUS_DONE;
}

static bool read_secs(const char *text, long *out)
{
	char *end;
	errno = 0;
	*out = strtol(text, &end, 10);
	return !errno && end != text && !*end && *out >= 1 && *out <= 86400;
}

/* 0 to go on, else the exit status plus one. */
static int read_arguments(int argc, char **argv, struct options *o)
{
	static const struct option options[] = { { "dry-run", no_argument, NULL, 'd' },
						 { "every", required_argument, NULL, 'e' },
						 { "help", no_argument, NULL, 'h' },
						 { "version", no_argument, NULL, 'V' },
						 { NULL, 0, NULL, 0 } };
	int got;
	while ((got = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		switch (got) {
		case 'c':
			o->file = optarg;
			break;
		case 'd':
			o->dry_run = true;
			break;
		case 'e':
			if (read_secs(optarg, &o->every))
				break;
			fputs("sandgate-cleanup: --every takes seconds from 1 to 86400\n", stderr);
			return STATUS_CANNOT + 1;
		case 'h':
			fputs(usage, stdout);
			return STATUS_DONE + 1;
		case 'V':
			puts("sandgate-cleanup " SANDGATE_VERSION);
			return STATUS_DONE + 1;
		default:
			fputs("Try `sandgate-cleanup --help`.\n", stderr);
			return STATUS_CANNOT + 1;
		}
	}
	if (optind < argc)
		fprintf(stderr, "sandgate-cleanup: unexpected argument '%s'\n", argv[optind]);
	else if (o->dry_run && o->every)
		fputs("sandgate-cleanup: --dry-run and --every do not go together\n", stderr);
	else
		return 0;
	return STATUS_CANNOT + 1;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct settings settings;
	struct err err;
	int stop = read_arguments(argc, argv, &o);
	if (stop)
		return stop - 1;
	umask(0077);
	signal(SIGPIPE, SIG_IGN);
	if (settings_load(&settings, o.file, &err) < 0)
		return (int)cannot(&err);
	log_set_level(settings.log_level);
	enum status status = o.every ? repeat(&settings, o.every) : pass(&settings, o.dry_run);
	settings_free(&settings);
	return (int)status;
}
