"""What every attack is made of.

An attack is a list of tries: functions that return what they gained, or nothing, or raise OSError.
Unconfined each of them must gain something, so that none is a blank shot; inside, not one may.

    BREACH: what was gained     exit status 0
    HELD: why                   exit status 1
    anything else, a crash too, is neither, and a failure of the test

Where the decoys are is told in JSON in $ATTACK_DECOYS. Their secret is told by its hash only: an
attack must not find it in its own arguments.
"""
import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import sys
import threading
import time

decoys = json.loads(os.environ.get("ATTACK_DECOYS", "{}"))
unconfined = bool(os.environ.get("ATTACK_UNCONFINED"))

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# (x86_64, aarch64); glibc has no name for many of them.
NUMBERS = {
    "io_setup": (206, 0), "setxattr": (188, 5), "ptrace": (101, 117), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "clone": (56, 220), "setns": (308, 268), "clone3": (435, 435), "kcmp": (312, 272),
    "process_vm_readv": (310, 270), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "fanotify_init": (300, 262),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "syslog": (103, 116),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "fsconfig": (431, 431), "mount_setattr": (442, 442), "sethostname": (170, 161),
    "setdomainname": (171, 162), "capset": (126, 91), "capget": (125, 90), "mbind": (237, 235),
    "move_pages": (279, 239), "process_madvise": (440, 440), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "socket": (41, 198),
    "modify_ldt": (154, -1), "iopl": (172, -1), "ioperm": (173, -1), "lookup_dcookie": (212, 18),
    "vhangup": (153, 58), "inotify_init1": (294, 26), "renameat2": (316, 276), "close_range": (436, 436),
    "fchmodat": (268, 53), "settimeofday": (164, 170),
}


def syscall(name, *args):
    """The system call's result; OSError when it fails, ENOSYS when this machine has no such call."""
    number = NUMBERS[name][platform.machine() == "aarch64"] if isinstance(name, str) else name
    if number < 0:
        raise OSError(errno.ENOSYS, "not on this machine")
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *values)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(name))
    return result


def reached(name, *args):
    """A call with arguments that cannot do harm: any answer but a refusal says it was let through."""
    try:
        return f"{name} was let through ({syscall(name, *args)})"
    except OSError as e:
        if e.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
        return f"{name} was let through ({errno.errorcode.get(e.errno)})"


def has_secret(data):
    """Whether the decoys' secret is in the text or bytes."""
    text = data.decode("latin1") if isinstance(data, bytes) else data
    found = re.findall(r"decoy-[0-9a-f]{32}", text)
    return any(hashlib.sha256(f.encode()).hexdigest() == decoys.get("sha256") for f in found)


def read(path, size=1 << 20):
    """The first bytes of a file, without waiting for a pipe or a device to speak."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def linger():
    """Keep what was taken for as long as a watcher that looks now and then may need on a busy machine."""
    time.sleep(0.1 if unconfined else 8)


def breach(what):
    print("BREACH:", str(what).replace("\n", " ")[:300], flush=True)
    sys.exit(0)


def held(why):
    print("HELD:", str(why).replace("\n", " ")[:300], flush=True)
    sys.exit(1)


def attempt(function):
    """(what was gained or None, why not)"""
    try:
        return function(), "nothing gained"
    except OSError as e:
        return None, errno.errorcode.get(e.errno, str(e))


def make_all(attempts, at_once):
    """What came of each."""
    found = {}
    if not at_once:
        return {name: attempt(function) for name, function in attempts.items()}
    threads = [threading.Thread(target=lambda n=n, f=f: found.update({n: attempt(f)})) for n, f in attempts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def tries(attempts, absent=(), at_once=False):
    """Make all attempts, a dict of functions by name, and end this process with the verdict.

    `absent` names those that this machine's kernel may lack: unconfined they may fail. `at_once` is
    for those that wait for an answer.
    """
    gained, refused = {}, {}
    for name, (what, why) in make_all(attempts, at_once).items():
        if what:
            gained[name] = what
        else:
            refused[name] = why
    if unconfined:
        blank = [name for name in refused if name not in absent]
        if blank or not gained:
            held("even unconfined: " + ", ".join(f"{n}: {refused[n]}" for n in blank or refused))
        breach(", ".join(f"{n}: {w}" for n, w in gained.items()))
    if gained:
        breach(", ".join(f"{n}: {w}" for n, w in gained.items()))
    held(", ".join(f"{n}: {w}" for n, w in refused.items()))
