"""Reads what only root of the host may: passwords, keys, the disk itself.

holds: mount namespace
unconfined: root
"""
import glob
import os
import stat

from kit.attack import read, tries


def shadow():
    return b":" in read("/etc/shadow") and "/etc/shadow"


def disks():
    for line in read("/proc/partitions").decode().split("\n")[2:]:
        name = line.split()[-1:]
        if name and read("/dev/" + name[0], 512):
            return "/dev/" + name[0]


def homes():
    return [d for d in glob.glob("/home/*") + glob.glob("/var/log/*") + glob.glob("/var/lib/*/*")
            if d not in ("/home/user",)][:3]


def memory():
    for name in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/port"):
        if os.path.exists(name) and stat.S_ISCHR(os.stat(name).st_mode):
            os.close(os.open(name, os.O_RDONLY | os.O_NONBLOCK))
            return name


tries({"shadow": shadow, "disks": disks, "logs and homes": homes, "devices": memory}, absent=("disks", "devices"))
