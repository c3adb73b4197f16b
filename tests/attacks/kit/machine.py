#!/usr/bin/python3
"""A machine for one engine: a network namespace whose neighbours are decoys, and decoys beside it.

It is started in place of the engine, by root, with the engine's arguments; the environment says
ATTACK_ENGINE (the program), ATTACK_UID (as whom), ATTACK_RANGE (the first and the number of the
ids that /etc/subuid and /etc/subgid give that user, or nothing) and ATTACK_WHERE (a file to write
the decoys' coordinates to). What the engine's ready line names is a port on the caller's own loopback, which
leads to the engine.

  world      public, private, link-local and metadata addresses, all of which say the secret
    |
  engine     203.0.113.9 and a loopback, where the decoys listen, too
    |
  sandboxes
"""
import ctypes
import json
import os
import re
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading

from decoys import listen

PRIVATE = ["10.1.2.3", "172.16.0.1", "172.31.255.1", "192.168.1.1", "100.64.0.1", "198.18.0.1", "192.0.0.8"]
LINK_LOCAL = ["169.254.169.254", "169.254.1.1", "168.63.129.16"]  # and where Azure tells a machine of itself
PUBLIC = "198.51.100.7"
OWN = "203.0.113.9"
GROUP = "239.1.2.3"
PORT = 4242
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def world(ready, go, secret, witness):
    """The other end of the cable. Never returns."""
    check(libc.prctl(1, signal.SIGKILL))
    check(libc.unshare(CLONE_NEWNET))
    os.write(ready, b"n")
    os.read(go, 1)
    ip("link", "set", "lo", "up")
    ip("link", "set", "outside", "up")
    ip("address", "add", "203.0.113.1/24", "dev", "outside")
    ip("address", "add", "fd00::1/64", "dev", "outside", "nodad")
    for address in [PUBLIC, *PRIVATE, *LINK_LOCAL]:
        ip("address", "add", address + "/32", "dev", "outside")
    keep = [listen(socket.AF_INET, kind, ("0.0.0.0", port), secret)
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM) for port in (80, 53, PORT)]
    keep.append(listen(socket.AF_INET6, socket.SOCK_STREAM, ("::", PORT), secret))
    member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    member.bind((GROUP, PORT + 1))
    member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                      socket.inet_aton(GROUP) + socket.inet_aton("203.0.113.1"))
    os.write(ready, b"r")
    while True:
        data, peer = member.recvfrom(2048)
        with open(witness, "ab") as f:
            f.write(data + b"\n")
        member.sendto(secret, peer)


def build_network(secret, witness):
    from_world, ready = os.pipe()
    go, to_world = os.pipe()
    pid = os.fork()
    if pid == 0:
        world(ready, go, secret, witness)
    os.read(from_world, 1)
    check(libc.unshare(CLONE_NEWNET))
    ip("link", "set", "lo", "up")
    ip("link", "add", "cable", "type", "veth", "peer", "name", "outside", "netns", str(pid))
    ip("address", "add", OWN + "/24", "dev", "cable")
    ip("address", "add", "fd00::9/64", "dev", "cable", "nodad")
    ip("link", "set", "cable", "up")
    ip("route", "add", "default", "via", "203.0.113.1")
    os.write(to_world, b"g")
    os.read(from_world, 1)
    return pid


def own_mounts():
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, 0x44000, None))  # MS_REC | MS_PRIVATE


def give_range(folder, uid, ids):
    """No range, or this one, whatever the machine's own files say."""
    for name in ("subuid", "subgid"):
        path = os.path.join(folder, name)
        with open(path, "w") as f:
            f.write(f"{uid}:{ids}\n" if ids else "")
        os.chmod(path, 0o644)
        if ids or os.path.exists("/etc/" + name):
            check(libc.mount(path.encode(), f"/etc/{name}".encode(), None, 4096, None))  # MS_BIND


def open_tun(folder):
    """Internet for an engine of an ordinary user, too, without a change to the machine's device."""
    node = os.path.join(folder, "tun").encode()
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(10, 200))
    os.chmod(node, 0o666)
    check(libc.mount(node, b"/dev/net/tun", None, 4096, None))


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def forward(client, port):
    try:
        engine = socket.create_connection(("127.0.0.1", port))
    except OSError:
        client.close()
        return
    back = threading.Thread(target=pump, args=(engine, client), daemon=True)
    back.start()
    pump(client, engine)
    back.join()
    client.close()
    engine.close()


def accept_all(listener, port):
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=forward, args=(client, port), daemon=True).start()


def become(uid):
    def change():
        libc.prctl(1, signal.SIGKILL)
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
    return change


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    uid, where = int(os.environ.pop("ATTACK_UID")), os.environ.pop("ATTACK_WHERE")
    ids = os.environ.pop("ATTACK_RANGE")
    program, folder = os.environ.pop("ATTACK_ENGINE"), os.path.dirname(where)
    secret = "decoy-" + secrets.token_hex(16)
    neighbours = build_network(secret.encode(), os.path.join(folder, "multicast"))
    if uid:
        own_mounts()
        open_tun(folder)
        give_range(folder, uid, ids)
    here = os.path.dirname(os.path.abspath(__file__))
    decoys = subprocess.Popen(
        ["/usr/bin/python3", "-B", os.path.join(here, "decoys.py"), os.path.join(folder, "decoys-" + secrets.token_hex(4))],
        env={"DECOY_SECRET": secret, "PATH": "/usr/bin:/bin"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=become(0))
    coordinates = json.loads(decoys.stdout.readline())
    engine = subprocess.Popen([program, *sys.argv[1:]], env={**os.environ, "SANDGATE_TEST_SECRET": secret},
                              stderr=subprocess.PIPE, preexec_fn=become(uid))
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, lambda *_: engine.send_signal(signal.SIGTERM))
    coordinates |= {"private": PRIVATE, "link_local": LINK_LOCAL, "public": PUBLIC, "own": [OWN], "own6": ["fd00::9", "fd00::1"],
                    "group": GROUP, "lan_port": PORT, "machine": os.getpid(), "engine": engine.pid}
    with open(where, "w") as f:
        json.dump(coordinates, f)
    for line in engine.stderr:
        found = re.search(rb"ready on http://127\.0\.0\.1:(\d+)", line)
        if found:
            threading.Thread(target=accept_all, args=(listener, int(found[1])), daemon=True).start()
            line = line.replace(found[1], str(listener.getsockname()[1]).encode(), 1)
            coordinates["engine_port"] = int(found[1])
            with open(where, "w") as f:
                json.dump(coordinates, f)
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
    status = engine.wait()
    decoys.stdin.close()
    decoys.wait()
    os.kill(neighbours, signal.SIGKILL)
    os.waitpid(neighbours, 0)
    os._exit(status if status >= 0 else 1)


if __name__ == "__main__":
    main()
