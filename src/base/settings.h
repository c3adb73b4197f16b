/* The settings of the gateway's programs: environment variables, or the same KEY=value lines in a
 * file. One table parses them, prints them and is what the manual is checked against. */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct settings {
	char *api_key;      /* never printed, never logged */
	char *api_key_file; /* NULL: the key stands in api_key */
	char *domain;       /* without scheme or trailing slash */
	char *api_url;      /* NULL: made from the domain */
	char *sandbox_url;  /* NULL: made from the domain */
	char *ca_file;      /* NULL: the system's */
	char *default_type; /* code_interpreter or custom */
	char *code_template;
	char *custom_template; /* NULL: custom sandboxes are refused */
	int64_t execution_timeout, idle_timeout, max_lifetime; /* seconds */
	int64_t max_sandboxes, max_per_user;
	int64_t exec_workers, quick_workers;
	int64_t output_max, error_max, upload_max; /* bytes */
	int64_t provider_timeout, drain;           /* seconds */
	int64_t orphan_grace, events_max_age;      /* seconds */
	int64_t events_max;                        /* bytes */
	char *init_envs, *init_packages, *command_allow;
	char *db, *state_dir, *socket_group, *instance, *environment, *log_level;
};

/* Read the file (NULL: none), then the environment, which wins. A bad value, an unknown key in the
 * file, or a missing E2B_API_KEY is a sentence for a person. Without E2B_API_KEY the key is the
 * first line of E2B_API_KEY_FILE. */
int settings_load(struct settings *s, const char *file, struct err *err);
void settings_free(struct settings *s);

/* NAME=value lines, secrets masked. */
void settings_print(const struct settings *s, FILE *out);

/* What there is to set, for the manual and its lint: NAME<TAB>default<TAB>values<TAB>help, values
 * being "1-3600", "1-", "a|b" or nothing. */
void settings_describe(FILE *out);

#endif
