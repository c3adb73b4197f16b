"""Changes the system's programs: writes, replaces, removes, renames, re-owns.

holds: mount namespace
unconfined: root
"""
import os

from kit.attack import decoys, tries, unconfined

system = decoys["system"] if unconfined else "/usr"
program = os.path.join(system, "bin/env")


def append():
    fd = os.open(program, os.O_WRONLY | os.O_APPEND)
    return os.write(fd, b" ") == 1 and program


def create():
    with open(os.path.join(system, "bin/planted"), "w") as f:
        return f.write("planted") and f.name


def chmod():
    os.chmod(program, 0o777)
    return "mode"


def chown():
    os.chown(program, os.getuid(), os.getgid())
    return "owner"


def stamp():
    os.utime(program, (1, 1))
    return "times"


def link():
    os.link(program, os.path.join(system, "bin/second"))
    return "link"


def rename():
    os.rename(program, program + ".old")
    return "name"


def remove():
    os.unlink(os.path.join(system, "bin/planted") if unconfined else program)
    return "removed"


def passwd():
    path = os.path.join(system, "passwd") if unconfined else "/etc/passwd"
    with open(path, "a") as f:
        return f.write("mallory::0:0::/:/bin/sh\n") and path


tries({"append": append, "create": create, "chmod": chmod, "chown": chown, "stamp": stamp, "link": link, "rename": rename,
       "remove": remove, "passwd": passwd})
