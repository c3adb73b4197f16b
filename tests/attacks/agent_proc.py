"""Looks into the agent through /proc: environment, memory map, open files, root, program, stack.

holds: pid namespace
unconfined: root
"""
import os

from kit.attack import decoys, read, tries, unconfined

of = f"/proc/{decoys['pid'] if unconfined else 1}/"


def content(name):
    return lambda: len(read(of + name)) > 0 and name


def link(name):
    return lambda: os.readlink(of + name) and name


def open_files():
    """Their numbers may be seen, not what they are."""
    return [os.readlink(f"{of}fd/{fd}") for fd in os.listdir(of + "fd")]


def program():
    """As runc's was once overwritten: by the link to what runs."""
    return os.open(of + "exe", os.O_RDONLY) and "the agent's program"


tries({**{n: content(n) for n in ("environ", "maps", "auxv", "stack", "syscall", "io")}, **{n: link(n) for n in ("exe", "cwd", "root", "fd/0", "ns/user", "ns/mnt")},
       "open files": open_files, "program": program, "through root": lambda: os.listdir(of + "root/")},
      absent=("stack", "io", "syscall"))
