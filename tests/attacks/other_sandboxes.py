"""Looks for what another sandbox has put into its files, shared memory and environment.

The runner plants the secret in a neighbour; unconfined, the decoys have it at the same places.

holds: mount namespace, pid namespace, ipc namespace
unconfined: root
"""
import os

from kit.attack import decoys, has_secret, processes, read, tries, unconfined

places = [decoys["folder"], "/dev/shm"] if unconfined else ["/tmp", "/home", "/dev/shm", "/run", "/var", "/root", "/mnt", "/srv"]


def files():
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if has_secret(read(path, 4096)):
                        return path
                except OSError:
                    continue


def environments():
    for pid in processes():
        try:
            if has_secret(read(f"/proc/{pid}/environ")):
                return pid
        except OSError:
            continue


def memory():
    return has_secret(read(decoys["shm"])) and decoys["shm"]


tries({"files": files, "environments": environments, "shared memory": memory})
