/* sandgatectl: the operator's tool. Every command is a row of the table below; the program finds
 * the row, gives it the rest of the command line and sees to it that what was printed has arrived.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/version.h"
#include "ctl/ctl.h"

static const struct command {
	const char *name; /* one word or two */
	ctl_command *run;
	const char *usage; /* what may follow the name */
	const char *help;
} commands[] = {
	{ "token create", ctl_token_create,
	  "--user NAME [--admin] [--session ID] [--scope LIST] [--ttl TIME]",
	  "Makes an access token and prints its secret, which is shown only this once.\n"
	  "  --user NAME     whose it is: the owner of all that is made with it\n"
	  "  --admin         for an administrator, with every scope\n"
	  "  --session ID    it opens this session only\n"
	  "  --scope LIST    of read,run,write,admin; without it read,run,write\n"
	  "  --ttl TIME      it ends after 90s, 15m, 1h, 7d; without it never\n" },
	{ "token list", ctl_token_list, "[--json]",
	  "Lists all tokens, oldest first, without their secrets.\n"
	  "  --json          one JSON object a line\n" },
	{ "token revoke", ctl_token_revoke, "ID",
	  "Ends a token at once; ID is the one that starts with t_.\n" },
	{ "list", ctl_list, "[--all] [--user NAME] [--json]",
	  "Lists sandboxes that have not ended, newest first.\n"
	  "  --all           ended ones, too\n"
	  "  --user NAME     only this user's\n"
	  "  --json          one JSON object a line\n" },
	{ "kill", ctl_kill, "SANDBOX_ID | --user NAME --session ID",
	  "Ends a sandbox, or the live one of a session, whatever it is doing.\n" },
	{ "config", ctl_config, "[--describe]",
	  "Prints the settings in force, secrets masked.\n"
	  "  --describe      every setting's name, default, values and meaning instead\n" },
	{ "routes", ctl_routes, "",
	  "Prints every route: method, path, who may use it, the scope it needs, its pool.\n" },
	{ "nginx-map", ctl_nginx_map, "",
	  "Prints nginx's map from method and path to the pool that serves it.\n" },
};

#define COMMANDS (sizeof commands / sizeof *commands)

static void print_usage(const struct command *c)
{
	printf("  sandgatectl [-c FILE] %s%s%s\n", c->name, *c->usage ? " " : "", c->usage);
}

/* Both return 1: there is nothing left to do. */

static int print_help(void)
{
	puts("Usage: sandgatectl [-c FILE] COMMAND [ARGUMENT...]\n"
	     "The operator's tool of a Sandgate gateway.\n");
	for (size_t i = 0; i < COMMANDS; i++)
		print_usage(&commands[i]);
	puts("\n"
	     "  -c FILE         settings, KEY=value lines; the environment wins over the file\n"
	     "  --help          this text, or behind a command all about it\n"
	     "  --version       the version\n"
	     "\n"
	     "Exit status: 0 done, 1 failed, 2 the command line or a setting is wrong.");
	return 1;
}

static int print_version(void)
{
	puts("sandgatectl " SANDGATE_VERSION);
	return 1;
}

static bool is_help(const char *arg)
{
	return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

/* How many words of argv are the command's name: 0 when they are not. */
static int words_matched(const char *name, int argc, char **argv)
{
	int words = 0;
	while (words < argc) {
		size_t n = strlen(argv[words]);
		if (n == 0 || strncmp(name, argv[words], n) != 0)
			return 0;
		words++;
		if (name[n] == '\0')
			return words;
		if (name[n] != ' ')
			return 0;
		name += n + 1;
	}
	return 0;
}

/* Whether the word is the first of two in some command's name; prints those when print is set. */
static bool is_family(const char *word, bool print)
{
	size_t n = strlen(word);
	bool found = false;
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strncmp(commands[i].name, word, n) != 0 || commands[i].name[n] != ' ')
			continue;
		found = true;
		if (print)
			print_usage(&commands[i]);
	}
	return found;
}

static int run_command(struct ctl *ctl, const struct command *c, int argc, char **argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (!is_help(argv[i]))
			continue;
		puts("Usage:");
		print_usage(c);
		printf("\n%s", c->help);
		return CTL_OK;
	}
	return c->run(ctl, argc, argv);
}

static int dispatch(struct ctl *ctl, int argc, char **argv)
{
	struct err err;
	for (size_t i = 0; i < COMMANDS; i++) {
		int words = words_matched(commands[i].name, argc, argv);
		if (words)
			return run_command(ctl, &commands[i], argc - words, argv + words);
	}
	if (argc >= 2 && is_help(argv[1]) && is_family(argv[0], true))
		return CTL_OK;
	bool family = is_family(argv[0], false);
	if (family && argc == 1)
		err_set(&err, ERR_INVALID, "what about %s? sandgatectl %s --help lists it", argv[0],
			argv[0]);
	else
		err_set(&err, ERR_INVALID,
			"there is no command '%s%s%s'; sandgatectl --help lists them", argv[0],
			family ? " " : "", family ? argv[1] : "");
	return ctl_usage(&err);
}

/* What stands before the command: *next becomes its place. 1 when there is nothing left to do. */
static int read_globals(struct ctl *ctl, int argc, char **argv, int *next, struct err *err)
{
	int i = 1;
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (is_help(argv[i]))
			return print_help();
		if (!strcmp(argv[i], "--version"))
			return print_version();
		if (strcmp(argv[i], "-c") != 0)
			return err_set(err, ERR_INVALID, "there is no option '%s' before a command",
				       argv[i]);
		if (++i == argc || !*argv[i])
			return err_set(err, ERR_INVALID, "-c needs a file");
		ctl->file = argv[i];
	}
	*next = i;
	return i < argc ? 0
			: err_set(err, ERR_INVALID, "which command? sandgatectl --help lists them");
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	struct err err;
	int next = 0, done = read_globals(ctl, argc, argv, &next, &err);
	if (done < 0)
		return ctl_usage(&err);
	return done ? CTL_OK : dispatch(ctl, argc - next, argv + next);
}

int main(int argc, char **argv)
{
	_cleanup_(ctl_free) struct ctl ctl = { 0 };
	struct err err;
	signal(SIGPIPE, SIG_IGN); /* a reader that has gone is an error like any other */
	int status = run(&ctl, argc, argv);
	if ((fflush(stdout) != 0 || ferror(stdout)) && status == CTL_OK) {
		err_errno(&err, "standard output");
		return ctl_fail(&err);
	}
	return status;
}
