#include "engine/sandbox_parts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/context.h"
#include "engine/netchange.h"
#include "engine/pool.h"
#include "engine/ports.h"
#include "engine/proc.h"
#include "engine/watcher.h"

/* ---- lists ---- */

void sandbox_push(struct sandbox **list, struct sandbox *s)
{
	s->prev = NULL;
	s->next = *list;
	if (*list)
		(*list)->prev = s;
	*list = s;
}

void sandbox_take_out(struct sandbox **list, struct sandbox *s)
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

enum log_level sandbox_level(const struct sandbox *s)
{
	return s->config.probe || s->config.pooled ? LOG_DEBUG : LOG_INFO;
}

/* ---- ending ---- */

static void free_sandbox(struct sandbox *s)
{
	struct engine *e = s->engine;
	sandbox_take_out(&e->ending, s);
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

void sandbox_tell(struct sandbox *s, struct sandbox *made)
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
	sandbox_take_out(s->config.pooled ? &e->pooled : &e->sandboxes, s);
	sandbox_push(&e->ending, s);
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
	log_line(sandbox_level(s), "op=end sandbox=%s", s->id);
	if (s->log)
		keep_log(s);
	if (s->config.pooled)
		pool_changed(e->pool, s);
	sandbox_tell(s, NULL);
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
