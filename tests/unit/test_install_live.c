/* Installing packages over the real engine: a small wheel in a folder that the sandbox's own pip is
 * told of, so that nothing outside is needed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "core/install.h"
#include "live_run.h"

/* A wheel is a zip file with a module, three files of metadata, and the hashes of them all. */
static const char MAKE_WHEELS[] =
	"import base64, hashlib, os, zipfile\n"
	"folder = os.path.expanduser('~/wheels')\n"
	"os.makedirs(folder)\n"
	"os.makedirs(os.path.expanduser('~/.config/pip'))\n"
	"with open(os.path.expanduser('~/.config/pip/pip.conf'), 'w') as f:\n"
	"    f.write(f'[global]\\nfind-links = {folder}\\n')\n"
	"def digest(text):\n"
	"    raw = hashlib.sha256(text.encode()).digest()\n"
	"    return base64.urlsafe_b64encode(raw).rstrip(b'=').decode()\n"
	"for name, version in ('sgt_one', '1.0'), ('sgt_one', '1.5'), ('sgt_two.b', '2.0'):\n"
	"    info = f'{name}-{version}.dist-info'\n"
	"    files = {\n"
	"        f'{name.split(\".\")[0]}/__init__.py': f'VERSION = {version!r}\\n',\n"
	"        f'{info}/METADATA': f'Metadata-Version: 2.1\\nName: {name}\\nVersion: "
	"{version}\\n'\n"
	"                            'Provides-Extra: more\\n',\n"
	"        f'{info}/WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: "
	"true\\n'\n"
	"                         'Tag: py3-none-any\\n',\n"
	"    }\n"
	"    record = ''.join(f'{path},sha256={digest(text)},{len(text.encode())}\\n'\n"
	"                     for path, text in files.items())\n"
	"    files[f'{info}/RECORD'] = record + f'{info}/RECORD,,\\n'\n"
	"    with zipfile.ZipFile(f'{folder}/{name}-{version}-py3-none-any.whl', 'w') as wheel:\n"
	"        for path, text in files.items():\n"
	"            wheel.writestr(path, text)\n";

static void make_wheels(void)
{
	struct run_report r = COMMAND(60, -1, "python3", "-c", MAKE_WHEELS);
	if (r.state != EXECUTION_SUCCEEDED)
		fail_msg("%s", log_text(r.id));
}

static struct run_report install_packages(const char *const *packages, int limit, int client_fd)
{
	static struct install_plan plan;
	struct run_report report;
	const struct run_request base = {
		.row = &row, .limit_secs = limit, .client_fd = client_fd, .wake_fd = -1
	};
	plan.n = 0;
	for (size_t i = 0; packages[i]; i++)
		WORKS(install_add(&plan, packages[i], strlen(packages[i]), &err));
	WORKS(install_run(&core, &base, &plan, &report, &err));
	return report;
}

#define INSTALL(limit, client_fd, ...)                                                             \
	install_packages((const char *const[]){ __VA_ARGS__, NULL }, limit, client_fd)

static void assert_succeeded(const struct run_report *r)
{
	if (r->end != RUN_ENDED || r->state != EXECUTION_SUCCEEDED)
		fail_msg("end %d, state %d: %s", r->end, r->state, log_text(r->id));
	assert_true(r->has_exit_code);
	assert_int_equal(r->exit_code, 0);
}

/* Run code that must work, and compare its value. */
static void assert_value(const char *code, const char *value)
{
	struct run_report r = run(code, 30, -1);
	if (r.state != EXECUTION_SUCCEEDED)
		fail_msg("%s", log_text(r.id));
	assert_member(&r, "text", value);
}

static void installed_and_imported_by_the_same_kernel(void **state)
{
	(void)state;
	ensure("import");
	make_wheels();
	/* A kernel that began without the user's folder, has looked in vain, and has names. */
	assert_value("import os, site, sys\nhome = site.getusersitepackages()\n"
		     "sys.path[:] = [p for p in sys.path if p != home]\n"
		     "os.path.exists(home)",
		     "False");
	struct run_report r = run("import sgt_one", 30, -1);
	assert_string_equal(r.error_name, "ModuleNotFoundError");
	assert_value("exec = print = None\nnames = 'mine'\nbefore = set(globals())\n1", "1");
	r = INSTALL(120, -1, "sgt_one[more] < 1.5", "SGT-two.B");
	assert_succeeded(&r);
	assert_member(&r, "success", "true");
	struct execution_row e = row_of(r.id);
	assert_int_equal(e.kind, EXECUTION_INSTALL);
	assert_string_equal(e.input, "sgt_one[more]<1.5 SGT-two.B");
	assert_non_null(strstr(log_text(r.id), "Successfully installed"));
	assert_null(strstr(log_text(r.id), "sandgate-"));
	/* IPython's own numbered history is all that may be new. */
	assert_value("sorted(n for n in set(globals()) - before if n != 'before' and "
		     "n.lstrip('_i').strip('0123456789')), names",
		     "([], 'mine')");
	assert_value("import sgt_one, sgt_two\nsgt_one.VERSION, sgt_two.VERSION", "('1.0', '2.0')");
	r = INSTALL(120, -1, "sgt_one"); /* which is there */
	assert_succeeded(&r);
	assert_non_null(strstr(log_text(r.id), "already satisfied"));
	stop("import");
}

static void an_unknown_package(void **state)
{
	(void)state;
	struct json_object *v;
	ensure("unknown");
	make_wheels();
	struct run_report r = INSTALL(120, -1, "sgt_one", "sgt_no_such_package");
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_int_equal(r.exit_code, 1);
	assert_int_equal(row_of(r.id).exit_code, 1);
	struct json_object *o = result_of(&r);
	assert_true(json_object_object_get_ex(o, "success", &v) && !json_object_get_boolean(v));
	assert_true(json_object_object_get_ex(o, "exit_code", &v));
	assert_int_equal(json_object_get_int(v), 1);
	assert_true(json_object_object_get_ex(o, "error", &v));
	assert_non_null(strstr(json_object_get_string(v), "No matching distribution found"));
	assert_non_null(strstr(json_object_get_string(v), "sgt_no_such_package"));
	json_object_put(o);
	stop("unknown");
}

/* pip that only says what it would do. */
static void success_that_cannot_be_seen(void **state)
{
	(void)state;
	ensure("unseen");
	make_wheels();
	COMMAND(20, -1, "python3", "-c",
		"import os\nwith open(os.path.expanduser('~/.config/pip/pip.conf'), 'a') as f:\n"
		"    f.write('[install]\\ndry-run = true\\n')");
	struct run_report r = INSTALL(120, -1, "sgt_one==1.0", "pip", "sgt_two.b");
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_true(r.has_exit_code);
	assert_int_equal(r.exit_code, 0);
	assert_member(&r, "success", "false");
	assert_member(&r, "error",
		      "PackageNotFoundError: pip reported success, but the running interpreter "
		      "cannot see: sgt_one, sgt_two.b");
	stop("unseen");
}

/* A kernel whose output goes elsewhere cannot answer, so a new interpreter is asked. */
static void a_kernel_that_does_not_answer(void **state)
{
	(void)state;
	ensure("mute");
	make_wheels();
	run("import os, sys\nsys.stdout = open(os.devnull, 'w')", 20, -1);
	struct run_report r = INSTALL(120, -1, "sgt_one");
	assert_succeeded(&r);
	assert_value("import sgt_one\nsgt_one.VERSION", "1.5");
	stop("mute");
}

static void without_an_interpreter(void **state)
{
	(void)state;
	ensure_custom("none");
	make_wheels();
	int64_t from = clock_mono_us();
	struct run_report r = INSTALL(120, -1, "sgt_one");
	assert_succeeded(&r);
	assert_false(r.no_interpreter);
	assert_true(clock_mono_us() - from < 60 * SECOND_US);
	r = COMMAND(20, -1, "python3", "-c", "import sgt_one; print(sgt_one.VERSION)");
	assert_string_equal(log_text(r.id), "o:1.5\n.");
	stop("none");
}

/* pip waits for a server that takes connections and says nothing. */
static void hang_pip(void)
{
	struct run_report r =
		run("import os, socket\nsilent = socket.socket()\n"
		    "silent.bind(('127.0.0.1', 0))\nsilent.listen()\n"
		    "os.makedirs(os.path.expanduser('~/.config/pip'), exist_ok=True)\n"
		    "with open(os.path.expanduser('~/.config/pip/pip.conf'), 'w') as f:\n"
		    "    f.write('[global]\\nfind-links = http://127.0.0.1:%d/\\n' % "
		    "silent.getsockname()[1])",
		    20, -1);
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
}

static void a_client_that_leaves_ends_pip(void **state)
{
	(void)state;
	int fd;
	ensure("leaves");
	hang_pip();
	pid_t client = client_for(3000, &fd);
	int64_t from = clock_mono_us();
	struct run_report r = INSTALL(300, fd, "sgt_one");
	assert_true(clock_mono_us() - from < 30 * SECOND_US);
	assert_int_equal(r.end, RUN_LEFT);
	assert_int_equal(r.state, EXECUTION_CANCELLED);
	assert_false(r.has_exit_code);
	assert_no_process("pip");
	waitpid(client, NULL, 0);
	close(fd);
	stop("leaves");
}

static void the_limit_ends_pip(void **state)
{
	(void)state;
	ensure("limit");
	hang_pip();
	int64_t from = clock_mono_us();
	struct run_report r = INSTALL(3, -1, "sgt_one");
	assert_true(clock_mono_us() - from >= 3 * SECOND_US);
	assert_int_equal(r.end, RUN_TIMED_OUT);
	assert_no_process("pip");
	stop("limit");
}

static void a_sandbox_that_was_gone_before(void **state)
{
	(void)state;
	ensure("before");
	WORKS(e2b_kill(core.e2b, row.sandbox_id, NULL, NULL, &err));
	struct run_report r = INSTALL(20, -1, "sgt_one");
	assert_int_equal(r.end, RUN_LOST);
	assert_true(r.not_run); /* so another sandbox may be tried */
	stop("before");
}

static void a_plan_and_its_bounds(void **state)
{
	(void)state;
	static struct install_plan plan;
	struct run_report report;
	const struct run_request base = { .row = &row, .client_fd = -1, .wake_fd = -1 };
	assert_int_equal(install_run(&core, &base, &plan, &report, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_int_equal(install_add(&plan, "-r x", 4, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_int_equal(install_add(&plan, "x\0y", 3, &err), -1);
	assert_int_equal(plan.n, 0);
	for (int i = 0; i < INSTALL_PACKAGES_MAX; i++)
		WORKS(install_add(&plan, "x", 1, &err));
	assert_int_equal(install_add(&plan, "x", 1, &err), -1);
	assert_int_equal(err.code, ERR_LIMIT);
}

int main(void)
{
	setenv("SANDGATE_CUSTOM_TEMPLATE_ID", "base", 1);
	if (live_core_start("code-interpreter-v1") < 0)
		return 1;
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_plan_and_its_bounds),
		T(installed_and_imported_by_the_same_kernel),
		T(an_unknown_package),
		T(success_that_cannot_be_seen),
		T(a_kernel_that_does_not_answer),
		T(without_an_interpreter),
		T(a_client_that_leaves_ends_pip),
		T(the_limit_ends_pip),
		T(a_sandbox_that_was_gone_before),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	live_core_stop();
	return failed;
}
