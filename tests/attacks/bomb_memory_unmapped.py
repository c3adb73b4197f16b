"""Takes memory that no process maps: files in memory, written and not mapped, and detached segments.

Whoever sums up what the processes have mapped does not see it.

holds: limit on unmapped memory
unconfined: root
alone: small
ends: yes
as: user
"""
import ctypes
import os
import time

from kit.attack import breach, held, libc, syscall

EACH, COUNT = 16 << 20, 32
block = b"x" * (1 << 20)
taken, why, files, segments = 0, [], [], []
libc.shmat.restype = ctypes.c_void_p
for i in range(COUNT):
    try:
        if i % 2:
            segment = syscall("shmget", 0, EACH, 0o1600)
            segments.append(segment)
            address = libc.shmat(segment, None, 0)
            ctypes.memset(address, 1, EACH)
            libc.shmdt(ctypes.c_void_p(address))
        else:
            files.append(os.memfd_create("bomb"))
            for _ in range(EACH >> 20):
                os.write(files[-1], block)
        taken += EACH
    except OSError as e:
        why.append(e.strerror)
time.sleep(1.5)
for segment in segments:
    libc.shmctl(segment, 0, None)
breach(f"{taken >> 20} MiB") if taken >= EACH * COUNT else held(f"{taken >> 20} MiB: {set(why)}")
