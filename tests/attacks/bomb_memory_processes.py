"""Takes more memory in several processes than the sandbox has: each stays below what one may have.

holds: memory limit
unconfined: root
alone: small
ends: yes
as: user
"""
import os
import signal
import time

from kit.attack import breach, held, linger

EACH, COUNT = 128 << 20, 4  # with a disk of 16 MiB, 256 MiB are allowed

children = []
for _ in range(COUNT):
    done, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        block = bytearray(b"x" * (16 << 20)) * (EACH >> 24)
        os.write(out, b"x")
        time.sleep(30)
        os._exit(0)
    os.close(out)
    children.append((pid, done))
full = sum(len(os.read(done, 1)) for _, done in children)
linger()
alive = sum(os.waitpid(pid, os.WNOHANG)[0] == 0 for pid, _ in children)
for pid, _ in children:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
breach(f"{alive} processes of {EACH >> 20} MiB") if full == COUNT == alive else held(f"{full} of {COUNT} got theirs, {alive} live")
