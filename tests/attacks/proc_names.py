"""Reads the names that /proc gives away: command lines, sockets, ports, shared memory, locks.

holds: pid namespace, network namespace, ipc namespace, cgroup namespace, mount namespace
unconfined: root
"""
import os

from kit.attack import decoys, processes, read, tries


def command_lines():
    name = os.path.basename(decoys["folder"]).encode()
    for pid in processes():
        try:
            if pid != os.getpid() and name in read(f"/proc/{pid}/cmdline"):
                return pid
        except OSError:
            continue


def unix_sockets():
    return decoys["abstract"] in open("/proc/net/unix").read() and "the abstract name"


def ports():
    return f":{decoys['port']:04X} 00000000:0000 0A" in open("/proc/net/tcp").read() and decoys["port"]


def shared_memory():
    return str(decoys["ipc_key"]) in open("/proc/sysvipc/shm").read() and decoys["ipc_key"]


def mounts():
    """Where the disk is mounted on the host, or the engine's own folder."""
    text = open("/proc/self/mountinfo").read()
    return ("sandgate" in text or " /proc rw" in text and "cgroup" in text) and "mounts of the host"


def interfaces():
    return "cable" in open("/proc/net/dev").read() and "cable"


def routes():
    return "cable" in open("/proc/net/route").read() and "cable"


def groups():
    return [line for line in open("/proc/self/cgroup") if "sandgate" in line or "/" in line.split(":")[2].strip()[1:]]


tries({"command lines": command_lines, "unix sockets": unix_sockets, "ports": ports, "shared memory": shared_memory,
       "mounts": mounts, "interfaces": interfaces, "routes": routes, "control groups": groups},
      absent=("control groups", "mounts"))
