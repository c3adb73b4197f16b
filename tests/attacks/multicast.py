"""Speaks to a multicast group on the host's network, where printers, televisions and clusters listen.

An answer may be lost on its way back; that it was heard is told by the group's member.

holds: internet, network namespace
witness: multicast
unconfined: root
"""
import socket
import struct

from kit.attack import decoys, has_secret, tries

device = next((name for _, name in socket.if_nameindex() if name in ("tap0", "cable")), "lo")


def speak(prepare, group=decoys["group"]):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(1)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
            prepare(s)
            s.sendto(b"?", (group, decoys["lan_port"] + 1))
            return has_secret(s.recv(200)) and group
    return ask


def by_interface(s):
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"\0" * 4, b"\0" * 4, socket.if_nametoindex(device)))


def by_device(s):
    s.setsockopt(socket.SOL_SOCKET, 25, device.encode() + b"\0")


tries({"route": speak(lambda s: None), "interface": speak(by_interface), "device": speak(by_device), "mdns": speak(by_interface, "224.0.0.251")},
      absent=("mdns",), at_once=True)
