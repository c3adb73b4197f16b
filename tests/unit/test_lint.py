"""tests/lint goes red for each kind of violation, and for nothing else."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent


def page(name, section, *lines):
    head = [".Dd November 18, 2026", f".Dt {name.upper()} {section}", ".Os", ".Sh NAME", f".Nm {name}", ".Nd example"]
    return "\n".join([*head, ".Sh DESCRIPTION", *lines]) + "\n"


CLEAN = {
    "src/engine.c": '#include "base/buf.h"\n#include "engine/http.h"\n#include "wire/lines.h"\n',
    "src/engine/http.h": "int http_start(void);\n",
    "src/engine/http.c": '#include "http.h"\n#include "wire/lines.h"\n',
    "src/wire/lines.h": '#include "base/buf.h"\n',
    "src/base/buf.h": "/* Not sprintf(), not strcpy(). */\nint buf_printf(void);\n",
    "src/e2b/client.c": "#include <curl/curl.h>\n",
    "src/store/rows.c": "#include <sqlite3.h>\n",
    "src/web/accept.c": "#include <fcgiapp.h>\n",
    "src/api/routes.c": '#include "web/accept.h"\n',
    "src/base/settings.c": "int settings;\n",
    "src/ctl.c": "int ctl;\n",
    "table": "SANDGATE_ROOM\t5\t1-9\thow much\nSANDGATE_NAME\t\t\twhose\nSANDGATE_MODE\ta\ta|b\thow\n",
    "etc/sandgate.conf": "# How much\n#SANDGATE_ROOM=5\n#SANDGATE_NAME=\nSANDGATE_NAME=us\n#SANDGATE_MODE=a\n",
    "man/sandgate.conf.5": page(
        "sandgate.conf",
        5,
        "See",
        ".Xr sandgatectl 8 .",
        ".Bl -tag -width Ds",
        ".It Ev SANDGATE_ROOM\nDefault: 5.\nRange: 1 to 9.\nHow much.",
        ".It Ev SANDGATE_NAME\nDefault: none.\nWhose.",
        ".It Ev SANDGATE_MODE\nDefault: a.\nValues: a, b.\nHow.",
        ".El",
    ),
    "man/sandgatectl.8": page("sandgatectl", 8, "It takes", ".Fl c", "and", ".Fl -help ."),
    "man/sandgate-engine.8": page("sandgate-engine", 8, "It takes", ".Fl -help ."),
    "nginx/pools.map": "as the route table says\n",
    "tests/unit/test_buf.c": '#include "base/buf.h"\n',
    "tests/fuzz/corpus/lines/ends": "a line \r\nno newline",
    "tests/package-lock.json": '{\n  "lockfileVersion": 3\n}\n',
    "tools/go": '#!/bin/bash\nt=$(mktemp /tmp/go.XXXXXX)\nrm -f "$t"\n',
}

CTL = """case $1 in
nginx-map) echo as the route table says ;;
config) cat table ;;
--help) echo '  -c FILE  and --help'; cat help 2>/dev/null || true ;;
esac
"""

# rule -> plants; each plant is (file, text added to it)
VIOLATIONS = {
    "includes follow the layers": [
        ("src/engine/http.c", '#include "core/claim.h"\n'),
        ("src/wire/lines.h", '#include "engine/http.h"\n'),
        ("src/wire/lines.h", '#include "../engine/http.h"\n'),
        ("src/base/buf.h", '#include "wire/lines.h"\n'),
        ("src/agent/spawn.c", '#include "engine/http.h"\n'),
        ("src/api/routes.c", '#include "engine/http.h"\n'),
        ("src/core/claim.c", '#include "web/accept.h"\n'),
        ("src/engine.c", '#include "store/rows.h"\n'),
        ("src/strange/new.c", "int strange_new;\n"),
    ],
    "a library's header is included by its owner only": [
        ("src/engine/http.c", "#include <curl/curl.h>\n"),
        ("src/e2b/client.c", "#include <sqlite3.h>\n"),
        ("src/engine.c", "#include <fcgiapp.h>\n"),
    ],
    "no banned function is called": [
        ("src/base/buf.c", f"int buf_bad(void)\n{{\n\treturn {call};\n}}\n")
        for call in (
            'sprintf(p, "x")',
            "strcpy(a, b) != 0",
            "strcat(a, b) != 0",
            "strtok(a, b) != 0",
            'atoi("1")',
            "gets(a) != 0",
            'system("x")',
            'popen("x", "r") != 0',
            "alloca(1) != 0",
        )
    ]
    + [("tests/unit/test_buf.c", "int x = atoi(0);\n")],
    "C is formatted by .clang-format": [
        ("src/base/buf.c", "int  buf_bad( void ) { return 1; }\n"),
        ("tests/unit/test_buf.c", "int   x;\n"),
    ],
    "file names say what is inside": [
        (f"src/base/{name}", "int x;\n")
        for name in ("util.c", "common.h", "misc.c", "shared.c", "helpers.h")
    ],
    "no path of this machine is named": [
        ("docs/use.md", "cd {top}/src\n"),
        ("docs/use.md", "see '{home}'\n"),
    ],
    "nothing is marked as unfinished": [
        ("src/base/buf.c", f"/* {word}: later */\n") for word in ("TO" "DO", "FIX" "ME", "X" "XX")
    ],
    "nginx's map of pools is the route table's": [("nginx/pools.map", "and more\n")],
    "manual and sample have the settings of the table": [
        ("table", "SANDGATE_NEW\t\t\tin neither of them\n"),
        ("table", "SANDGATE_ROOM\t6\t1-9\tanother default\n"),
        ("table", "SANDGATE_ROOM\t5\t1-10\tanother range\n"),
        ("table", "SANDGATE_MODE\ta\ta|b|c\tanother value\n"),
        ("man/sandgate.conf.5", ".Bl -tag -width Ds\n.It Ev SANDGATE_OLD\nDefault: none.\nGone.\n.El\n"),
        ("man/sandgate.conf.5", ".Bl -tag -width Ds\n.It Ev SANDGATE_NAME\nDefault: none.\nAgain.\n.El\n"),
        ("etc/sandgate.conf", "#SANDGATE_OLD=\n"),
        ("etc/sandgate.conf", "#SANDGATE_ROOM=5\n"),
        ("etc/sandgate.conf", "SANDGATE_OLD=1\n"),
    ],
    "manual pages are clean": [
        ("man/sandgatectl.8", ".Xr sandgate-none 8\n"),
        ("man/sandgatectl.8", ".Bogus\n"),
        ("man/sandgatectl.8", "A sentence. Another one on the same line.\n"),
    ],
    "manual pages have their programs' options": [
        ("man/sandgatectl.8", ".Fl -gone\n"),
        ("help", "  --new    what the page does not know\n"),
    ],
    "lock files name no download address": [
        ("tests/package-lock.json", '{ "resolved": "somewhere" }\n'),
    ],
    "shell scripts parse": [("tools/go", "if true; then\n")],
    "lines end cleanly": [
        ("docs/use.md", "a line \n"),
        ("docs/use.md", "a tab\t\n"),
        ("docs/use.md", "no newline"),
        ("docs/use.md", "two ends\r\n"),
    ],
}


class Lint(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.top = self.folder / "checkout"
        for name, text in CLEAN.items():
            self.add(name, text)
        shutil.copy(TOP / ".clang-format", self.top)
        self.program("sandgatectl", CTL)
        self.program("sandgate-engine", "echo '  --help  this text; not that of `sandgatectl --user`'\n")

    def program(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\ncd {self.top}\n{script}")
        path.chmod(0o755)

    def add(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", newline="") as file:
            file.write(text.replace("{top}", str(self.top)).replace("{home}", str(self.folder / "me")))

    def red_rules(self):
        env = {**os.environ, "HOME": str(self.folder / "me"), "SANDGATE_BUILD": str(self.folder)}
        done = subprocess.run([TOP / "tests/lint", self.top], env=env, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        self.assertEqual(len([l for l in lines if l.startswith(("ok ", "not ok "))]), len(VIOLATIONS))
        red = [l.split(" - ", 1)[1] for l in lines if l.startswith("not ok ")]
        self.assertEqual(done.returncode, 1 if red else 0, done.stdout + done.stderr)
        return red

    def test_clean_tree_is_green(self):
        self.assertEqual(self.red_rules(), [])

    def test_clean_tree_is_green_in_git(self):
        self.add(".gitignore", "/build/\n")
        self.add("build/util.c", "bad \n")
        subprocess.run(["git", "init", "-q", self.top], check=True)
        self.assertEqual(self.red_rules(), [])


def planted(rule, plants):
    def test(self):
        for name, text in plants:
            path = self.top / name
            before = path.read_text() if path.exists() else None
            self.add(name, text)
            self.assertEqual(self.red_rules(), [rule], f"{name}: {text!r}")
            if before is None:
                path.unlink()
            else:
                path.write_text(before)

    return test


for number, (title, planting) in enumerate(VIOLATIONS.items(), 1):
    words = "".join(c if c.isalnum() else "_" for c in title)
    setattr(Lint, f"test_red_{number:02}_{words}", planted(title, planting))

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import tap
    tap.run(sys.modules[__name__])
