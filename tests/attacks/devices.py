"""Makes a device of its own and opens it.

holds: user namespace
unconfined: root
"""
import os
import stat
import tempfile

from kit.attack import tries


def make(kind, major, minor):
    def mknod():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "device")
            os.mknod(path, kind | 0o600, os.makedev(major, minor))
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            return f"{major}:{minor}"
    return mknod


tries({"null": make(stat.S_IFCHR, 1, 3), "kernel memory": make(stat.S_IFCHR, 1, 11), "tun": make(stat.S_IFCHR, 10, 200),
       "disk": make(stat.S_IFBLK, 254, 0)}, absent=("kernel memory", "tun", "disk"))
