"""Takes memory of one process that its heap limit does not count: shared mappings.

holds: memory limit
unconfined: root
alone: small
ends: yes
as: user
"""
import mmap

from kit.attack import breach, held, linger

WANTED = 512 << 20
taken = []
try:
    for _ in range(WANTED >> 24):
        area = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        area.write(b"x" * (16 << 20))
        taken.append(area)
except (OSError, MemoryError) as e:
    held(f"{len(taken) * 16} MiB: {e}")
linger()
breach(f"{len(taken) * 16} MiB")
