"""Speaks with parts of the kernel that listen on netlink.

holds: seccomp
unconfined: namespaces
"""
import socket

from kit.attack import tries

PROTOCOLS = {"audit": 9, "generic": 16, "netfilter": 12, "xfrm": 6, "sock_diag": 4, "uevent": 15, "connector": 11, "fib_lookup": 10,
             "iscsi": 8, "scsi": 18, "rdma": 20, "crypto": 21, "selinux": 7, "smc": 22}


def open_netlink(protocol):
    def create():
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
            s.bind((0, 0))
            return "a socket"
    return create


tries({name: open_netlink(p) for name, p in PROTOCOLS.items()}, absent=[n for n in PROTOCOLS if n not in ("generic", "sock_diag", "uevent")])
