#include "engine/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/cgroup.h"
#include "engine/context.h"
#include "engine/launch.h"
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

/* ---- ending ---- */

static void free_sandbox(struct sandbox *s)
{
	struct engine *e = s->engine;
	take_out(&e->ending, s);
	close_fd(&s->cgroup);
	if (e->ground.cgroup_top[0])
		cgroup_remove(e->ground.cgroup_top, s->id);
	e->slots[s->slot] = 0;
	json_object_put(s->config.metadata);
	json_object_put(s->config.envs);
	free(s);
	if (e->stopping && !e->ending && !e->sandboxes)
		loop_stop(e->loop);
}

void sandbox_end(struct sandbox *s)
{
	struct engine *e = s->engine;
	if (s->state == SANDBOX_ENDED)
		return;
	bool starting = s->state == SANDBOX_STARTING;
	s->state = SANDBOX_ENDED;
	take_out(&e->sandboxes, s);
	push(&e->ending, s);
	timer_stop(&s->end_timer);
	timer_stop(&s->start_timer);
	watch_del(&s->net);
	close_fd(&s->net_fd);
	procs_end(s);
	watchers_end(s);
	contexts_end(s);
	http_cut(e->http, s->serial);
	agent_free(s->agent);
	s->agent = NULL;
	/* The agent's exit takes every process of its pid namespace along; frozen ones die too. */
	if (s->pid > 0)
		kill(s->pid, SIGKILL);
	if (s->slirp > 0)
		kill(s->slirp, SIGKILL);
	if (s->cgroup >= 0)
		cgroup_kill(s->cgroup);
	log_line(s->config.probe ? LOG_DEBUG : LOG_INFO, "op=end sandbox=%s", s->id);
	if (starting && s->created) {
		struct err why;
		err_set(&why, ERR_INTERNAL, "%s", s->failure[0] ? s->failure : "the sandbox ended");
		s->created(s->created_ctx, NULL, &why);
	}
	if (!s->pid && !s->slirp)
		free_sandbox(s);
}

void sandbox_end_all(struct engine *e)
{
	while (e->sandboxes)
		sandbox_end(e->sandboxes);
	if (!e->ending)
		loop_stop(e->loop);
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
	for (struct sandbox *s = e->sandboxes; s; s = s->next) {
		if (s->slirp == pid) {
			s->slirp = 0; /* the network is gone, the sandbox is not */
			log_line(LOG_WARN, "op=net sandbox=%s error=\"slirp4netns ended\"", s->id);
			return;
		}
		if (s->pid == pid) {
			s->pid = 0;
			sandbox_end(s);
			return;
		}
	}
}

/* ---- time ---- */

static void on_end_time(void *ctx)
{
	struct sandbox *s = ctx;
	struct err err;
	if (!s->config.auto_pause || sandbox_pause(s, &err) < 0)
		sandbox_end(s);
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
	if (!extend_only || now + left * SECOND_US > s->end_real)
		set_end(s, left);
	return 0;
}

/* ---- pause ---- */

/* Under a freezer the whole sandbox stands still, the agent too. Without one the agent stops the
 * others. */
static int set_frozen(struct sandbox *s, bool frozen)
{
	if (s->cgroup >= 0)
		return cgroup_freeze(s->cgroup, frozen);
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
	watchers_end(s);
	contexts_cut(s);
	http_cut(s->engine->http, s->serial);
	log_line(LOG_INFO, "op=pause sandbox=%s", s->id);
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
	if (set_frozen(s, false) < 0)
		return err_errno(err, "Error resuming sandbox");
	s->state = SANDBOX_RUNNING;
	/* A resumed sandbox begins a new continuous life. */
	s->started_real = clock_real_us();
	set_end(s, secs < s->engine->opt->max_lifetime ? secs : s->engine->opt->max_lifetime);
	contexts_resumed(s);
	log_line(LOG_INFO, "op=resume sandbox=%s", s->id);
	return 0;
}

/* ---- starting ---- */

static void maybe_running(struct sandbox *s)
{
	if (s->state != SANDBOX_STARTING || !s->agent_ready || !s->net_ready)
		return;
	s->state = SANDBOX_RUNNING;
	timer_stop(&s->start_timer);
	s->started_real = clock_real_us();
	set_end(s, s->config.timeout);
	log_line(s->config.probe ? LOG_DEBUG : LOG_INFO, "op=create sandbox=%s template=%s", s->id,
		 s->config.template->name);
	if (s->config.template->start)
		proc_start_command(s, s->config.template->start);
	if (s->config.template->interpreter)
		context_start_default(s);
	if (s->created) /* the asker may have gone meanwhile */
		s->created(s->created_ctx, s, NULL);
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
	if (s->net_ready || s->slirp)
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

static int start_processes(struct sandbox *s, struct err *err)
{
	struct engine *e = s->engine;
	const struct template *t = s->config.template;
	bool internet = e->internet && s->config.internet;
	struct launch l = {
		.agent = e->agent_exe,
		.filter = &e->filter,
		.host = &e->host,
		.slot = s->slot,
		.cgroup = s->cgroup,
		.memory = (uint64_t)t->memory_mb * MB,
		.root = { .disk = (uint64_t)t->disk_mb * MB,
			  .two_users = e->ground.two_users,
			  .internet = internet,
			  .wheelhouse = e->opt->wheelhouse != NULL,
			  .driver = kernel_driver },
	};
	int sock;
	if (launch(&l, &s->pid, &sock, err) < 0 ||
	    agent_new(&s->agent, e->loop, sock, &agent_events, s, err) < 0)
		return -1;
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

int sandbox_create(struct engine *e, const struct sandbox_config *config,
		   void (*created)(void *, struct sandbox *, const struct err *), void *ctx,
		   struct err *err)
{
	int slot = free_slot(e);
	if (e->stopping || slot < 0)
		return err_set(err, ERR_UNAVAILABLE, "Failed to place sandbox: %s",
			       e->stopping ? "the engine is stopping" : "no ids are free");
	if (check_room(e, err) < 0)
		return -1;
	struct sandbox *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(err, ERR_INTERNAL, "no memory");
	*s = (struct sandbox){
		.engine = e,
		.config = *config,
		.slot = slot,
		.cgroup = -1,
		.net_fd = -1,
	};
	json_object_get(s->config.metadata);
	json_object_get(s->config.envs);
	s->serial = ++e->serials;
	s->id[0] = 'i';
	id_alnum(s->id + 1, SANDBOX_ID - 2);
	if (config->secure)
		id_alnum(s->envd_token, SANDBOX_TOKEN - 1);
	if (config->private_traffic)
		id_alnum(s->traffic_token, SANDBOX_TOKEN - 1);
	e->slots[slot] = 1;
	push(&e->sandboxes, s);
	if (e->ground.cgroup_top[0])
		s->cgroup = cgroup_make(e->ground.cgroup_top, s->id);
	if ((e->ground.cgroup_top[0] && s->cgroup < 0 && err_errno(err, "cgroup") < 0) ||
	    start_processes(s, err) < 0) {
		log_line(LOG_ERROR, "op=create sandbox=%s error=\"%s\"", s->id, err->text);
		sandbox_end(s);
		return err_set(err, ERR_INTERNAL, "Failed to create sandbox");
	}
	s->created = created;
	s->created_ctx = ctx;
	timer_at(&s->start_timer, e->loop, clock_mono_us() + START_SECS * SECOND_US, on_start_time,
		 s);
	return 0;
}

/* ---- environment ---- */

struct json_object *sandbox_envs(const struct sandbox *s)
{
	struct json_object *all = json_object_new_object();
	const struct template *t = s->config.template;
	json_object_object_add(all, "E2B_SANDBOX", json_object_new_string("true"));
	json_object_object_add(all, "E2B_SANDBOX_ID", json_object_new_string(s->id));
	json_object_object_add(all, "E2B_TEMPLATE_ID", json_object_new_string(t->id));
	for (size_t i = 0; i < t->nenvs; i++) {
		char name[256];
		size_t n = strcspn(t->envs[i], "=");
		snprintf(name, sizeof name, "%.*s", (int)n, t->envs[i]);
		json_object_object_add(all, name, json_object_new_string(t->envs[i] + n + 1));
	}
	if (s->config.envs) {
		json_object_object_foreach(s->config.envs, key, value)
		{
			json_object_object_add(all, key, json_object_get(value));
		}
	}
	return all;
}

int sandbox_environment(const struct sandbox *s, bool root, struct json_object *extra,
			struct buf *out)
{
	struct json_object *all = json_object_new_object(), *own = sandbox_envs(s);
	const char *const base[][2] = {
		{ "PATH",
		  root ? "/root/.local/bin:" ROOTFS_PATH : AGENT_HOME "/.local/bin:" ROOTFS_PATH },
		{ "HOME", root ? "/root" : AGENT_HOME },
		{ "USER", root ? "root" : AGENT_USER },
		{ "LOGNAME", root ? "root" : AGENT_USER },
		{ "LANG", "C.UTF-8" },
	};
	int rc = 0;
	for (size_t i = 0; i < sizeof base / sizeof *base; i++)
		json_object_object_add(all, base[i][0], json_object_new_string(base[i][1]));
	struct json_object *const layers[] = { own, extra };
	for (size_t i = 0; i < 2; i++) {
		if (!layers[i])
			continue;
		json_object_object_foreach(layers[i], key, value)
		{
			json_object_object_add(all, key, json_object_get(value));
		}
	}
	json_object_object_foreach(all, key, value)
	{
		rc |= buf_addf(out, "%s=%s", key, json_object_get_string(value)) < 0 ||
		      buf_add(out, "", 1) < 0;
	}
	json_object_put(own);
	json_object_put(all);
	return rc ? -1 : 0;
}

/* ---- usage ---- */

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
