"""Makes a user namespace, where it would have every capability: by each call and each ABI there is.

The machine code is for x86_64; elsewhere those tries are absent.

holds: seccomp
unconfined: root
"""
import ctypes
import mmap
import os
import platform
import signal

from kit.attack import libc, syscall, tries

CLONE_NEWUSER, X32 = 0x10000000, 0x40000000


def in_child(call):
    """The call in a child of its own; what it did is told by its exit status."""
    def run():
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if call() in (None, 0) else 98)
            except OSError as e:
                os._exit(e.errno)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            raise OSError(abs(status), "no namespace")
        return "a user namespace"
    return run


def of_clone(call):
    """Whoever comes back with 0 is the child in the new namespace."""
    def run():
        pid = call()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0x40000000)
    return in_child(run)


def machine_code(number, *registers):
    """A 32-bit system call by int 0x80."""
    def run():
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        # push rbx; mov eax, number; mov ebx, flags; int 0x80; pop rbx; ret
        code.write(b"\x53\xb8" + number.to_bytes(4, "little") + b"\xbb" + registers[0].to_bytes(4, "little") + b"\xcd\x80\x5b\xc3")
        address = ctypes.addressof(ctypes.c_char.from_buffer(code))
        result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        if result < 0:
            raise OSError(-result, "int 0x80")
    return run


clone_args = (ctypes.c_ulonglong * 8)(CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD)
attempts = {
    "unshare": in_child(lambda: syscall("unshare", CLONE_NEWUSER)),
    "clone": of_clone(lambda: syscall("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)),
    "clone with high bits": of_clone(lambda: syscall("clone", 1 << 40 | CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)),
    "clone3": of_clone(lambda: syscall("clone3", clone_args, 64)),
}
if platform.machine() == "x86_64":
    attempts |= {
        "x32 unshare": in_child(lambda: syscall(X32 | 272, CLONE_NEWUSER)),
        "x32 clone": of_clone(lambda: syscall(X32 | 56, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)),
        "i386 unshare": in_child(machine_code(310, CLONE_NEWUSER)),
    }
tries(attempts, absent=("clone with high bits", "x32 unshare", "x32 clone", "i386 unshare"))
