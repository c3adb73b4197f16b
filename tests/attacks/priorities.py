"""Makes itself more important than the host's processes: nice, real time, io, out-of-memory score.

holds: user namespace, rlimits
unconfined: root
"""
import ctypes
import os
import resource
import struct

from kit.attack import read, syscall, tries, unconfined


def nice():
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return os.getpriority(os.PRIO_PROCESS, 0)


def real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return "SCHED_FIFO"


def deadline():
    attr = struct.pack("<IIQiIQQQ", 48, 6, 0, 0, 0, 1000000, 10000000, 10000000)
    syscall("sched_setattr", 0, ctypes.create_string_buffer(attr, 48), 0)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return "SCHED_DEADLINE"


def io():
    return syscall("ioprio_set", 1, 0, 1 << 13) == 0 and "real time io"


def set_oom(value):
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write(str(value))
    return int(read("/proc/self/oom_score_adj"))


def oom(value):
    """Sandboxes are the first to go when the machine runs out of memory."""
    return lambda: set_oom(value) == value and f"oom_score_adj is {value}"


def oom_back():
    """Down to where its ancestors were."""
    if unconfined:
        set_oom(500)
    before = int(read("/proc/self/oom_score_adj"))
    return set_oom(0) < before and f"oom_score_adj is 0, not {before}"


def limits():
    raised = []
    for name in ("NPROC", "NOFILE", "FSIZE", "CORE", "MEMLOCK", "DATA", "MSGQUEUE", "SIGPENDING", "RTPRIO", "NICE"):
        what = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(what)[1]
        if hard == resource.RLIM_INFINITY:
            continue
        try:
            resource.setrlimit(what, (hard + 1, hard + 1))
            raised.append(name)
        except (ValueError, OSError):
            continue
    return raised


tries({"nice": nice, "real time": real_time, "deadline": deadline, "io": io, "oom_score_adj": oom(-500), "oom_score_adj back": oom_back,
       "limits": limits}, absent=("real time", "deadline", "oom_score_adj", "limits"))
