"""Calls that act on the machine: modules, kexec, reboot, swap, accounting, quotas, the clock, ports.

With arguments that are no good: unconfined the kernel says so, inside it says that one may not.

holds: seccomp, user namespace
unconfined: root
"""
import ctypes
import os

from kit.attack import reached, syscall, tries

nothing = b"/nonexistent\0"
timex = ctypes.create_string_buffer(256)


def clock():
    """Sets the clock's tick to what it is."""
    syscall("adjtimex", timex)
    tick = ctypes.c_long.from_buffer(timex, 88)
    ctypes.c_uint.from_buffer(timex, 0).value = 0x4000  # ADJ_TICK
    tick.value = max(tick.value, 9000) if tick.value else 10000
    return reached("clock_adjtime", 0, timex)


tries({
    "init_module": lambda: reached("init_module", nothing, 4, b""),
    "finit_module": lambda: reached("finit_module", os.open("/dev/null", os.O_RDONLY), b"", 0),
    "delete_module": lambda: reached("delete_module", nothing, 0),
    "kexec_load": lambda: reached("kexec_load", 0, 99, 0, 0),
    "reboot": lambda: reached("reboot", 1, 2, 3, 0),
    "swapon": lambda: reached("swapon", nothing, 0),
    "swapoff": lambda: reached("swapoff", nothing),
    "acct": lambda: reached("acct", nothing),
    "quotactl": lambda: reached("quotactl", 0x800002 << 8, nothing, 0, 0),
    "clock": clock,
    "iopl": lambda: reached("iopl", 0),
    "ioperm": lambda: reached("ioperm", 0x80, 1, 1),
}, absent=("init_module", "finit_module", "delete_module", "kexec_load", "acct", "quotactl", "iopl", "ioperm", "swapon", "swapoff"))
