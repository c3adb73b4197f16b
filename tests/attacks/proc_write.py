"""Writes to the switches of the machine: under /proc/sys, /proc/pressure, /proc/irq, /sys.

Unconfined each is written what it says already.

holds: mount namespace, user namespace
unconfined: root
"""
import os
import stat

from kit.attack import read, tries


def rewrite(path):
    def write():
        value = read(path, 4096)
        fd = os.open(path, os.O_WRONLY)
        return stat.S_ISREG(os.fstat(fd).st_mode) and os.write(fd, value) > 0 and path
    return write


def pressure():
    """A trigger on the whole machine's pressure costs the kernel work for as long as it is held."""
    fd = os.open("/proc/pressure/memory", os.O_RDWR | os.O_NONBLOCK)
    return os.write(fd, b"some 150000 2000000\0") > 0 and "a trigger"


def hot_plug():
    return [d for d in os.listdir("/sys") if os.listdir("/sys/" + d)]


names = ["kernel/core_pattern", "kernel/panic", "kernel/randomize_va_space", "kernel/modprobe", "kernel/shmmax", "vm/overcommit_memory",
         "net/ipv4/ip_forward", "net/ipv4/ping_group_range", "net/ipv4/ip_unprivileged_port_start", "user/max_user_namespaces",
         "user/max_inotify_instances", "fs/file-max"]
tries({**{name: rewrite("/proc/sys/" + name) for name in names}, "pressure": pressure, "/sys": hot_plug},
      absent=["pressure", "user/max_user_namespaces", "user/max_inotify_instances"] + [n for n in names if not os.path.exists("/proc/sys/" + n)])
