"""Takes hold of another process: a sibling, and the agent, by ptrace and by its memory.

holds: seccomp
unconfined: root
"""
import ctypes
import os
import subprocess

from kit.attack import decoys, has_secret, libc, read, syscall, tries, unconfined

PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 16, 17, 0x4206
target = decoys["pid"] if unconfined else 1


def ptrace(request, of):
    def run():
        child = subprocess.Popen(["sleep", "20"]) if of == "sibling" else None
        pid = child.pid if child else target
        try:
            syscall("ptrace", request, pid, 0, 0)
            if request == PTRACE_ATTACH:
                os.waitpid(pid, 0x40000000)
            libc.ptrace(PTRACE_DETACH, pid, 0, 0)
            return f"hold of {pid}"
        finally:
            if child:
                child.kill()
                child.wait()
    return run


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def vm_read():
    into = ctypes.create_string_buffer(64)
    here, there = Iovec(ctypes.addressof(into), 38), Iovec(decoys["address"], 38)
    syscall("process_vm_readv", target, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return has_secret(into.raw) and "its memory"


def mem():
    with open(f"/proc/{target}/mem", "rb", buffering=0) as f:
        f.seek(decoys["address"])
        return (f.read(38) or not unconfined) and "its memory"


def fd_of():
    return syscall("pidfd_getfd", syscall("pidfd_open", target, 0), decoys["fd"] if unconfined else 3, 0) and "its socket"


def compare():
    return syscall("kcmp", target, os.getpid(), 0, 0, 0) >= 0 and "kcmp"


tries({"attach sibling": ptrace(PTRACE_ATTACH, "sibling"), "seize sibling": ptrace(PTRACE_SEIZE, "sibling"),
       "seize": ptrace(PTRACE_SEIZE, "target"), "process_vm_readv": vm_read, "mem": mem, "pidfd_getfd": fd_of, "kcmp": compare},
      absent=("kcmp",))
