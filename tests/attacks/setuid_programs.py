"""Becomes root by a setuid program: one that root of the sandbox made, and those of the system.

The runner has planted a setuid copy of `id`; unconfined it is the decoys', and this runs as nobody.

holds: mount namespace, seccomp
unconfined: nobody
as: user, kernel
"""
import os
import re
import subprocess

from kit.attack import decoys, tries, unconfined


def planted():
    path = decoys["setuid"] if unconfined else decoys.get("setuid_inside", "/usr/bin/id")
    text = subprocess.run([path], capture_output=True, text=True).stdout
    return re.search(r"euid=0|uid=0\(root\) gid", text) and text


def of_system(*command):
    def run():
        if not os.path.exists(command[0]):
            return None
        text = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10).stdout
        return "uid=0" in text and command
    return run


tries({"planted": planted, "su": of_system("/usr/bin/su", "-c", "id"), "sudo": of_system("/usr/bin/sudo", "-n", "id")},
      absent=("su", "sudo"))
