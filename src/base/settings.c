#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (256u << 10)
#define KEY_MAX  1024
#define NO_LIMIT INT64_MAX
#define MIB      (1024 * 1024)
#define DAY      86400

enum kind { TEXT, SECRET, NUMBER, CHOICE };

static const struct row {
	const char *name;
	enum kind kind;
	size_t at;            /* offset in struct settings */
	const char *fallback; /* NULL: none */
	int64_t min, max;     /* of a NUMBER */
	const char *choices;  /* of a CHOICE, separated by '|' */
	const char *help;
} rows[] = {
#define AT(field) offsetof(struct settings, field)
	{ "E2B_API_KEY", SECRET, AT(api_key), NULL, 0, 0, NULL,
	  "key of the E2B account; not needed when E2B_API_URL is set" },
	{ "E2B_API_KEY_FILE", TEXT, AT(api_key_file), NULL, 0, 0, NULL,
	  "file whose first line is the key, where E2B_API_KEY is not set" },
	{ "E2B_DOMAIN", TEXT, AT(domain), "e2b.app", 0, 0, NULL, "domain of E2B" },
	{ "E2B_API_URL", TEXT, AT(api_url), NULL, 0, 0, NULL, "base URL of the control plane" },
	{ "E2B_SANDBOX_URL", TEXT, AT(sandbox_url), NULL, 0, 0, NULL, "base URL of all sandboxes" },
	{ "SANDGATE_CA_FILE", TEXT, AT(ca_file), NULL, 0, 0, NULL,
	  "certificates to trust in place of the system's" },
	{ "SANDGATE_DEFAULT_SANDBOX_TYPE", CHOICE, AT(default_type), "code_interpreter", 0, 0,
	  "code_interpreter|custom", "type when a request names none" },
	{ "SANDGATE_CODE_INTERPRETER_TEMPLATE", TEXT, AT(code_template), "code-interpreter-v1", 0,
	  0, NULL, "template of code_interpreter sandboxes" },
	{ "SANDGATE_CUSTOM_TEMPLATE_ID", TEXT, AT(custom_template), NULL, 0, 0, NULL,
	  "template of custom sandboxes" },
	{ "SANDGATE_EXECUTION_TIMEOUT_SECS", NUMBER, AT(execution_timeout), "300", 1, 3600, NULL,
	  "limit of one execution or installation" },
	{ "SANDGATE_IDLE_TIMEOUT_SECS", NUMBER, AT(idle_timeout), "1800", 1, 30 * DAY, NULL,
	  "a sandbox unused for this long is ended" },
	{ "SANDGATE_MAX_LIFETIME_SECS", NUMBER, AT(max_lifetime), "3600", 1, DAY, NULL,
	  "the longest life of a sandbox" },
	{ "SANDGATE_MAX_SANDBOXES", NUMBER, AT(max_sandboxes), "100", 1, 100000, NULL,
	  "alive at once, in all" },
	{ "SANDGATE_MAX_SANDBOXES_PER_USER", NUMBER, AT(max_per_user), "5", 1, 100000, NULL,
	  "alive at once, of one user" },
	{ "SANDGATE_EXEC_WORKERS_MAX", NUMBER, AT(exec_workers), "512", 1, 4096, NULL,
	  "processes for calls that reach a sandbox, at the most" },
	{ "SANDGATE_QUICK_WORKERS", NUMBER, AT(quick_workers), "4", 1, 256, NULL,
	  "processes for calls that do not" },
	{ "SANDGATE_OUTPUT_MAX_BYTES", NUMBER, AT(output_max), "1048576", 1024, 64 * MIB, NULL,
	  "of each stream in an answer" },
	{ "SANDGATE_ERROR_MAX_BYTES", NUMBER, AT(error_max), "65536", 1024, 16 * MIB, NULL,
	  "of an error in an answer" },
	{ "SANDGATE_UPLOAD_MAX_BYTES", NUMBER, AT(upload_max), "5368709120", 1, NO_LIMIT, NULL,
	  "of one upload" },
	{ "SANDGATE_PROVIDER_TIMEOUT_SECS", NUMBER, AT(provider_timeout), "60", 1, 600, NULL,
	  "limit of one call to E2B" },
	{ "SANDGATE_DRAIN_SECS", NUMBER, AT(drain), "30", 0, 3600, NULL,
	  "running executions may take this long when the gateway stops" },
	{ "SANDGATE_ORPHAN_GRACE_SECS", NUMBER, AT(orphan_grace), "120", 0, DAY, NULL,
	  "a sandbox with our labels that nobody knows is killed after this" },
	{ "SANDGATE_EVENTS_MAX_AGE_SECS", NUMBER, AT(events_max_age), "604800", 60, 365 * DAY, NULL,
	  "an execution's event log is deleted after this" },
	{ "SANDGATE_EVENTS_MAX_BYTES", NUMBER, AT(events_max), "4294967296", MIB, NO_LIMIT, NULL,
	  "of all event logs; the oldest are deleted" },
	{ "SANDGATE_INIT_ENVS", TEXT, AT(init_envs), NULL, 0, 0, NULL,
	  "NAME=value pairs, separated by commas, for every new sandbox (not used yet)" },
	{ "SANDGATE_INIT_PACKAGES", TEXT, AT(init_packages), NULL, 0, 0, NULL,
	  "packages, separated by commas, for every new sandbox (not used yet)" },
	{ "SANDGATE_COMMAND_ALLOW", TEXT, AT(command_allow), NULL, 0, 0, NULL,
	  "programs that commands may run, separated by commas; unset: any, in a shell "
	  "(not used yet)" },
	{ "SANDGATE_DB", TEXT, AT(db), NULL, 0, 0, NULL,
	  "database; unset: sandgate.db in the state folder" },
	{ "SANDGATE_STATE_DIR", TEXT, AT(state_dir), "/var/lib/sandgate", 0, 0, NULL,
	  "folder of the database and the event logs" },
	{ "SANDGATE_SOCKET_GROUP", TEXT, AT(socket_group), NULL, 0, 0, NULL,
	  "group that may connect to the sockets: nginx's" },
	{ "SANDGATE_INSTANCE", TEXT, AT(instance), NULL, 0, 0, NULL,
	  "name of this gateway in the labels of its sandboxes; unset: the machine's name" },
	{ "SANDGATE_ENVIRONMENT", TEXT, AT(environment), "production", 0, 0, NULL,
	  "name of the environment in the labels of its sandboxes" },
	{ "SANDGATE_LOG_LEVEL", CHOICE, AT(log_level), "info", 0, 0, "error|warn|info|debug",
	  "how much is logged" },
#undef AT
};

#define ROWS (sizeof rows / sizeof *rows)

static char **text_of(struct settings *s, const struct row *r)
{
	return (char **)(void *)((char *)s + r->at);
}

static int64_t *number_of(struct settings *s, const struct row *r)
{
	return (int64_t *)(void *)((char *)s + r->at);
}

static bool among(const char *value, const char *choices)
{
	size_t n = strlen(value);
	for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
		if (strcspn(p, "|") == n && !strncmp(p, value, n))
			return true;
	return false;
}

static int set_number(struct settings *s, const struct row *r, const char *value, struct err *err)
{
	char *end;
	errno = 0;
	long long v = strtoll(value, &end, 10);
	if (errno || end == value || *end || v < r->min || v > r->max)
		return err_set(err, ERR_INVALID, "%s: '%.40s' is no number from %lld to %lld",
			       r->name, value, (long long)r->min, (long long)r->max);
	*number_of(s, r) = v;
	return 0;
}

/* An empty value means that the setting is not set. */
static int set(struct settings *s, const struct row *r, const char *value, struct err *err)
{
	if (r->kind == NUMBER)
		return *value ? set_number(s, r, value, err) : 0;
	if (r->kind == CHOICE && *value && !among(value, r->choices))
		return err_set(err, ERR_INVALID, "%s: '%.40s' is none of %s", r->name, value,
			       r->choices);
	char *copy = *value ? strdup(value) : NULL;
	if (*value && !copy)
		return err_set(err, ERR_INTERNAL, "no memory");
	if (!copy && r->kind == CHOICE)
		return 0;
	free(*text_of(s, r));
	*text_of(s, r) = copy;
	return 0;
}

static const struct row *find(const char *name)
{
	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].name, name))
			return &rows[i];
	return NULL;
}

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	for (size_t n = strlen(s); n && isspace((unsigned char)s[n - 1]);)
		s[--n] = '\0';
	return s;
}

/* One line of the file, as systemd reads an EnvironmentFile: # and ; begin comments, a value may be
 * quoted. */
static int read_line(struct settings *s, char *line, const char *file, int number, struct err *err)
{
	line = trim(line);
	if (!*line || *line == '#' || *line == ';')
		return 0;
	char *eq = strchr(line, '=');
	if (!eq)
		return err_set(err, ERR_INVALID, "%s, line %d: expected KEY=value", file, number);
	*eq = '\0';
	char *name = trim(line), *value = trim(eq + 1);
	size_t n = strlen(value);
	if (n > 1 && (*value == '"' || *value == '\'') && value[n - 1] == *value) {
		value[n - 1] = '\0';
		value++;
	}
	const struct row *r = find(name);
	if (!r)
		return err_set(err, ERR_INVALID, "%s, line %d: there is no setting %.64s", file,
			       number, name);
	return set(s, r, value, err);
}

static int read_file(struct settings *s, const char *file, struct err *err)
{
	FILE *f = fopen(file, "re");
	char *text = calloc(1, FILE_MAX + 1);
	if (!f || !text) {
		err_errno(err, "%s", file);
		free(text);
		if (f)
			fclose(f);
		return -1;
	}
	size_t n = fread(text, 1, FILE_MAX, f);
	fclose(f);
	int rc = 0, number = 0;
	if (n == FILE_MAX || memchr(text, '\0', n))
		rc = err_set(err, ERR_INVALID, "%s is no file of settings", file);
	for (char *at = text, *line; rc == 0 && (line = strsep(&at, "\n"));)
		rc = read_line(s, line, file, ++number, err);
	explicit_bzero(text, n);
	free(text);
	return rc;
}

static int check_key(const char *key, size_t n, const char *file, struct err *err)
{
	if (!n)
		return err_set(err, ERR_INVALID, "E2B_API_KEY_FILE: the first line of %s is empty",
			       file);
	if (n > KEY_MAX)
		return err_set(
			err, ERR_INVALID,
			"E2B_API_KEY_FILE: the first line of %s is longer than %d characters", file,
			KEY_MAX);
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)key[i]))
			return err_set(
				err, ERR_INVALID,
				"E2B_API_KEY_FILE: there is a control character in the first "
				"line of %s",
				file);
	return 0;
}

static int read_key_file(struct settings *s, struct err *err)
{
	char text[KEY_MAX + 64];
	FILE *f = fopen(s->api_key_file, "re");
	if (!f)
		return err_errno(err, "E2B_API_KEY_FILE: %s", s->api_key_file);
	setvbuf(f, NULL, _IONBF, 0); /* no copy of the key stays in a buffer */
	errno = 0;
	size_t n = fread(text, 1, sizeof text - 1, f);
	int rc = ferror(f) ? err_errno(err, "E2B_API_KEY_FILE: %s", s->api_key_file) : 0;
	fclose(f);
	const char *end = memchr(text, '\n', n);
	size_t line = end ? (size_t)(end - text) : n;
	while (line && isspace((unsigned char)text[line - 1]))
		line--;
	if (rc == 0)
		rc = check_key(text, line, s->api_key_file, err);
	if (rc == 0 && !(s->api_key = strndup(text, line)))
		rc = err_set(err, ERR_INTERNAL, "no memory");
	explicit_bzero(text, sizeof text);
	return rc;
}

/* People paste addresses where a name is asked for. */
static void strip_domain(struct settings *s)
{
	if (!s->domain)
		return;
	char *p = strstr(s->domain, "://");
	if (p)
		memmove(s->domain, p + 3, strlen(p + 3) + 1);
	s->domain[strcspn(s->domain, "/")] = '\0';
}

/* Two gateways with one name would take each other's sandboxes for orphans of their own. */
static int name_instance(struct settings *s, struct err *err)
{
	char name[HOST_NAME_MAX + 1] = "";
	if (s->instance)
		return 0;
	if (gethostname(name, sizeof name - 1) < 0 || !*name)
		return err_set(err, ERR_INVALID,
			       "this machine has no name: set SANDGATE_INSTANCE to one");
	s->instance = strdup(name);
	return s->instance ? 0 : err_set(err, ERR_INTERNAL, "no memory");
}

static int check(struct settings *s, struct err *err)
{
	strip_domain(s);
	if (!s->api_key && s->api_key_file && read_key_file(s, err) < 0)
		return -1;
	if (!s->api_key && !s->api_url)
		return err_set(err, ERR_INVALID, "E2B_API_KEY is required");
	if (!s->domain || !*s->domain)
		return err_set(err, ERR_INVALID, "E2B_DOMAIN is empty");
	if (!s->state_dir)
		return err_set(err, ERR_INVALID, "SANDGATE_STATE_DIR is empty");
	if (name_instance(s, err) < 0)
		return -1;
	if (!s->db) {
		size_t n = strlen(s->state_dir) + sizeof "/sandgate.db";
		s->db = malloc(n);
		if (!s->db)
			return err_set(err, ERR_INTERNAL, "no memory");
		snprintf(s->db, n, "%s/sandgate.db", s->state_dir);
	}
	return 0;
}

int settings_load(struct settings *s, const char *file, struct err *err)
{
	*s = (struct settings){ 0 };
	int rc = 0;
	for (size_t i = 0; i < ROWS && rc == 0; i++)
		if (rows[i].fallback)
			rc = set(s, &rows[i], rows[i].fallback, err);
	if (rc == 0 && file)
		rc = read_file(s, file, err);
	for (size_t i = 0; i < ROWS && rc == 0; i++) {
		const char *value = getenv(rows[i].name);
		if (value)
			rc = set(s, &rows[i], value, err);
	}
	if (rc == 0)
		rc = check(s, err);
	if (rc < 0)
		settings_free(s);
	return rc;
}

void settings_free(struct settings *s)
{
	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].kind == NUMBER)
			continue;
		char *text = *text_of(s, &rows[i]);
		if (text && rows[i].kind == SECRET)
			explicit_bzero(text, strlen(text));
		free(text);
		*text_of(s, &rows[i]) = NULL;
	}
}

void settings_print(const struct settings *s, FILE *out)
{
	struct settings *all = (struct settings *)s; /* only read */
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		if (r->kind == NUMBER)
			fprintf(out, "%s=%lld\n", r->name, (long long)*number_of(all, r));
		else if (r->kind == SECRET)
			fprintf(out, "%s=%s\n", r->name, *text_of(all, r) ? "****" : "");
		else
			fprintf(out, "%s=%s\n", r->name, *text_of(all, r) ? *text_of(all, r) : "");
	}
}

/* What a value may be: "1-3600", "1-" without an upper limit, "a|b", or "" for any text. */
static void print_values(const struct row *r, FILE *out)
{
	if (r->kind != NUMBER)
		fputs(r->choices ? r->choices : "", out);
	else if (r->max == NO_LIMIT)
		fprintf(out, "%lld-", (long long)r->min);
	else
		fprintf(out, "%lld-%lld", (long long)r->min, (long long)r->max);
}

void settings_describe(FILE *out)
{
	for (size_t i = 0; i < ROWS; i++) {
		fprintf(out, "%s\t%s\t", rows[i].name, rows[i].fallback ? rows[i].fallback : "");
		print_values(&rows[i], out);
		fprintf(out, "\t%s\n", rows[i].help);
	}
}
