"""Reads the kernel's own memory, addresses and messages, and asks it for what only an admin may.

holds: user namespace, mount namespace, seccomp
unconfined: root
"""
import os
import stat

from kit.attack import libc, read, syscall, tries


def content(path):
    def look():
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        return len(read(path, 4096)) > 0 and path
    return look


def symbols():
    return any(line.split()[0].strip("0") for line in open("/proc/kallsyms")) and "kernel addresses"


def addresses():
    return any(line.split("-")[0].strip(" 0") for line in open("/proc/iomem")) and "physical addresses"


def messages():
    import ctypes
    buffer = ctypes.create_string_buffer(65536)
    return syscall("syslog", 3, buffer, 65536) > 0 and "the kernel's messages"


def page_frames():
    page = os.sysconf("SC_PAGESIZE")
    import ctypes
    buffer = ctypes.create_string_buffer(b"x" * page)
    with open("/proc/self/pagemap", "rb") as f:
        f.seek(ctypes.addressof(buffer) // page * 8)
        return int.from_bytes(f.read(8), "little") & (1 << 55) - 1


def sysrq():
    fd = os.open("/proc/sysrq-trigger", os.O_WRONLY)  # not a byte is written
    return stat.S_ISREG(os.fstat(fd).st_mode) and "sysrq"


files = ["/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/config.gz",
         "/proc/slabinfo", "/proc/vmallocinfo", "/proc/kpageflags", "/proc/pagetypeinfo", "/proc/cmdline"]
tries({"symbols": symbols, "addresses": addresses, "messages": messages, "page frames": page_frames, "sysrq": sysrq,
       **{path: content(path) for path in files}},
      absent=[p for p in files if not os.path.exists(p)] + ["sysrq", "symbols", "/proc/keys"])
