"""What the attacks are after, planted on the machine beside the engine: a process with a secret in
its environment, name, memory and open files, files, sockets of all kinds, shared memory.

    decoys.py FOLDER    prints where it all is, as one JSON line, and stays until its input ends

It is started with the secret in $DECOY_SECRET. As root, where a decoy needs root.
"""
import ctypes
import hashlib
import json
import os
import random
import socket
import stat
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)


def serve(sock, secret):
    """Says the secret to whoever connects, or sends a datagram."""
    def loop():
        while True:
            try:
                if sock.type == socket.SOCK_DGRAM:
                    _, peer = sock.recvfrom(2048)
                    if peer:
                        sock.sendto(secret, peer)
                else:
                    peer, _ = sock.accept()
                    peer.sendall(secret)
                    peer.close()
            except OSError:
                continue
    threading.Thread(target=loop, daemon=True).start()


def listen(family, kind, address, secret):
    sock = socket.socket(family, kind)
    if family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    if kind == socket.SOCK_STREAM:
        sock.listen()
    serve(sock, secret)
    return sock


def plant_files(folder, secret):
    os.makedirs(os.path.join(folder, "system", "bin"), exist_ok=True)
    for name, mode in (("open.txt", 0o644), ("closed.txt", 0o600), ("system/bin/env", 0o755)):
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(secret)
        os.chmod(path, mode)
    setuid = os.path.join(folder, "setuid-id")
    with open("/usr/bin/id", "rb") as program, open(setuid, "wb") as f:
        f.write(program.read())
    os.chmod(setuid, 0o4755)
    shm = "/dev/shm/" + os.path.basename(folder)
    with open(shm, "wb") as f:
        f.write(secret)
    os.chmod(shm, 0o644)
    return {"folder": folder, "file": os.path.join(folder, "open.txt"), "shm": shm, "setuid": setuid,
            "system": os.path.join(folder, "system")}


def file_handle(path):
    """What open_by_handle_at wants: [type, bytes in hex]."""
    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0) < 0:
        return None
    return [handle.type, bytes(handle.bytes[: handle.size]).hex()]


def plant_ipc(secret):
    key = random.randrange(1 << 20, 1 << 30)
    libc.shmat.restype = ctypes.c_void_p
    shm = libc.shmget(key, 4096, 0o1666)
    ctypes.memmove(libc.shmat(shm, None, 0), secret, len(secret))
    queue = libc.msgget(key, 0o1666)
    semaphore = libc.semget(key, 1, 0o1666)
    libc.mq_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    name = f"/decoy{key}"
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    rt.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)

    def remove():
        libc.shmctl(shm, 0, None)
        libc.msgctl(queue, 0, None)
        libc.semctl(semaphore, 0, 0)
        rt.mq_unlink(name.encode())
    return {"ipc_key": key, "queue": name}, remove


def plant_sockets(folder, secret):
    name = "decoy-" + os.urandom(8).hex()
    path = os.path.join(folder, "socket")
    keep = [
        listen(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + name, secret),
        listen(socket.AF_UNIX, socket.SOCK_STREAM, path, secret),
    ]
    os.chmod(path, stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    tcp = listen(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0), secret)
    port = tcp.getsockname()[1]
    keep += [tcp, listen(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", port), secret),
             listen(socket.AF_INET6, socket.SOCK_STREAM, ("::", port), secret)]
    return keep, {"abstract": name, "socket": path, "port": port, "fd": keep[0].fileno()}


def main():
    folder, secret = sys.argv[1], os.environ["DECOY_SECRET"].encode()
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    memory = ctypes.create_string_buffer(secret)
    ipc, remove = plant_ipc(secret)
    keep, sockets = plant_sockets(folder, secret)
    files = plant_files(folder, secret)
    where = {"sha256": hashlib.sha256(secret).hexdigest(), "pid": os.getpid(),
             "address": ctypes.addressof(memory), "handle": file_handle(files["file"]),
             **ipc, **sockets, **files}
    print(json.dumps(where), flush=True)
    try:
        while os.read(0, 4096):
            pass
    finally:
        remove()
        os.unlink(files["shm"])
        del keep


if __name__ == "__main__":
    main()
