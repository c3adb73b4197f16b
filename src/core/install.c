#include "core/install.h"

#include <stdio.h>
#include <string.h>

#include "wire/jsontext.h"

#define PYTHON_MAX 1024
#define ANSWER_MAX (64u << 10) /* of a quiet call's stdout */
#define LIST_MAX   (INSTALL_PACKAGES_MAX * (PACKAGE_MAX + 4))

#define MARK_PYTHON  "sandgate-python:"
#define MARK_MISSING "sandgate-missing:"

static const char *const PIP[] = { "-m",         "pip",
				   "install",    "--disable-pip-version-check",
				   "--no-input", "--progress-bar",
				   "off",        "--" };
#define PIP_WORDS (sizeof PIP / sizeof *PIP)

/* Both run with a namespace of their own, so that nothing is left in the user's. */
static const char WHICH_PYTHON[] = "import sys\n"
				   "print('\\n" MARK_PYTHON "' + (sys.executable or ''))\n";

/* A folder that did not exist when the interpreter began is not on its path, and what was not there
 * at its last look is remembered as missing. A virtual environment has no user's folder. */
static const char LOOK[] = "import importlib, importlib.metadata, os, site, sys\n"
			   "importlib.invalidate_caches()\n"
			   "if sys.prefix == sys.base_prefix:\n"
			   "    user = site.getusersitepackages()\n"
			   "    if os.path.isdir(user) and user not in sys.path:\n"
			   "        site.addsitedir(user)\n"
			   "def missing(name):\n"
			   "    try:\n"
			   "        importlib.metadata.distribution(name)\n"
			   "    except importlib.metadata.PackageNotFoundError:\n"
			   "        return True\n"
			   "names = globals().get('names') or sys.argv[1:]\n"
			   "print('\\n" MARK_MISSING "' + ' '.join(filter(missing, names)))\n";

/* An installation while it runs. */
struct installing {
	const struct install_plan *plan;
	char python[PYTHON_MAX];
	bool no_interpreter;
	struct buf said; /* the end of pip's stderr */
	const char *argv[1 + PIP_WORDS + INSTALL_PACKAGES_MAX + 1];
};

int install_add(struct install_plan *plan, const char *requirement, size_t n, struct err *err)
{
	if (plan->n == INSTALL_PACKAGES_MAX)
		return err_set(err, ERR_LIMIT, "at most %d packages can be installed at once",
			       INSTALL_PACKAGES_MAX);
	if (package_parse(requirement, n, &plan->packages[plan->n], err) < 0)
		return -1;
	plan->n++;
	return 0;
}

/* ---- asking the interpreter ---- */

/* The rest of the line that the mark begins. -1: it is not there, or does not fit. */
static int find_answer(const struct buf *out, const char *mark, char *answer, size_t cap)
{
	const char *at = out->len ? memmem(out->p, out->len, mark, strlen(mark)) : NULL;
	if (!at)
		return -1;
	at += strlen(mark);
	const char *stop = memchr(at, '\n', (size_t)(out->p + out->len - at));
	size_t n = stop ? (size_t)(stop - at) : cap;
	if (n >= cap || memchr(at, '\0', n))
		return -1;
	memcpy(answer, at, n);
	answer[n] = '\0';
	return 0;
}

/* exec(SCRIPT, {"names": [...]}), in ASCII: a string of JSON is one of Python, too. The user may
 * have given the name exec to something else. */
static int put_exec(struct buf *code, const char *script, const struct install_plan *plan)
{
	int rc = buf_adds(code, "__import__('builtins').exec(");
	rc |= json_put_string(code, script, strlen(script));
	rc |= buf_adds(code, ", {'names': [");
	for (size_t i = 0; plan && i < plan->n; i++) {
		rc |= buf_adds(code, i ? ", " : "");
		rc |= json_put_string(code, plan->packages[i].name, strlen(plan->packages[i].name));
	}
	return rc | buf_adds(code, "]})");
}

static int ask_kernel(struct installing *in, struct running *r, const char *script,
		      const struct install_plan *plan, struct buf *out, struct err *err)
{
	struct buf code = BUF(2 * LIST_MAX + 8192);
	int rc = put_exec(&code, script, plan);
	if (rc == 0)
		rc = run_quiet_code(r, code.p, code.len, out, &in->no_interpreter, err);
	else
		rc = err_set(err, ERR_INTERNAL, "no memory");
	buf_free(&code);
	return rc;
}

/* ---- the steps ---- */

static int find_python(void *ctx, struct running *r, struct err *err)
{
	struct installing *in = ctx;
	struct buf out = BUF(ANSWER_MAX);
	int rc = ask_kernel(in, r, WHICH_PYTHON, NULL, &out, err);
	if (rc == 0 && (find_answer(&out, MARK_PYTHON, in->python, sizeof in->python) < 0 ||
			in->python[0] != '/'))
		snprintf(in->python, sizeof in->python, "python3");
	buf_free(&out);
	return rc;
}

static bool has_word(const char *list, const char *word)
{
	const size_t n = strlen(word);
	for (const char *p = list; *p;) {
		size_t k = strcspn(p, " ");
		if (k == n && !memcmp(p, word, n))
			return true;
		p += k;
		p += strspn(p, " ");
	}
	return false;
}

/* Fail with the sentence and those names that are in the list; with NULL all of them. */
static void fail(const struct installing *in, struct running *r, const char *sentence,
		 const char *list)
{
	struct buf text = BUF(LIST_MAX + 256);
	const char *between = ": ";
	buf_adds(&text, sentence);
	for (size_t i = 0; i < in->plan->n; i++) {
		const char *name = in->plan->packages[i].name;
		if (list && !has_word(list, name))
			continue;
		buf_addf(&text, "%s%s", between, name);
		between = ", ";
	}
	run_fail(r, "PackageNotFoundError", text.p ? text.p : sentence);
	buf_free(&text);
}

static int ask_by_command(struct installing *in, struct running *r, struct buf *out,
			  struct err *err)
{
	const char *argv[3 + INSTALL_PACKAGES_MAX + 1] = { in->python, "-c", LOOK };
	for (size_t i = 0; i < in->plan->n; i++)
		argv[3 + i] = in->plan->packages[i].name;
	return run_quiet_command(r, argv, out, err);
}

/* Where the kernel cannot say it (there is none, or its output goes elsewhere), a new interpreter
 * is asked. */
static int look_for_packages(void *ctx, struct running *r, struct err *err)
{
	struct installing *in = ctx;
	struct buf out = BUF(ANSWER_MAX);
	char missing[LIST_MAX];
	int rc = in->no_interpreter ? 0 : ask_kernel(in, r, LOOK, in->plan, &out, err);
	int found = find_answer(&out, MARK_MISSING, missing, sizeof missing);
	if (rc == 0 && found < 0) {
		out.len = 0;
		rc = ask_by_command(in, r, &out, err);
		found = find_answer(&out, MARK_MISSING, missing, sizeof missing);
	}
	buf_free(&out);
	if (rc == 0 && found < 0)
		fail(in, r, "pip reported success, but the interpreter cannot say if it sees",
		     NULL);
	else if (rc == 0 && missing[0])
		fail(in, r, "pip reported success, but the running interpreter cannot see",
		     missing);
	return rc;
}

/* ---- why pip has failed ---- */

#define SAID_MAX (32u << 10)

static void on_stderr(void *ctx, const char *p, size_t n)
{
	struct buf *said = &((struct installing *)ctx)->said;
	if (n > SAID_MAX / 2) {
		p += n - SAID_MAX / 2;
		n = SAID_MAX / 2;
	}
	if (said->len + n > SAID_MAX)
		buf_drop(said, said->len + n - SAID_MAX);
	buf_add(said, p, n);
}

/* The first that fits counts: where there is no network, pip also finds no version. */
static const struct {
	const char *mark, *name, *sentence;
} causes[] = {
	{ "No space left on device", "NoSpace", "the sandbox's disk is full" },
	{ "Disk quota exceeded", "NoSpace", "the sandbox's disk is full" },
	{ "No usable temporary directory", "NoSpace", "the sandbox's disk is full" },
	{ "Temporary failure in name resolution", "NoNetwork",
	  "the sandbox cannot reach the package index: it has no network" },
	{ "Name or service not known", "NoNetwork",
	  "the sandbox cannot reach the package index: it has no network" },
	{ "Network is unreachable", "NoNetwork",
	  "the sandbox cannot reach the package index: it has no network" },
	{ "Failed to establish a new connection", "NoNetwork",
	  "the sandbox cannot reach the package index" },
	{ "ConnectTimeoutError", "NoNetwork", "the sandbox cannot reach the package index" },
	{ "ResolutionImpossible", "Conflict",
	  "the packages need versions that exclude each other" },
	{ "conflicting dependencies", "Conflict",
	  "the packages need versions that exclude each other" },
	{ "from versions: none", "NoSuchPackage", "the package index has no such package" },
	{ "Could not find a version that satisfies", "NoSuchVersion",
	  "the package index has no such version" },
	{ "No matching distribution found", "NoSuchPackage",
	  "the package index has no such package" },
};

/* What pip says last is mostly what it is about. */
static const char *last_error(struct buf *said)
{
	static const char mark[] = "ERROR: ";
	const char *found = "";
	for (const char *at = said->p; at && (at = strstr(at, mark)); at += sizeof mark - 1)
		found = at;
	said->p[(found - said->p) + strcspn(found, "\n")] = '\0';
	return found;
}

static void say_why(void *ctx, struct running *r)
{
	struct installing *in = ctx;
	char text[1024];
	if (!in->said.len)
		return;
	for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
		if (!memmem(in->said.p, in->said.len, causes[i].mark, strlen(causes[i].mark)))
			continue;
		const char *more = strstr(in->said.p, "ERROR: ") ? last_error(&in->said) : "";
		snprintf(text, sizeof text, "%s%s%.700s", causes[i].sentence, *more ? "\n" : "",
			 more);
		run_fail(r, causes[i].name, text);
		return;
	}
}

/* ---- running it ---- */

static int join(struct buf *out, const struct install_plan *plan)
{
	int rc = 0;
	for (size_t i = 0; i < plan->n; i++)
		rc |= buf_addf(out, "%s%s", i ? " " : "", plan->packages[i].requirement);
	return rc;
}

int install_run(struct core *c, const struct run_request *base, const struct install_plan *plan,
		struct run_report *out, struct err *err)
{
	struct installing in = { .plan = plan, .said = BUF(SAID_MAX) };
	const struct run_steps steps = { .before = find_python,
					 .after = look_for_packages,
					 .failed = say_why,
					 .heard = on_stderr,
					 .ctx = &in };
	struct buf input = BUF(LIST_MAX);
	size_t n = 0;
	if (!plan->n)
		return err_set(err, ERR_INVALID, "there are no packages to install");
	in.argv[n++] = in.python; /* filled in by the first step */
	for (size_t i = 0; i < PIP_WORDS; i++)
		in.argv[n++] = PIP[i];
	for (size_t i = 0; i < plan->n; i++)
		in.argv[n++] = plan->packages[i].requirement;
	if (join(&input, plan) < 0) {
		buf_free(&input);
		return err_set(err, ERR_INTERNAL, "no memory");
	}
	struct run_request req = *base;
	req.kind = EXECUTION_INSTALL;
	req.argv = in.argv;
	req.input = input.p;
	req.ninput = input.len;
	req.steps = &steps;
	int rc = run_execution(c, &req, out, err);
	buf_free(&input);
	buf_free(&in.said);
	return rc;
}
