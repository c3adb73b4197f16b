/* What the commands of sandgatectl share: the settings, and the database and the provider, which
 * are opened by the first command that needs them. Arguments are judged before that, so that a
 * mistyped command touches nothing. */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include "base/err.h"
#include "base/settings.h"
#include "core/session.h"
#include "store/audit.h"
#include "store/store.h"

/* What a command returns, and the program after it. */
enum { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2 };

struct ctl {
	const char *file; /* of settings, or NULL */
	bool loaded;      /* whether settings has been read */
	struct settings settings;
	struct store *store; /* NULL until ctl_store */
	struct e2b *e2b;     /* NULL until ctl_core */
};

/* Each is 0 or an exit status, after saying why on stderr. */
int ctl_settings(struct ctl *ctl);
int ctl_store(struct ctl *ctl);
int ctl_core(struct ctl *ctl, struct core *out);
void ctl_free(struct ctl *ctl);

/* One line on stderr with the program's name before it; they return the exit status. */
int ctl_usage(const struct err *err); /* the command line or a setting is wrong */
int ctl_fail(const struct err *err);

/* Writes that the operator has done this; ok or the error's public name. */
int ctl_audit(struct ctl *ctl, const char *action, const char *target, const char *outcome,
	      struct err *err);

/* A command: argv begins behind its name. */
typedef int ctl_command(struct ctl *ctl, int argc, char **argv);

ctl_command ctl_token_create, ctl_token_list, ctl_token_revoke;
ctl_command ctl_list, ctl_kill;
ctl_command ctl_config, ctl_routes, ctl_nginx_map;

#endif
