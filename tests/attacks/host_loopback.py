"""Connects to what listens on the host's loopback and addresses, by every address that may lead there.

Among them those by which slirp4netns names the host, the engine's own port, and IPv6's forms.

holds: network namespace
unconfined: root
"""
import socket

from kit.attack import decoys, has_secret, tries, unconfined

# Unconfined slirp's network does not exist.
SLIRP = ["10.0.2.0", "10.0.2.1", "10.0.2.2", "10.0.2.3", "10.0.2.4", "10.0.2.100", "10.0.2.255"]


def tcp(address, port):
    def connect():
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
            s.settimeout(1.5)
            s.connect((address, port))
            if port != decoys["port"]:
                s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            data = s.recv(200)
            return (has_secret(data) or data.startswith(b"HTTP")) and address
    return connect


def udp(address):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.4)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            s.sendto(b"?", (address, decoys["port"]))
            return has_secret(s.recv(200)) and address
    return ask


own = ["127.0.0.1", "127.0.0.2", "0.0.0.0", *decoys["own"]]
attempts = {f"tcp {a}": tcp(a, decoys["port"]) for a in own + SLIRP + ["::1", "::ffff:127.0.0.1", "::ffff:" + decoys["own"][0], *decoys["own6"][:1]]}
attempts |= {f"engine {a}": tcp(a, decoys["engine_port"]) for a in ("127.0.0.1", "10.0.2.2", "::ffff:127.0.0.1")}
attempts |= {f"udp {a}": udp(a) for a in ["127.0.0.1", decoys["own"][0], "10.0.2.2", "10.0.2.3", "255.255.255.255", "10.0.2.255"]}
tries(attempts, absent=[n for n in attempts if "10.0.2." in n or "255.255" in n], at_once=True)
