#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/body.h"
#include "api/handlers.h"
#include "api/outcome.h"
#include "api/running.h"
#include "base/cleanup.h"
#include "core/install.h"
#include "core/result.h"
#include "wire/words.h"

#define COMMAND_MAX  ((128u << 10) - 1) /* bytes; a kernel takes no longer word */
#define LANGUAGE_MAX 64                 /* bytes */

/* What both operations take. */
static int read_terms(struct call *c, struct json_object *o, struct order *order)
{
	const int64_t most = c->w->settings->execution_timeout;
	int64_t limit = most;
	bool there;
	if (body_number(c, o, "timeout_secs", 1, most, &limit, &there) < 0)
		return -1;
	order->req.limit_secs = (int)limit;
	return body_bool(c, o, "detach", &order->detach);
}

/* ---- commands ---- */

static bool is_listed(const char *list, const char *name)
{
	const size_t n = strlen(name);
	for (const char *p = list; *p;) {
		p += strspn(p, ", ");
		size_t k = strcspn(p, ", ");
		if (k == n && n && !memcmp(p, name, n))
			return true;
		p += k;
	}
	return false;
}

/* The words of a command, the first of them on the list: no shell ever sees it. */
static int split_allowed(struct call *c, const char *command, char ***words)
{
	struct err err = { 0 };
	if (words_split(command, words, &err) < 0) {
		answer_problem(c, BAD_REQUEST, "'command': %s", err.text);
		return -1;
	}
	if (is_listed(c->w->settings->command_allow, (*words)[0]))
		return 0;
	answer_problem(c, COMMAND_NOT_ALLOWED, "this server runs only: %s",
		       c->w->settings->command_allow);
	return -1;
}

/* A session of its own, so that all that it starts can be ended with it. */
static void run_command(struct call *c, struct order *order, const char *command)
{
	const char *in_shell[] = { "setsid", "-w", "/bin/bash", "-l", "-c", command, NULL };
	_free_ char **words = NULL;
	_free_ const char **argv = NULL;
	order->req.own_group = true;
	order->req.argv = in_shell;
	if (c->w->settings->command_allow) {
		size_t n = 0;
		if (split_allowed(c, command, &words) < 0)
			return;
		while (words[n])
			n++;
		argv = calloc(n + 3, sizeof *argv);
		if (!argv)
			abort();
		argv[0] = "setsid";
		argv[1] = "-w";
		memcpy(argv + 2, words, n * sizeof *words);
		order->req.argv = argv;
	}
	run_order(c, order);
}

static int check_command(struct call *c, const struct order *order)
{
	if (order->req.language || order->req.context_id) {
		answer_problem(c, BAD_REQUEST, "'language' and 'context_id' go with 'code'");
		return -1;
	}
	if (order->req.cwd && *order->req.cwd != '/') {
		answer_problem(c, BAD_PATH, "'cwd' must be absolute");
		return -1;
	}
	return 0;
}

/* ---- execute ---- */

/* Where it runs. */
static int read_place(struct call *c, struct json_object *o, struct order *order)
{
	size_t n;
	if (body_text(c, o, "language", &order->req.language, &n) < 0 ||
	    body_text(c, o, "context_id", &order->req.context_id, &n) < 0)
		return -1;
	return body_text(c, o, "cwd", &order->req.cwd, &n);
}

static int check_code(struct call *c, struct order *order)
{
	if (order->req.cwd) {
		answer_problem(c, BAD_REQUEST, "'cwd' goes with 'command': a context has its own");
		return -1;
	}
	if (order->req.language && !strcmp(order->req.language, "python"))
		order->req.language = NULL; /* the sandbox's own context */
	if (order->req.language && strlen(order->req.language) > LANGUAGE_MAX) {
		answer_problem(c, BAD_REQUEST, "'language' may have %d bytes", LANGUAGE_MAX);
		return -1;
	}
	if (order->req.language && order->req.context_id) {
		answer_problem(c, BAD_REQUEST,
			       "send 'language' or 'context_id': a context has one");
		return -1;
	}
	if (order->req.context_id && (!session_id_valid(order->req.context_id))) {
		answer_problem(c, CONTEXT_NOT_FOUND, "this is no context's id");
		return -1;
	}
	return 0;
}

/* Exactly one of the two. */
static int read_input(struct call *c, struct json_object *o, struct order *order,
		      const char **command)
{
	size_t n;
	if (body_text(c, o, "code", &order->req.code, &order->req.ncode) < 0 ||
	    body_text(c, o, "command", command, &n) < 0)
		return -1;
	if (!order->req.code == !*command) {
		answer_problem(c, BAD_REQUEST, "%s",
			       *command ? "send 'code' or 'command', not both"
					: "'code' is missing: send {\"code\": \"print(1)\"} or "
					  "{\"command\": \"ls\"}");
		return -1;
	}
	if (n > COMMAND_MAX) {
		answer_problem(c, TOO_LARGE, "'command' may have %u bytes", COMMAND_MAX);
		return -1;
	}
	order->req.input = *command;
	order->req.ninput = n;
	return 0;
}

static void execute(struct call *c, struct json_object *o)
{
	struct order order = { .req = { .kind = EXECUTION_CODE } };
	const char *command = NULL;
	_free_ struct e2b_pair *envs = NULL;
	if (read_input(c, o, &order, &command) < 0 || read_terms(c, o, &order) < 0 ||
	    read_place(c, o, &order) < 0 || body_pairs(c, o, "envs", &envs, &order.req.nenvs) < 0)
		return;
	order.req.envs = envs;
	if (command && check_command(c, &order) == 0) {
		order.req.kind = EXECUTION_COMMAND;
		run_command(c, &order, command);
	} else if (!command && check_code(c, &order) == 0) {
		run_order(c, &order);
	}
}

void op_execute(struct call *c)
{
	struct json_object *o;
	if (body_object(c, &o) < 0)
		return;
	execute(c, o);
	json_object_put(o);
}

/* ---- install ---- */

static int attempt_install(struct core *core, struct run_request *req, void *what,
			   struct run_report *out, struct err *err)
{
	return install_run(core, req, what, out, err);
}

/* -1: the call has been answered. */
static int read_packages(struct call *c, struct json_object *o, struct install_plan *plan)
{
	struct json_object *list;
	struct err err = { 0 };
	if (body_array(c, o, "packages", &list) < 0)
		return -1;
	if (!list) {
		answer_problem(c, BAD_REQUEST,
			       "'packages' is missing: send {\"packages\": [\"requests\"]}");
		return -1;
	}
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		if (!json_object_is_type(v, json_type_string)) {
			answer_problem(c, BAD_PACKAGE, "'packages' must be an array of strings");
			return -1;
		}
		if (install_add(plan, json_object_get_string(v),
				(size_t)json_object_get_string_len(v), &err) < 0) {
			answer_problem(c, BAD_PACKAGE, "%s", err.text);
			return -1;
		}
	}
	return 0;
}

/* A success that needs no sandbox. */
static void answer_nothing_to_do(struct call *c)
{
	const struct run_report report = { .end = RUN_ENDED, .state = EXECUTION_SUCCEEDED };
	struct json_object *o = outcome_result(c, &report, 0, END_NONE);
	json_object_object_add(o, "output", json_object_new_string("No packages to install"));
	json_object_object_add(o, "execution_id", NULL);
	json_object_object_add(o, "exit_code", json_object_new_int(0));
	json_object_object_add(o, "truncated", json_object_new_boolean(false));
	json_object_object_add(o, "generation", NULL);
	answer_json(c, 200, o);
}

static void install(struct call *c, struct json_object *o)
{
	struct install_plan plan = { .n = 0 };
	struct order order = { .req = { .kind = EXECUTION_INSTALL },
			       .attempt = attempt_install,
			       .what = &plan };
	if (read_packages(c, o, &plan) < 0 || read_terms(c, o, &order) < 0)
		return;
	if (plan.n)
		run_order(c, &order);
	else
		answer_nothing_to_do(c);
}

void op_install(struct call *c)
{
	struct json_object *o;
	if (body_object(c, &o) < 0)
		return;
	install(c, o);
	json_object_put(o);
}
