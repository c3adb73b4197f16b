#include "engine/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/context.h"
#include "engine/launch.h"
#include "engine/netchange.h"
#include "engine/network.h"
#include "engine/pool.h"
#include "engine/ports.h"
#include "engine/proc.h"
#include "engine/rootfs.h"
#include "engine/watcher.h"

#define START_SECS 30 /* a sandbox that is not ready by then is given up */
#define MB         (1024ull * 1024)

/* ---- lists ---- */

static void push(struct sandbox **list, struct sandbox *s)
{
	s->prev = NULL;
	s->next = *list;
	if (*list)
		(*list)->prev = s;
	*list = s;
}

static void take_out(struct sandbox **list, struct sandbox *s)
{
	*(s->prev ? &s->prev->next : list) = s->next;
	if (s->next)
		s->next->prev = s->prev;
}

struct sandbox *sandbox_find(struct engine *e, const char *id)
{
	size_t n = strcspn(id, "-");
	for (struct sandbox *s = e->sandboxes; s; s = s->next)
		if (s->state != SANDBOX_STARTING && strlen(s->id) == n && !strncmp(s->id, id, n))
			return s;
	return NULL;
}

int sandbox_count(const struct engine *e, enum sandbox_state state)
{
	int n = 0;
	for (const struct sandbox *s = e->sandboxes; s; s = s->next)
		n += s->state == state;
	return n;
}

/* What is not worth a line to most. */
static enum log_level level_of(const struct sandbox *s)
{
	return s->config.probe || s->config.pooled ? LOG_DEBUG : LOG_INFO;
}

/* ---- ending ---- */

static void free_sandbox(struct sandbox *s)
{
	struct engine *e = s->engine;
	take_out(&e->ending, s);
	cgroup_free(&s->group);
	close_fd(&s->gate);
	e->slots[s->slot] = 0;
	json_object_put(s->config.metadata);
	json_object_put(s->config.envs);
	logs_free(s->log);
	json_object_put(s->config.network);
	free(s);
	if (e->stopping && !e->ending && !e->sandboxes && !e->pooled)
		loop_stop(e->loop);
}

/* Once: made is the sandbox, or NULL when it has come to nothing. */
static void tell_asker(struct sandbox *s, struct sandbox *made)
{
	void (*created)(void *, struct sandbox *, const struct err *) = s->created;
	struct err why;
	s->created = NULL;
	err_set(&why, ERR_INTERNAL, "%s", s->failure[0] ? s->failure : "the sandbox ended");
	if (created)
		created(s->created_ctx, made, made ? NULL : &why);
}

/* One can still read why it ended. */
static void keep_log(struct sandbox *s)
{
	logs_add(s->log, s->end_asked ? LOGS_INFO : LOGS_ERROR, "Sandbox ended", "reason",
		 s->end_reason[0] ? s->end_reason : "its processes ended by themselves", NULL);
	logs_keep(&s->engine->logs, steal_ptr(s->log));
}

void sandbox_end(struct sandbox *s)
{
	struct engine *e = s->engine;
	if (s->state == SANDBOX_ENDED)
		return;
	s->state = SANDBOX_ENDED;
	take_out(s->config.pooled ? &e->pooled : &e->sandboxes, s);
	push(&e->ending, s);
	memory_unwatch(s);
	timer_stop(&s->end_timer);
	timer_stop(&s->start_timer);
	watch_del(&s->net);
	close_fd(&s->net_fd);
	procs_end(s);
	watchers_end(s);
	ports_cut(s);
	netchange_end(s);
	contexts_end(s);
	http_cut(e->http, s->serial);
	agent_free(s->agent);
	s->agent = NULL;
	/* The agent's exit takes every process of its pid namespace along; frozen ones die too. */
	if (s->pid > 0)
		kill(s->pid, SIGKILL);
	if (s->slirp > 0)
		kill(s->slirp, SIGKILL);
	cgroup_kill(&s->group);
	log_line(level_of(s), "op=end sandbox=%s", s->id);
	if (s->log)
		keep_log(s);
	if (s->config.pooled)
		pool_changed(e->pool, s);
	tell_asker(s, NULL);
	if (!s->pid && !s->slirp)
		free_sandbox(s);
}

void sandbox_end_because(struct sandbox *s, const char *why)
{
	snprintf(s->end_reason, sizeof s->end_reason, "%s", why);
	s->end_asked = true;
	sandbox_end(s);
}

void sandbox_end_all(struct engine *e)
{
	while (e->sandboxes)
		sandbox_end(e->sandboxes);
	while (e->pooled)
		sandbox_end(e->pooled);
	if (!e->ending)
		loop_stop(e->loop);
}

static bool reaped_in(struct sandbox *list, pid_t pid)
{
	for (struct sandbox *s = list; s; s = s->next) {
		if (s->slirp == pid) {
			s->slirp = 0; /* the network is gone, the sandbox is not */
			log_line(LOG_WARN, "op=net sandbox=%s error=\"slirp4netns ended\"", s->id);
			logs_add(s->log, LOGS_WARN, "The network is gone", NULL);
			if (s->config.pooled) /* nobody shall be given such a one */
				sandbox_end(s);
			return true;
		}
		if (s->pid == pid) {
			s->pid = 0;
			sandbox_end(s);
			return true;
		}
	}
	return false;
}

void sandbox_reaped(struct engine *e, pid_t pid)
{
	struct sandbox *next;
	for (struct sandbox *s = e->ending; s; s = next) {
		next = s->next;
		if (s->pid == pid)
			s->pid = 0;
		else if (s->slirp == pid)
			s->slirp = 0;
		else
			continue;
		if (!s->pid && !s->slirp)
			free_sandbox(s);
		return;
	}
	if (!reaped_in(e->sandboxes, pid))
		reaped_in(e->pooled, pid);
}

/* ---- time ---- */

static void on_end_time(void *ctx)
{
	struct sandbox *s = ctx;
	struct err err;
	if (s->config.auto_pause && sandbox_pause(s, &err) == 0)
		return;
	sandbox_end_because(s, "its time was up");
}

static void set_end(struct sandbox *s, int64_t secs)
{
	s->end_real = clock_real_us() + secs * SECOND_US;
	timer_at(&s->end_timer, s->engine->loop, clock_mono_us() + secs * SECOND_US, on_end_time,
		 s);
}

int sandbox_set_timeout(struct sandbox *s, int secs, bool extend_only, struct err *err)
{
	int64_t now = clock_real_us();
	int64_t left = s->engine->opt->max_lifetime - (now - s->started_real) / SECOND_US;
	if (left <= 0)
		return err_set(err, ERR_INVALID, "Max instance length exceeded");
	if (secs < left)
		left = secs;
	if (extend_only && now + left * SECOND_US <= s->end_real)
		return 0;
	set_end(s, left);
	logs_add(s->log, LOGS_INFO, "Timeout set", "endAt",
		 clock_rfc3339((char[CLOCK_TEXT]){ 0 }, s->end_real), NULL);
	return 0;
}

/* ---- pause ---- */

/* Under a freezer the whole sandbox stands still, the agent too. Without one the agent stops the
 * others. */
static int set_frozen(struct sandbox *s, bool frozen)
{
	if (cgroup_can_freeze(&s->group))
		return cgroup_freeze(&s->group, frozen);
	struct agent_msg msg = { .op = frozen ? AGENT_STOP : AGENT_CONT };
	return agent_call(s->agent, msg, NULL, 0, NULL, 0, NULL, NULL) ? 0 : -1;
}

int sandbox_pause(struct sandbox *s, struct err *err)
{
	if (s->state != SANDBOX_RUNNING)
		return err_set(err, ERR_CONFLICT,
			       "Error pausing sandbox - sandbox '%s' is already paused", s->id);
	int most = SANDBOX_PAUSED_MAX * s->engine->opt->max_sandboxes;
	if (sandbox_count(s->engine, SANDBOX_PAUSED) >= most)
		return err_set(err, ERR_LIMIT, "Error pausing sandbox - %d sandboxes are paused",
			       most);
	if (set_frozen(s, true) < 0)
		return err_errno(err, "Error pausing sandbox");
	s->state = SANDBOX_PAUSED;
	timer_stop(&s->end_timer);
	procs_cut(s);
	procs_paused(s);
	watchers_end(s);
	ports_cut(s);
	contexts_cut(s);
	http_cut(s->engine->http, s->serial);
	log_line(LOG_INFO, "op=pause sandbox=%s", s->id);
	logs_add(s->log, LOGS_INFO, "Sandbox paused", NULL);
	return 0;
}

static int check_room(struct engine *e, struct err *err)
{
	int n = sandbox_count(e, SANDBOX_RUNNING) + sandbox_count(e, SANDBOX_STARTING);
	if (n < e->opt->max_sandboxes)
		return 0;
	return err_set(
		err, ERR_LIMIT,
		"you have reached the maximum number of concurrent E2B sandboxes (%d). If you need "
		"more, please visit 'https://e2b.dev/docs/billing'",
		e->opt->max_sandboxes);
}

int sandbox_resume(struct sandbox *s, int secs, struct err *err)
{
	if (s->state != SANDBOX_PAUSED)
		return err_set(err, ERR_CONFLICT, "Sandbox %s is already running", s->id);
	if (check_room(s->engine, err) < 0)
		return -1;
	if (memory_full(s->engine, err)) {
		pool_drain(s->engine->pool);
		return -1;
	}
	if (set_frozen(s, false) < 0)
		return err_errno(err, "Error resuming sandbox");
	s->state = SANDBOX_RUNNING;
	/* A resumed sandbox begins a new continuous life. */
	s->started_real = clock_real_us();
	set_end(s, secs < s->engine->opt->max_lifetime ? secs : s->engine->opt->max_lifetime);
	procs_resumed(s);
	contexts_resumed(s);
	log_line(LOG_INFO, "op=resume sandbox=%s", s->id);
	logs_add(s->log, LOGS_INFO, "Sandbox resumed", "endAt",
		 clock_rfc3339((char[CLOCK_TEXT]){ 0 }, s->end_real), NULL);
	return 0;
}

/* ---- starting ---- */

/* From here on it is its client's. */
static void begin_life(struct sandbox *s)
{
	s->state = SANDBOX_RUNNING;
	s->started_real = clock_real_us();
	set_end(s, s->config.timeout);
	log_line(level_of(s), "op=create sandbox=%s template=%s", s->id, s->config.template->name);
	if (s->config.probe)
		return;
	s->log = logs_new(s->id);
	logs_add(s->log, LOGS_INFO, "Sandbox created", "template", s->config.template->name,
		 "endAt", clock_rfc3339((char[CLOCK_TEXT]){ 0 }, s->end_real), NULL);
}

static void maybe_running(struct sandbox *s)
{
	if (s->state != SANDBOX_STARTING || !s->agent_ready || !s->net_ready)
		return;
	timer_stop(&s->start_timer);
	s->state = SANDBOX_READY;
	eventfd_write(s->gate, 1);
	if (!s->config.pooled)
		begin_life(s);
	if (s->config.template->start)
		proc_start_command(s, s->config.template->start);
	if (s->config.pooled)
		pool_changed(s->engine->pool, s);
	tell_asker(s, s);
}

static void on_failed(void *ctx, const char *why)
{
	struct sandbox *s = ctx;
	snprintf(s->failure, sizeof s->failure, "%s", why);
	log_line(LOG_ERROR, "op=create sandbox=%s error=\"%s\"", s->id, s->failure);
}

static void on_net(void *ctx, uint32_t events)
{
	struct sandbox *s = ctx;
	char byte;
	(void)events;
	s->net_ready = read(s->net_fd, &byte, 1) == 1;
	watch_del(&s->net);
	close_fd(&s->net_fd);
	if (s->net_ready) {
		maybe_running(s);
		return;
	}
	/* Asked for and not to be had: better no sandbox than one whose downloads fail for no
	 * visible reason. */
	on_failed(s, "slirp4netns did not start");
	sandbox_end(s);
}

static void on_placed(void *ctx)
{
	struct sandbox *s = ctx;
	struct err err = { .text = "no network" };
	if (s->state != SANDBOX_STARTING || s->placed)
		return;
	s->placed = true;
	if (s->config.template->interpreter)
		context_start_default(s); /* a fork takes as long as all the rest */
	if (s->net_ready)
		return;
	if (net_start_slirp(s->pid, &s->slirp, &s->net_fd, &err) < 0 ||
	    watch_add(&s->net, s->engine->loop, s->net_fd, EPOLLIN, on_net, s) < 0) {
		on_failed(s, err.text);
		sandbox_end(s);
	}
}

static void on_ready(void *ctx)
{
	struct sandbox *s = ctx;
	s->agent_ready = true;
	maybe_running(s);
}

static void on_exited(void *ctx, uint32_t id, int status)
{
	struct sandbox *s = ctx;
	if (!procs_exited(s, id, status))
		contexts_exited(s, id);
}

static void on_lost(void *ctx)
{
	sandbox_end(ctx);
}

static const struct agent_events agent_events = {
	.placed = on_placed,
	.ready = on_ready,
	.failed = on_failed,
	.exited = on_exited,
	.lost = on_lost,
};

static void on_start_time(void *ctx)
{
	struct sandbox *s = ctx;
	snprintf(s->failure, sizeof s->failure, "not ready within %d s", START_SECS);
	sandbox_end(s);
}

struct limits sandbox_limits(const struct sandbox *s)
{
	const struct template *t = s->config.template;
	return (struct limits){ .two_users = s->engine->ground.two_users,
				.data = (uint64_t)t->memory_mb * MB,
				.file_size = (uint64_t)t->disk_mb * MB,
				.nproc = LAUNCH_NPROC };
}

static int start_processes(struct sandbox *s, struct err *err)
{
	struct engine *e = s->engine;
	const struct template *t = s->config.template;
	bool internet = e->internet && s->config.internet;
	struct netrules unreachable = { 0 };
	struct launch l = {
		.agent = e->agent_exe,
		.filter = &e->filter,
		.unreachable = internet ? &unreachable : NULL,
		.slot = s->slot,
		.group = &s->group,
		.limits = sandbox_limits(s),
		.root = { .disk = (uint64_t)t->disk_mb * MB,
			  .two_users = e->ground.two_users,
			  .internet = internet,
			  .wheelhouse = e->opt->wheelhouse != NULL,
			  .driver = kernel_driver,
			  .charts = kernel_charts,
			  .driver_js = kernel_javascript },
	};
	struct cgroup_limits limits;
	int sock;
	memory_limits(t, &limits);
	if (cgroup_make(&s->group, &e->ground.tops, s->id, &limits, err) < 0 ||
	    (internet && network_rules(s->config.network, true, &e->host, &unreachable, err) < 0))
		return -1;
	int rc = launch(&l, &s->pid, &sock, err);
	netrules_free(&unreachable);
	if (rc < 0 || agent_new(&s->agent, e->loop, sock, &agent_events, s, err) < 0 ||
	    memory_watch(s, err) < 0)
		return -1;
	s->networked = internet;
	s->net_ready = !internet;
	return 0;
}

static int free_slot(const struct engine *e)
{
	for (int i = 0; i < e->ground.slots; i++)
		if (!e->slots[i])
			return i;
	return -1;
}

static void set_tokens(struct sandbox *s)
{
	if (s->config.secure)
		id_alnum(s->envd_token, SANDBOX_TOKEN - 1);
	if (s->config.private_traffic)
		id_alnum(s->traffic_token, SANDBOX_TOKEN - 1);
}

static void on_adopted(void *ctx)
{
	tell_asker(ctx, ctx);
}

/* A sandbox of the pool becomes what the client has asked for. */
static void adopt(struct sandbox *s, const struct sandbox_config *config)
{
	struct engine *e = s->engine;
	take_out(&e->pooled, s);
	push(&e->sandboxes, s);
	s->config = *config;
	json_object_get(s->config.metadata);
	json_object_get(s->config.envs);
	set_tokens(s);
	contexts_set_env(s, s->config.envs);
	if (s->state != SANDBOX_READY)
		return; /* its start goes on as if it had been asked for */
	begin_life(s);
	timer_at(&s->start_timer, e->loop, 0, on_adopted, s);
}

int sandbox_create(struct engine *e, const struct sandbox_config *config,
		   void (*created)(void *, struct sandbox *, const struct err *), void *ctx,
		   struct err *err)
{
	if (check_room(e, err) < 0)
		return -1;
	if (!config->probe && memory_full(e, err)) {
		pool_drain(e->pool);
		return -1;
	}
	struct sandbox *s = pool_take(e->pool, config);
	if (s)
		adopt(s, config);
	else
		s = sandbox_prepare(e, config, err);
	if (!s)
		return -1;
	s->created = created;
	s->created_ctx = ctx;
	return 0;
}

struct sandbox *sandbox_prepare(struct engine *e, const struct sandbox_config *config,
				struct err *err)
{
	int slot = free_slot(e);
	if (e->stopping || slot < 0) {
		err_set(err, ERR_UNAVAILABLE, "Failed to place sandbox: %s",
			e->stopping ? "the engine is stopping" : "no ids are free");
		return NULL;
	}
	struct sandbox *s = calloc(1, sizeof *s);
	if (!s) {
		err_set(err, ERR_INTERNAL, "no memory");
		return NULL;
	}
	*s = (struct sandbox){
		.engine = e,
		.config = *config,
		.slot = slot,
		.net_fd = -1,
		.gate = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	};
	json_object_get(s->config.metadata);
	json_object_get(s->config.envs);
	json_object_get(s->config.network);
	s->serial = ++e->serials;
	s->id[0] = 'i';
	id_alnum(s->id + 1, SANDBOX_ID - 2);
	set_tokens(s);
	e->slots[slot] = 1;
	push(config->pooled ? &e->pooled : &e->sandboxes, s);
	if (start_processes(s, err) < 0) {
		log_line(LOG_ERROR, "op=create sandbox=%s error=\"%s\"", s->id, err->text);
		sandbox_end(s);
		err_set(err, ERR_INTERNAL, "Failed to create sandbox");
		return NULL;
	}
	timer_at(&s->start_timer, e->loop, clock_mono_us() + START_SECS * SECOND_US, on_start_time,
		 s);
	return s;
}
