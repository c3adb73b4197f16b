"""Calls that have been the way in before: bpf, perf, userfaultfd, io_uring, aio, fanotify, and more.

holds: seccomp
unconfined: root
"""
import ctypes

from kit.attack import reached, syscall, tries

zeros = ctypes.create_string_buffer(256)
perf = ctypes.create_string_buffer(bytes([1, 0, 0, 0, 112]), 128)  # a software event
ring = ctypes.create_string_buffer(128)
context = ctypes.c_ulong(0)
tries({
    "bpf": lambda: reached("bpf", 0, zeros, 0),
    "perf": lambda: syscall("perf_event_open", perf, 0, -1, -1, 0) and "an event",
    "userfaultfd": lambda: syscall("userfaultfd", 0o2000000) and "userfaultfd",
    "userfaultfd for user mode": lambda: syscall("userfaultfd", 0o2000001) and "userfaultfd",
    "io_uring": lambda: syscall("io_uring_setup", 1, ring) and "a ring",
    # The machine has so many (fs.aio-max-nr) for all programs together.
    "aio": lambda: syscall("io_setup", 1, ctypes.byref(context)) == 0 and "an aio context",
    "fanotify": lambda: syscall("fanotify_init", 0, 0) and "fanotify",
    "memfd_secret": lambda: syscall("memfd_secret", 0) and "hidden memory",
    "mbind": lambda: reached("mbind", 0, 0, 0, 0, 0, 0),
    "move_pages": lambda: reached("move_pages", 0, 0, 0, 0, 0, 0),
    "modify_ldt": lambda: reached("modify_ldt", 0, zeros, 16),
    "handles": lambda: reached("name_to_handle_at", -100, b"/usr", zeros, zeros, 0),
    "unknown": lambda: reached(1000),
}, absent=("perf", "userfaultfd", "io_uring", "memfd_secret", "modify_ldt", "mbind", "move_pages", "fanotify", "unknown", "userfaultfd for user mode", "aio"))
