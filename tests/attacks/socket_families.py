"""Sockets of families that a network namespace does not confine, or that nobody needs.

By socket and by socketpair: that a family has no pairs is told by its own code, so any answer but
that the family does not exist means the kernel loaded and ran it.

holds: seccomp
unconfined: namespaces
"""
import errno
import socket

from kit.attack import syscall, tries

FAMILIES = {"packet": 17, "key": 15, "alg": 38, "vsock": 40, "xdp": 44, "bluetooth": 31, "can": 29, "tipc": 30, "rds": 21, "ax25": 3, "x25": 9,
            "llc": 26, "nfc": 39, "kcm": 41, "qipcrtr": 42, "smc": 43, "phonet": 35, "ieee802154": 36, "caif": 37, "mctp": 45, "iucv": 32}
KINDS = (socket.SOCK_RAW, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM)


def tried(make, family):
    def create():
        for kind in KINDS:
            try:
                make(family, kind, 0)
                return "made"
            except OSError as e:
                if e.errno not in (errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES):
                    return errno.errorcode[e.errno]
                last = e
        raise last
    return create


def high_bits():
    """The kernel looks at 32 bits of the family."""
    return syscall("socket", 1 << 32 | FAMILIES["packet"], socket.SOCK_DGRAM, 0) and "packet"


tries({"high bits": high_bits, **{n: tried(socket.socket, f) for n, f in FAMILIES.items()},
       **{n + " pair": tried(socket.socketpair, f) for n, f in FAMILIES.items()}},
      absent=[n + s for n in FAMILIES if n != "packet" for s in ("", " pair")])
