"""Leaves its control group, or changes its limits: by the files of any hierarchy it can reach or mount.

holds: cgroup namespace, mount namespace, seccomp
unconfined: root
"""
import glob
import os

from kit.attack import tries, unconfined


def hierarchies():
    found = [line.split()[1] for line in open("/proc/self/mounts") if line.split()[2] in ("cgroup", "cgroup2")]
    return found + glob.glob("/sys/fs/cgroup*")


def leave():
    last = None
    for top in hierarchies():
        group = os.path.join(top, f"decoy-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError as e:
            last = e
            continue
        os.rmdir(group)
        return f"a group in {top}"
    if last:
        raise last


def mount():
    import tempfile
    from kit.attack import syscall
    if unconfined:
        return "see mounts.py"
    return syscall("mount", b"x", tempfile.mkdtemp().encode(), b"cgroup2", 0, 0) == 0 and "a hierarchy"


tries({"leave": leave, "mount": mount})
