/* The variables that processes inside are started with. */
#include <stdio.h>
#include <string.h>

#include "engine/rootfs.h"
#include "engine/sandbox.h"

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
