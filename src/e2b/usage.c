#include "e2b/usage.h"

#include <json-c/json.h>

#include "base/cleanup.h"
#include "e2b/client.h"

static int64_t number(struct json_object *o, const char *key)
{
	struct json_object *v = json_member(o, key);
	return v ? json_object_get_int64(v) : 0;
}

static int read_usage(const struct call *call, struct e2b_usage *out, struct err *err)
{
	_cleanup_(json_drop) struct json_object *o = NULL;
	if (json_read(&o, call->answer.p, call->answer.len, err) < 0)
		return -1;
	if (!json_object_is_type(o, json_type_object))
		return err_set(err, ERR_INTERNAL, "metrics: the answer is no object");
	struct json_object *percent = json_member(o, "cpu_used_pct");
	*out = (struct e2b_usage){ .cpus = number(o, "cpu_count"),
				   .cpu_percent = percent ? json_object_get_double(percent) : 0,
				   .memory_used = number(o, "mem_used"),
				   .memory_total = number(o, "mem_total"),
				   .disk_used = number(o, "disk_used"),
				   .disk_total = number(o, "disk_total") };
	return 0;
}

int e2b_usage(struct e2b *c, const struct e2b_sandbox *sb, struct e2b_usage *out,
	      const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct call call;
	call_init(&call, "metrics", "GET", 64u << 10);
	call.repeatable = true;
	int rc = data_call(c, &call, sb, PORT_ENVD, "/metrics", wait, err);
	if (rc == 0)
		rc = data_run(c, &call, wait, err);
	if (rc == 0)
		rc = read_usage(&call, out, err);
	call_free(&call);
	return client_end(c, since, sb, rc, err);
}
