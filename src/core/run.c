#include "core/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "core/deadman.h"
#include "core/running.h"
#include "e2b/contexts.h"
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
	return execution_began_since(r->c->store, r->req->row->id, r->req->context_id, r->out->id,
				     since, &began, &ignored) == 0 &&
	       began;
}

static int stop_when_moved_on(void *ctx, unsigned ready)
{
	(void)ready;
	return has_moved_on(ctx) ? -1 : 0;
}

/* What does nothing: "pass" means that to Python only. */
static const char *idle_code(const char *language)
{
	return !language || !strcmp(language, "python") ? "pass" : "";
}

/* The connection was closed, which interrupts the code. A context that does not come back from that
 * is restarted; if that fails too, the sandbox is ended rather than left to burn. */
static void probe(struct running *r)
{
	const struct run_request *req = r->req;
	const struct e2b_code pass = { .code = idle_code(req->language),
				       .ncode = strlen(idle_code(req->language)),
				       .language = req->language,
				       .context_id = req->context_id };
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
	if (e2b_context_restart(r->c->e2b, &r->sandbox, req->context_id,
				req->language ? req->language : "python", &wait, &err) < 0) {
		r->out->killed = true;
		session_end(r->c, r->req->row, END_CANCEL_KILL, &killed, &err);
	}
}

static int ignore_event(void *ctx, const struct e2b_event *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

/* A signal to the command alone would leave what it has started. setsid(1) runs it as the leader of
 * a group, or has a child that is one where it was a leader itself. (No "--": to dash that is a
 * number, and a bad one ends the script.) */
static void end_group(struct running *r, const struct e2b_wait *wait)
{
	static const char script[] =
		"groups=\"$1 $(cat /proc/$1/task/$1/children 2>/dev/null)\"\n"
		"each() { for g in $groups; do kill \"$1\" \"-$g\" 2>/dev/null; done; }\n"
		"alive() { for g in $groups; do kill -0 \"-$g\" 2>/dev/null && return; done; "
		"return 1; }\n"
		"each -TERM\n"
		"n=0; while [ $n -lt 100 ] && alive; do sleep 0.02; n=$((n + 1)); done\n"
		"each -KILL\n";
	char pid[16];
	struct err ignored;
	const char *const argv[] = { "/bin/sh", "-c", script, "sh", pid, NULL };
	const struct e2b_command what = { .argv = argv, .timeout_ms = 10000 };
	snprintf(pid, sizeof pid, "%d", r->pid);
	e2b_run_command(r->c->e2b, &r->sandbox, &what, ignore_event, NULL, wait, &ignored);
}

/* Nobody watches the command any more. If this fails, the provider's own timeout ends it later. */
static void kill_command(struct running *r)
{
	struct err ignored;
	int64_t patience = r->c->settings->provider_timeout * SECOND_US;
	struct e2b_wait wait = { .deadline_mono_us = clock_mono_us() + patience };
	if (r->req->own_group)
		end_group(r, &wait);
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
	else if ((end == RUN_TIMED_OUT || end == RUN_LEFT || end == RUN_CANCELLED) && r->ran &&
		 !r->req->argv)
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
	const bool known =
		(gone || cut || ran) && session_check(r->c, r->req->row, &lost, &ignored) == 0;
	/* One that had been paused goes on again. */
	r->out->not_run = known && !ran && (lost || gone);
	/* Who ended it is in its row: it may have been one of us. */
	if (known && lost)
		return running_sandbox_ended(r, &end) ? end : RUN_LOST;
	r->out->no_interpreter = !ran && !r->req->argv && last.why == E2B_WHY_PORT_CLOSED;
	r->out->no_context = !ran && !gone &&
			     ((r->req->context_id && err->code == ERR_NOT_FOUND) ||
			      (r->req->language && err->code == ERR_INVALID));
	r->out->no_command = !ran && r->req->kind == EXECUTION_COMMAND && err->code == ERR_INVALID;
	return ran ? RUN_UNKNOWN : RUN_REFUSED;
}

/* Where nothing ran, or the sandbox is gone, nobody can say. */
static void close_record(struct running *r)
{
	const enum run_end end = r->out->end;
	const bool alive =
		end == RUN_ENDED || end == RUN_TIMED_OUT || end == RUN_CANCELLED || end == RUN_LEFT;
	struct json_object *files = NULL;
	size_t n = 0;
	if (alive && r->ran && !r->out->killed)
		files = changes_end(r->c, r->out->id, r->req->row->id, &r->sandbox, &r->changes,
				    &n);
	record_close(&r->record, files, n);
	json_object_put(files);
}

/* Those who follow it, and those who wait for its end. */
static void wake_all(struct running *r)
{
	char key[SESSION_KEY];
	session_key(key, r->req->row->owner, r->req->row->session_id);
	r->c->wake(r->c->ctx, key);
	r->c->wake(r->c->ctx, r->out->id);
}

/* The row and the lease as one change: each change costs as much as the run's other work. */
static int end_rows(struct running *r, const struct execution_end *end, struct err *err)
{
	if (store_begin(r->c->store, err) < 0)
		return -1;
	int rc = execution_finish(r->c->store, end, err);
	if (rc == 0 && r->req->kind == EXECUTION_INSTALL)
		rc = execution_spoil_watch(r->c->store, r->req->row->id, err);
	if (rc == 0)
		rc = lease_release(r->c->store, end->id, err);
	return store_end(r->c->store, rc, err);
}

static void finish(struct running *r)
{
	struct run_report *out = r->out;
	struct err ignored;
	out->state = report_state(out);
	/* Who follows it sees from its row that it has ended: by then all is in the log. */
	close_record(r);
	const struct execution_end end = {
		.id = out->id,
		.state = out->state,
		.has_exit_code = out->has_exit_code,
		.exit_code = out->exit_code,
		.stdout_bytes = out->stdout_bytes,
		.stderr_bytes = out->stderr_bytes,
		.error_name = report_error_name(out),
		.idle_us = r->c->settings->idle_timeout * SECOND_US,
		.cancelled_by = report_cancelled_by(out),
		.events = out->events,
		.event_bytes = out->event_bytes,
	};
	/* Somebody who took us for dead may have ended the row. */
	if (end_rows(r, &end, &ignored) < 0)
		lease_release(r->c->store, out->id, &ignored);
	wake_all(r);
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

static void note_queue(struct running *r)
{
	char json[64];
	struct err ignored;
	int64_t ahead = 1;
	execution_ahead(r->c->store, r->out->id, &ahead, &ignored);
	snprintf(json, sizeof json, "{\"position\":%lld,\"wait_secs\":0}", (long long)ahead);
	record_note(&r->record, EVENT_QUEUED, json);
}

static int begin_rows(struct running *r, const struct execution_start *start, struct err *err)
{
	if (store_begin(r->c->store, err) < 0)
		return -1;
	int rc = execution_begin(r->c->store, start, &r->queued, err);
	if (rc == 0)
		rc = lease_take(r->c->store, start->id, start->sandbox, err);
	if (rc == 0 && start->kind != EXECUTION_INSTALL)
		rc = changes_claim(r->c, start->id, start->sandbox, &r->changes, err);
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
		.context_id = req->context_id ? req->context_id : req->language,
		.lost_reason = req->lost_reason,
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
	record_open(&r->record, has_dir ? dir : NULL, req->audience ? &req->audience->tap : NULL,
		    r->out);
	if (req->audience)
		req->audience->begun(req->audience->ctx, r->out->id);
	if (r->queued)
		note_queue(r);
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
	if (r->out->exit_code != 0 && steps->failed)
		steps->failed(steps->ctx, r);
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
	if (req->kind != EXECUTION_INSTALL)
		changes_begin(c, out->id, req->row->id, &r.sandbox, &r.changes);
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
