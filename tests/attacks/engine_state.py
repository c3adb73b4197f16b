"""Finds the engine: its environment, command line, open files and what it keeps on disk.

holds: pid namespace, mount namespace
unconfined: root
"""
import os

from kit.attack import decoys, has_secret, processes, read, tries


def others():
    return [pid for pid in processes() if pid != os.getpid()]


def search(name):
    def look():
        for pid in others():
            try:
                if has_secret(read(f"/proc/{pid}/{name}")):
                    return f"/proc/{pid}/{name}"
            except OSError:
                continue
    return look


def command_lines():
    for pid in others():
        try:
            if b"--state" in read(f"/proc/{pid}/cmdline"):
                return read(f"/proc/{pid}/cmdline")
        except OSError:
            continue


def open_files():
    for pid in others():
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if decoys["state"] in os.readlink(f"/proc/{pid}/fd/{fd}"):
                    return f"/proc/{pid}/fd/{fd}"
        except OSError:
            continue


tries({"environment": search("environ"), "command line": command_lines, "open files": open_files,
       "state": lambda: os.listdir(decoys["state"])})
