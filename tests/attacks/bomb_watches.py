"""Takes the machine's inotify instances, pseudo terminals and message queues, of which there is a fixed number for all.

holds: user namespace, mount namespace
unconfined: namespaces
"""
import os

from kit.attack import syscall, tries, unconfined

INSTANCES, TERMINALS, BYTES = 16, 256, 819200


def instances():
    found = []
    try:
        while len(found) <= INSTANCES:
            found.append(syscall("inotify_init1", 0))
        return f"{len(found)} inotify instances"
    finally:
        for fd in found:
            os.close(fd)


def terminals():
    found = []
    try:
        while len(found) <= TERMINALS:
            found.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
        return f"{len(found)} terminals"
    finally:
        for fd in found:
            os.close(fd)


def queues():
    import ctypes
    attr = (ctypes.c_long * 8)(0, 10, 8192)
    names = []
    try:
        while len(names) <= BYTES // 81920:
            name = f"bomb{os.getpid()}-{len(names)}".encode()
            syscall("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, attr)
            names.append(name)
        return f"{len(names)} queues"
    finally:
        from kit.attack import libc
        for name in names:
            libc.mq_unlink(b"/" + name)


tries({"inotify": instances, "terminals": terminals, "queues": queues}, absent=("queues",))
