#include "ctl/ctl.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "api/routes.h"
#include "ctl/arguments.h"

int ctl_usage(const struct err *err)
{
	fprintf(stderr, "sandgatectl: %s\n", err->text);
	return CTL_USAGE;
}

int ctl_fail(const struct err *err)
{
	fprintf(stderr, "sandgatectl: %s\n", err->text);
	return CTL_FAILED;
}

int ctl_settings(struct ctl *ctl)
{
	struct err err;
	if (ctl->loaded)
		return CTL_OK;
	if (settings_load(&ctl->settings, ctl->file, &err) < 0)
		return ctl_usage(&err);
	ctl->loaded = true;
	return CTL_OK;
}

int ctl_store(struct ctl *ctl)
{
	struct err err;
	int status = ctl_settings(ctl);
	if (status != CTL_OK || ctl->store)
		return status;
	const struct store_config config = { .path = ctl->settings.db, .slot = -1 };
	return store_open(&ctl->store, &config, &err) < 0 ? ctl_fail(&err) : CTL_OK;
}

int ctl_core(struct ctl *ctl, struct core *out)
{
	struct err err;
	int status = ctl_store(ctl);
	if (status != CTL_OK)
		return status;
	const struct e2b_config config = core_provider(&ctl->settings);
	if (!ctl->e2b && e2b_new(&ctl->e2b, &config, &err) < 0)
		return ctl_fail(&err);
	*out = core_of_tool(&ctl->settings, ctl->store, ctl->e2b);
	return CTL_OK;
}

void ctl_free(struct ctl *ctl)
{
	e2b_free(ctl->e2b);
	store_free(ctl->store);
	if (ctl->loaded)
		settings_free(&ctl->settings);
}

int ctl_audit(struct ctl *ctl, const char *action, const char *target, const char *outcome,
	      struct err *err)
{
	char name[STORE_NAME_MAX + 1];
	const struct passwd *who = getpwuid(getuid());
	if (who)
		snprintf(name, sizeof name, "%s", who->pw_name);
	else
		snprintf(name, sizeof name, "uid:%u", (unsigned)getuid());
	const struct audit_entry entry = {
		.user = name, .action = action, .target = target, .outcome = outcome
	};
	return audit_append(ctl->store, &entry, err);
}

int ctl_config(struct ctl *ctl, int argc, char **argv)
{
	bool describe = false;
	const struct option_row options[] = { { "--describe", NULL, &describe } };
	struct err err;
	if (arguments_read(argc, argv, options, 1, NULL, &err) < 0)
		return ctl_usage(&err);
	if (describe) {
		settings_describe(stdout);
		return CTL_OK;
	}
	int status = ctl_settings(ctl);
	if (status == CTL_OK)
		settings_print(&ctl->settings, stdout);
	return status;
}

/* Both are made of the route table alone: no settings are needed. */
static int print_routes(int argc, char **argv, void (*print)(FILE *out))
{
	struct err err;
	if (arguments_read(argc, argv, NULL, 0, NULL, &err) < 0)
		return ctl_usage(&err);
	print(stdout);
	return CTL_OK;
}

int ctl_routes(struct ctl *ctl, int argc, char **argv)
{
	(void)ctl;
	return print_routes(argc, argv, routes_print);
}

int ctl_nginx_map(struct ctl *ctl, int argc, char **argv)
{
	(void)ctl;
	return print_routes(argc, argv, routes_print_map);
}
