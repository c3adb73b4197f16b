"""Changes the network it was given: a route to what is closed, an address, a neighbour, a device.

holds: user namespace, network namespace
unconfined: namespaces
"""
import errno
import fcntl
import os
import socket
import struct

from kit.attack import tries

NEWLINK, NEWADDR, NEWROUTE, DELROUTE, NEWNEIGH, NEWRULE = 16, 20, 24, 25, 28, 32
REQUEST, ACK, CREATE = 1, 4, 0x400


def attribute(kind, data):
    return struct.pack("<HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def ask(kind, body):
    """One message to the routing part of the kernel, and its answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.bind((0, 0))
        s.send(struct.pack("<IHHII", 16 + len(body), kind, REQUEST | ACK | CREATE, 1, 0) + body)
        code = struct.unpack("<i", s.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, "netlink")
    return "done"


def index(name):
    return socket.if_nametoindex(name)


def up():
    """In a new namespace even the loopback is down."""
    return ask(NEWLINK, struct.pack("<BxHiII", 0, 0, index("lo"), 1, 1))


def route():
    return ask(NEWROUTE, struct.pack("<BBBBBBBBI", 2, 32, 0, 0, 254, 3, 253, 1, 0) + attribute(1, socket.inet_aton("10.1.2.3")) + attribute(4, struct.pack("<I", index("lo"))))


def remove_route():
    return ask(DELROUTE, struct.pack("<BBBBBBBBI", 2, 32, 0, 0, 254, 3, 253, 1, 0) + attribute(1, socket.inet_aton("10.1.2.3")))


def address():
    return ask(NEWADDR, struct.pack("<BBBBI", 2, 32, 0, 0, index("lo")) + attribute(2, socket.inet_aton("169.254.169.254")))


def device():
    return ask(NEWLINK, struct.pack("<BxHiII", 0, 0, 0, 0, 0) + attribute(3, b"planted\0") + attribute(18, attribute(1, b"dummy")))


def rule():
    return ask(NEWRULE, struct.pack("<BBBBBBBBI", 2, 0, 0, 0, 254, 0, 0, 1, 0) + attribute(6, struct.pack("<I", 1)))


def by_ioctl():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        name = socket.if_nameindex()[-1][1].encode()
        fcntl.ioctl(s, 0x8922, struct.pack("16si12x", name, 1400))  # SIOCSIFMTU
        return "mtu"


def tun():
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"planted1", 0x1002))
    return "a tap device"


tries({"up": up, "address": address, "route": route, "remove route": remove_route, "device": device, "rule": rule, "ioctl": by_ioctl, "tun": tun},
      absent=("device", "rule", "tun"))
