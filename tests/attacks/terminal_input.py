"""Types into a terminal as if its user did (TIOCSTI), also with bits that the kernel does not look at.

holds: seccomp
unconfined: root
"""
import ctypes
import fcntl
import os
import pty
import select
import termios

from kit.attack import libc, tries

TIOCLINUX = 0x541C


def inject(request):
    def run():
        """In a session of its own, whose terminal this is."""
        from_child, out = os.pipe()
        pid, terminal = pty.fork()
        if pid == 0:
            ctypes.set_errno(0)
            done = libc.ioctl(0, ctypes.c_ulong(request), ctypes.byref(ctypes.c_char(b"x")))
            os.write(out, bytes([ctypes.get_errno() if done < 0 else 0]))
            os._exit(0)
        code = os.read(from_child, 1)[0]
        os.waitpid(pid, 0)
        os.close(terminal)
        if code:
            raise OSError(code, "ioctl")
        return "typed"
    return run


tries({"TIOCSTI": inject(termios.TIOCSTI), "with high bits": inject(1 << 32 | termios.TIOCSTI)})
