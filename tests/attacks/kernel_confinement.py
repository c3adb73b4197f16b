"""Compares the confinement of this process with that of a command that the same user ran.

A kernel that comes from elsewhere (a fork of something that was prepared outside) must not have
brought along anything: ids, capabilities, namespaces, limits, filters, files, mappings, names.

holds: seccomp, user namespace, rlimits
unconfined: root
as: user, kernel
"""
import os
import re

from kit.attack import decoys, has_secret, read, tries
from kit.confinement import confinement

mine, expected = confinement(), decoys["confinement"]
NAMES = ("SANDGATE_", "E2B_API", "zygote", decoys["state"])


def difference():
    return {k: (mine[k], expected[k]) for k in expected if mine[k] != expected[k]}


def foreign_files():
    """Open files other than pipes, sockets and what has a name in here."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the folder itself
        if re.match(r"(pipe|socket):\[|anon_inode:\[(eventpoll|eventfd)\]|/proc/\d+/fd$|/dev/null$", target):
            continue
        if not os.path.exists(target):
            found.append(target)
    return found


def directories():
    """A directory that was opened outside is a way out (its ..)."""
    return [target for target in (os.readlink(f"/proc/self/{name}") for name in ("cwd", "root", "exe")) if not os.path.exists(target) or "(unreachable)" in target]


def foreign_mappings():
    paths = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if len(line.split(None, 5)) > 5}
    return [p for p in paths if p.startswith("/") and not os.path.exists(p) or "memfd:" in p]


def names():
    """Without what the test itself has put into the environment."""
    text = b"".join(read(f"/proc/self/{name}") for name in ("cmdline", "comm", "mountinfo")).decode("latin1")
    told = read("/proc/self/environ").decode("latin1").split("\0") + [f"{k}={v}" for k, v in os.environ.items()]
    text += "\n".join(line for line in told if not line.startswith("ATTACK_"))
    return has_secret(text) and "the secret" or [n for n in NAMES if n in text]


def parents():
    """Up to pid 1, or to the outside, of which nothing but its absence can be seen: none is privileged but that one."""
    pid, found = os.getppid(), []
    while pid > 1:
        status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
        if status["CapEff"].strip().strip("0") or status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2":
            found.append(pid)
        pid = int(status["PPid"])
    return found


tries({"difference": difference, "files": foreign_files, "directories": directories, "mappings": foreign_mappings, "names": names, "parents": parents},
      absent=("files", "directories", "mappings", "names", "parents"))
