"""Connects to sockets of the host that have a name: abstract ones, and those with a path.

holds: network namespace, mount namespace
unconfined: root
"""
import socket

from kit.attack import decoys, has_secret, tries


def connect(name):
    def try_it():
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(2)
            s.connect(name)
            return has_secret(s.recv(100)) and repr(name)
    return try_it


tries({"abstract": connect("\0" + decoys["abstract"]), "path": connect(decoys["socket"]), "by /proc": connect("/proc/1/root" + decoys["socket"])},
      absent=("by /proc",))
