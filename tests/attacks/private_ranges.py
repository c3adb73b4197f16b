"""Connects to private, carrier, link-local and metadata addresses: by TCP, UDP, IPv6's form of them.

holds: internet, network namespace
unconfined: root
"""
import socket

from kit.attack import decoys, has_secret, tries

addresses = decoys["private"] + decoys["link_local"]


def tcp(address, port=80):
    def connect():
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
            s.settimeout(2)
            s.connect((address, port))
            return has_secret(s.recv(200)) and address
    return connect


def udp(address):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(2)
            s.sendto(b"?", (address, 53))
            return has_secret(s.recv(200)) and address
    return ask


attempts = {a: tcp(a) for a in addresses} | {"udp " + a: udp(a) for a in addresses} | {"mapped " + a: tcp("::ffff:" + a) for a in addresses}
attempts["fd00::1"] = tcp("fd00::1", decoys["lan_port"])
tries(attempts, at_once=True)
