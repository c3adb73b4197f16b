/* How a sandbox comes to be: made anew, or taken from the pool. */
#include "engine/sandbox_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/context.h"
#include "engine/launch.h"
#include "engine/network.h"
#include "engine/pool.h"
#include "engine/proc.h"
#include "engine/rootfs.h"

#define START_SECS 30 /* a sandbox that is not ready by then is given up */
#define MB         (1024ull * 1024)

/* From here on it is its client's. */
static void begin_life(struct sandbox *s)
{
	s->state = SANDBOX_RUNNING;
	s->started_real = clock_real_us();
	sandbox_set_end(s, s->config.timeout);
	log_line(sandbox_level(s), "op=create sandbox=%s template=%s", s->id,
		 s->config.template->name);
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
	sandbox_tell(s, s);
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
	sandbox_tell(ctx, ctx);
}

/* A sandbox of the pool becomes what the client has asked for. */
static void adopt(struct sandbox *s, const struct sandbox_config *config)
{
	struct engine *e = s->engine;
	sandbox_take_out(&e->pooled, s);
	sandbox_push(&e->sandboxes, s);
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
	if (sandbox_check_room(e, err) < 0)
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
	sandbox_push(config->pooled ? &e->pooled : &e->sandboxes, s);
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
