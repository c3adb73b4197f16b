"""Sockets of INET's rarer protocols, which the kernel would load for it, and line disciplines of terminals.

Any answer but a refusal means that the kernel has looked for the module, and run it if it is there.

holds: seccomp
unconfined: namespaces
"""
import errno
import fcntl
import os
import socket
import struct

from kit.attack import syscall, tries

PROTOCOLS = {"dccp": (6, 33), "l2tp": (socket.SOCK_DGRAM, 115), "sctp": (socket.SOCK_STREAM, 132), "sctp packets": (socket.SOCK_SEQPACKET, 132),
             "udp-lite": (socket.SOCK_DGRAM, 136), "smc": (socket.SOCK_STREAM, 256), "any packets": (socket.SOCK_SEQPACKET, 0),
             "any dccp": (6, 0), "high bits": (socket.SOCK_STREAM, 1 << 32 | 132)}
TIOCSETD, N_NULL, N_GSM = 0x5423, 27, 21


def create(family, kind, protocol):
    def create():
        try:
            os.close(syscall("socket", family, kind, protocol))
            return "a socket"
        except OSError as e:
            if e.errno in (errno.EPERM, errno.EACCES):
                raise
            return errno.errorcode[e.errno]
    return create


def discipline(number):
    def change():
        ours, theirs = os.openpty()
        try:
            fcntl.ioctl(theirs, TIOCSETD, struct.pack("i", number))
            return "a line discipline"
        except OSError as e:
            if e.errno in (errno.EPERM, errno.EACCES):
                raise
            return errno.errorcode[e.errno]
        finally:
            os.close(ours)
            os.close(theirs)
    return change


tries({f"{name}, {family.name}": create(family, *how) for name, how in PROTOCOLS.items() for family in (socket.AF_INET, socket.AF_INET6)}
      | {"n_null": discipline(N_NULL), "n_gsm": discipline(N_GSM)}, absent=("n_gsm", "n_null"))
