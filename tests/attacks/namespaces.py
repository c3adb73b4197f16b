"""Makes namespaces of every kind, and joins those of others.

holds: seccomp, user namespace
unconfined: namespaces
"""
import os

from kit.attack import decoys, syscall, tries, unconfined

KINDS = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000, "time": 0x80}


def make(flag):
    return lambda: syscall("unshare", flag) == 0 and "made"


def join(kind):
    """Unconfined into its own, inside also into that of pid 1 and of the decoys."""
    def setns():
        for pid in ["self"] if unconfined else ["1", str(decoys["pid"]), "self"]:
            try:
                fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
                return syscall("setns", fd, 0) == 0 and f"joined {kind} of {pid}"
            except OSError as e:
                last = e
        raise last
    return setns


def pidfd():
    return syscall("setns", syscall("pidfd_open", os.getpid(), 0), KINDS["uts"]) == 0 and "joined by pidfd"


tries({**{f"make {k}": make(f) for k, f in KINDS.items()}, **{f"join {k}": join(k) for k in KINDS if k not in ("time", "pid")},
       "join by pidfd": pidfd}, absent=("make time",))
