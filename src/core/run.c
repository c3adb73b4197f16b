#include "core/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "core/deadman.h"
#include "core/running.h"
#include "e2b/run.h"
#include "store/leases.h"

/* What root's tools make for the gateway has to be the gateway's. Its user can put a link in the
 * place meanwhile, which must not be followed. */
static int give_to_owner(const char *path, const char *folder, struct err *err)
{
	struct stat st;
	_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || stat(folder, &st) < 0 || fchown(fd, st.st_uid, st.st_gid) < 0)
		return err_errno(err, "%s cannot be given away", path);
	return 0;
}

int run_events_dir(const struct settings *s, char *out, size_t cap, struct err *err)
{
	if ((size_t)snprintf(out, cap, "%s/events", s->state_dir) >= cap)
		return err_set(err, ERR_INVALID, "SANDGATE_STATE_DIR is too long");
	if (mkdir(out, 0700) < 0)
		return errno == EEXIST ? 0 : err_errno(err, "%s", out);
	return geteuid() == 0 ? give_to_owner(out, s->state_dir, err) : 0;
}

/* ---- after it was given up ---- */

/* A context that counts from the beginning is a new one: the provider has replaced it. */
static int compare_count(void *ctx, const struct e2b_event *e)
{
	struct running *r = ctx;
	if (e->type == E2B_COUNT && e->count <= r->count)
		r->out->restarted = true;
	return 0;
}

/* Whether code that had waited for its turn runs now, which it could not in a stuck context. */
static bool has_moved_on(struct running *r)
{
	const int64_t limit = clock_real_us() - (clock_mono_us() - running_limit(r)),
		      since = r->given_up ? r->given_up_at : limit;
	struct err ignored;
	bool began = false;
	return execution_began_since(r->c->store, r->req->row->id, r->out->id, since, &began,
				     &ignored) == 0 &&
	       began;
}

static int stop_when_moved_on(void *ctx, unsigned ready)
{
	(void)ready;
	return has_moved_on(ctx) ? -1 : 0;
}

/* The connection was closed, which interrupts the code. A context that does not come back from that
 * is restarted; if that fails too, the sandbox is ended rather than left to burn. */
static void probe(struct running *r)
{
	const struct e2b_code pass = { .code = "pass", .ncode = 4 };
	struct err err;
	bool killed;
	struct e2b_wait wait = { .deadline_mono_us = clock_mono_us() + PROBE_SECS * SECOND_US,
				 .tick = stop_when_moved_on,
				 .ctx = r };
	if (e2b_run_code(r->c->e2b, &r->sandbox, &pass, compare_count, r, &wait, &err) == 0 ||
	    has_moved_on(r))
		return;
	wait = (struct e2b_wait){
		.deadline_mono_us = clock_mono_us() + r->c->settings->provider_timeout * SECOND_US
	};
	r->out->restarted = true;
	if (e2b_restart_context(r->c->e2b, &r->sandbox, NULL, "python", &wait, &err) < 0)
		session_end(r->c, r->req->row, END_CANCEL_KILL, &killed, &err);
}

/* Nobody watches the command any more. If this fails, the provider's own timeout ends it later. */
static void kill_command(struct running *r)
{
	struct err ignored;
	int64_t patience = r->c->settings->provider_timeout * SECOND_US;
	struct e2b_wait wait = { .deadline_mono_us = clock_mono_us() + patience };
	e2b_signal(r->c->e2b, &r->sandbox, r->pid, SIGKILL, &wait, &ignored);
}

/* A sandbox that is gone or going takes what ran in it along. */
static void clear_up(struct running *r)
{
	const enum run_end end = r->out->end;
	if (end == RUN_STOPPED || end == RUN_EXPIRED || end == RUN_LOST)
		return;
	if (r->pid)
		kill_command(r);
	else if ((end == RUN_TIMED_OUT || end == RUN_LEFT) && r->ran && !r->req->argv)
		probe(r);
}

/* ---- the end ---- */

/* What a broken or refused call means for the run. */
static enum run_end judge(struct running *r, const struct err *err)
{
	const struct e2b_last last = *e2b_last(r->c->e2b);
	struct err ignored;
	enum run_end end;
	bool lost = false;
	if (r->given_up)
		return r->why;
	if (err->code == ERR_TIMEOUT && r->began && clock_mono_us() >= running_limit(r))
		return RUN_TIMED_OUT;
	const bool cut = err->code == ERR_UNKNOWN_OUTCOME;
	const bool gone = err->code == ERR_NOT_FOUND && last.why == E2B_WHY_NO_SANDBOX;
	/* Code that waits is interrupted; what was sent otherwise may run though nobody said so. */
	const bool late = err->code == ERR_TIMEOUT && (r->req->argv || !r->accepted) &&
			  last.why != E2B_WHY_NOT_SENT;
	const bool ran = r->ran || (r->asked && (cut || late));
	if ((gone || cut || ran) && session_check(r->c, r->req->row, &lost, &ignored) == 0 &&
	    lost) {
		r->out->not_run = !ran;
		/* Who ended it is in its row: it may have been one of us. */
		return running_sandbox_ended(r, &end) ? end : RUN_LOST;
	}
	r->out->no_interpreter = !ran && !r->req->argv && last.why == E2B_WHY_PORT_CLOSED;
	return ran ? RUN_UNKNOWN : RUN_REFUSED;
}

/* The row and the lease as one change: each change costs as much as the run's other work. */
static int end_rows(struct running *r, const struct execution_end *end, struct err *err)
{
	if (store_begin(r->c->store, err) < 0)
		return -1;
	int rc = execution_finish(r->c->store, end, err);
	if (rc == 0)
		rc = lease_release(r->c->store, end->id, err);
	return store_end(r->c->store, rc, err);
}

static void finish(struct running *r)
{
	struct run_report *out = r->out;
	struct err ignored;
	out->state = report_state(out);
	record_close(&r->record);
	const struct execution_end end = {
		.id = out->id,
		.state = out->state,
		.has_exit_code = out->has_exit_code,
		.exit_code = out->exit_code,
		.stdout_bytes = out->stdout_bytes,
		.stderr_bytes = out->stderr_bytes,
		.error_name = report_error_name(out),
		.idle_us = r->c->settings->idle_timeout * SECOND_US,
	};
	/* Somebody who took us for dead may have ended the row. */
	if (end_rows(r, &end, &ignored) < 0)
		lease_release(r->c->store, out->id, &ignored);
}

/* ---- the beginning ---- */

/* The row keeps the beginning of this. */
static void join(struct buf *out, const char *const *argv)
{
	for (size_t i = 0; argv[i] && out->len < EXECUTION_INPUT_MAX; i++) {
		if (i)
			buf_adds(out, " ");
		buf_adds(out, argv[i]);
	}
}

static int begin_rows(struct running *r, const struct execution_start *start, struct err *err)
{
	if (store_begin(r->c->store, err) < 0)
		return -1;
	int rc = execution_begin(r->c->store, start, &r->queued, err);
	if (rc == 0)
		rc = lease_take(r->c->store, start->id, start->sandbox, err);
	return store_end(r->c->store, rc, err);
}

static int begin(struct running *r, struct err *err)
{
	const struct run_request *req = r->req;
	struct err ignored;
	char dir[3000];
	struct buf joined = BUF(16u << 20);
	struct execution_start start = {
		.id = r->out->id,
		.sandbox = req->row->id,
		.kind = req->kind,
		.input = req->argv ? req->input : req->code,
		.input_bytes = req->argv ? req->ninput : req->ncode,
		.request_hash = req->request_hash,
		.idle_us = r->c->settings->idle_timeout * SECOND_US,
	};
	execution_new_id(r->out->id);
	if (req->argv && !req->input) {
		join(&joined, req->argv);
		start.input = joined.p;
		start.input_bytes = joined.len;
	}
	int rc = begin_rows(r, &start, err);
	r->asked_at = clock_mono_us();
	buf_free(&joined);
	if (rc < 0)
		return -1;
	bool has_dir = run_events_dir(r->c->settings, dir, sizeof dir, &ignored) == 0;
	record_open(&r->record, has_dir ? dir : NULL, r->out);
	return 0;
}

static int run_command(struct running *r, struct err *err)
{
	static const struct run_steps none;
	const struct run_steps *steps = r->req->steps ? r->req->steps : &none;
	if (steps->before && steps->before(steps->ctx, r, err) < 0)
		return -1;
	if (running_command(r, err) < 0)
		return -1;
	return steps->after && r->out->exit_code == 0 ? steps->after(steps->ctx, r, err) : 0;
}

int run_execution(struct core *c, const struct run_request *req, struct run_report *out,
		  struct err *err)
{
	struct err ignored, why;
	*out = (struct run_report){ .end = RUN_ENDED };
	struct running r = { .c = c, .req = req, .out = out };
	if (begin(&r, err) < 0)
		return -1;
	session_address(req->row, &r.sandbox);
	/* It is the provider's own switch; the run itself will tell if all is not well. */
	deadman_renew(c, req->row, running_needs(&r), &ignored);
	running_watch(&r);
	int rc = req->argv ? run_command(&r, &why) : running_code(&r, &why);
	if (rc < 0) {
		out->end = judge(&r, &why);
		if (err)
			*err = why;
	}
	out->ms = r.began ? (clock_mono_us() - r.began) / 1000 : 0;
	clear_up(&r);
	finish(&r);
	return 0;
}
