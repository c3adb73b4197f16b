"""Writes more than the disk of its template, at every place that can be written to.

holds: mount namespace
unconfined: root
alone: small
"""
import os
import tempfile

from kit.attack import decoys, breach, held, unconfined

ALLOWED = 16 << 20
places = [decoys["folder"], "/dev/shm"] if unconfined else ["/tmp", "/home/user", "/dev/shm", "/var/tmp", "/run/shm", "/root", "/run", "/var"]
written, why, files = 0, [], []
for place in places:
    try:
        fd, name = tempfile.mkstemp(dir=place)
        files.append(name)
        while written <= 2 * ALLOWED:
            written += os.write(fd, b"x" * (1 << 20))
    except OSError as e:
        why.append(f"{place}: {e.strerror}")
for name in files:
    os.unlink(name)
breach(f"{written >> 20} MiB") if written > ALLOWED else held(f"{written >> 20} MiB: {why}")
