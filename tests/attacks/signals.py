"""Signals to processes of the host: by number, by pidfd, to every process group.

holds: pid namespace
unconfined: root
"""
import os
import signal

from kit.attack import decoys, processes, read, syscall, tries

NAME = os.path.basename(decoys["folder"]).encode()


def is_decoy(pid):
    """A number says nothing: inside it may be a process of the sandbox's own."""
    try:
        return NAME in read(f"/proc/{pid}/cmdline")
    except OSError:
        return False


def by_number():
    os.kill(decoys["pid"], signal.SIGCONT)
    return is_decoy(decoys["pid"]) and decoys["pid"]


def by_search():
    for pid in processes():
        if pid != os.getpid() and is_decoy(pid):
            os.kill(pid, signal.SIGCONT)
            return pid


def by_pidfd():
    fd = syscall("pidfd_open", decoys["pid"], 0)
    syscall("pidfd_send_signal", fd, signal.SIGCONT, 0, 0)
    return is_decoy(decoys["pid"]) and decoys["pid"]


tries({"number": by_number, "search": by_search, "pidfd": by_pidfd})
