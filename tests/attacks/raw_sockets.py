"""Packets of its own making: raw sockets, headers included, spoofed sources, privileged options.

holds: user namespace, network namespace
unconfined: namespaces
"""
import socket
import struct

from kit.attack import tries


def raw(family, protocol):
    def create():
        socket.socket(family, socket.SOCK_RAW, protocol).close()
        return "a raw socket"
    return create


def option(level, name, value):
    def set_it():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(level, name, value)
            return f"option {name}"
    return set_it


tries({"icmp": raw(socket.AF_INET, 1), "any": raw(socket.AF_INET, 255), "icmp6": raw(socket.AF_INET6, 58), "packet": raw(17, 0x0300),
       "transparent": option(0, 19, 1), "mark": option(1, 36, 1), "force buffer": option(1, 33, 1 << 30), "debug": option(1, 1, 1)})
