"""Speaks with parts of the kernel that listen on netlink.

holds: seccomp
unconfined: namespaces
"""
import errno
import socket

from kit.attack import tries

PROTOCOLS = {"audit": 9, "generic": 16, "netfilter": 12, "xfrm": 6, "sock_diag": 4, "uevent": 15, "connector": 11, "fib_lookup": 10,
             "iscsi": 8, "scsi": 18, "rdma": 20, "crypto": 21, "selinux": 7, "smc": 22}


def pair(protocol):
    """There are no pairs, but that is found out only once the protocol's module was looked for, and loaded."""
    def create():
        try:
            socket.socketpair(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        except OSError as e:
            if e.errno in (errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES):
                raise
            return errno.errorcode[e.errno]
    return create


def open_netlink(protocol):
    def create():
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
            s.bind((0, 0))
            return "a socket"
    return create


SURE = ("generic", "sock_diag", "uevent")
tries({name: open_netlink(p) for name, p in PROTOCOLS.items()} | {name + " pair": pair(p) for name, p in PROTOCOLS.items()},
      absent=[n + s for n in PROTOCOLS if n not in SURE for s in ("", " pair")])
