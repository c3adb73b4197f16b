"""Mounts: a file system, a bind, the system writable, a mask of /proc away; the old calls and the new.

holds: seccomp, user namespace
unconfined: namespaces
"""
import ctypes
import os
import tempfile

from kit.attack import libc, syscall, tries, unconfined

MS_REMOUNT, MS_BIND, MS_MOVE = 32, 4096, 8192
folder = tempfile.mkdtemp()
os.mkdir(folder + "/a")
os.mkdir(folder + "/b")
A, B = (folder + "/a").encode(), (folder + "/b").encode()


def mount(source, target, kind, flags, data=None):
    return lambda: syscall("mount", source, target, kind, flags, data or 0) == 0 and target


def detach():
    return syscall("umount2", A if unconfined else b"/proc/sys", 2) == 0 and "umount"


def new_calls():
    fs = syscall("fsopen", b"tmpfs", 0)
    syscall("fsconfig", fs, 6, 0, 0, 0)
    return syscall("fsmount", fs, 0, 0) and "fsmount"


def tree():
    return syscall("open_tree", -100, b"/usr", 1) and "open_tree"  # OPEN_TREE_CLONE


def attributes():
    attr = (ctypes.c_ulonglong * 4)(0, 1, 0, 0)  # clear MOUNT_ATTR_RDONLY
    return syscall("mount_setattr", -100, A if unconfined else b"/usr", 0, attr, 32) == 0 and "writable"


def chroot():
    pid = os.fork()
    if pid == 0:
        try:
            os.chroot(folder)
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, "chroot")
    return "chroot"


def pivot():
    """Unconfined it is let through, and refused only because the places are no good."""
    from kit.attack import reached
    return reached("pivot_root", B, B)


tries({
    "tmpfs": mount(b"x", A, b"tmpfs", 0),
    "proc": mount(b"x", B, b"proc", 0),
    "bind": mount(b"/usr", B, 0, MS_BIND),
    "remount": mount(0, A if unconfined else b"/usr", 0, MS_REMOUNT | MS_BIND),
    "overlay": mount(b"x", B, b"overlay", 0, b"lowerdir=/usr:/etc"),
    "attributes": attributes,
    "umount": detach,
    "fsopen": new_calls,
    "open_tree": tree,
    "chroot": chroot,
    "pivot_root": pivot,
}, absent=("overlay",))
