"""How this process is confined, as a dict: what a command has, the interpreter must have, too."""
import ctypes
import json
import os
import resource

STATUS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "SigBlk",
          "Speculation_Store_Bypass", "Umask", "TracerPid")
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
PR_GET_SECUREBITS, PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER, PR_GET_KEEPCAPS = 27, 2, 37, 7


def namespaces():
    folder = "/proc/self/ns"
    return {name: os.readlink(f"{folder}/{name}") for name in sorted(os.listdir(folder))}


def status():
    lines = (line.split(":", 1) for line in open("/proc/self/status"))
    return {name: value.split() for name, value in lines if name in STATUS}


def confinement():
    libc = ctypes.CDLL(None)
    reaper = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(reaper), 0, 0, 0)
    return {
        **status(),
        "namespaces": namespaces(),
        "limits": {name: list(resource.getrlimit(getattr(resource, name))) for name in LIMITS},
        "oom_score_adj": open("/proc/self/oom_score_adj").read().strip(),
        "cgroup": open("/proc/self/cgroup").read(),
        "securebits": libc.prctl(PR_GET_SECUREBITS, 0, 0, 0, 0),
        "keepcaps": libc.prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0),
        "subreaper": reaper.value,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduler": os.sched_getscheduler(0),
        "root": os.readlink("/proc/self/root"),
        "mounts": open("/proc/self/mountinfo").read(),
        "host": os.uname().nodename,
    }


if __name__ == "__main__":
    print(json.dumps(confinement()))
