"""Takes more memory in one process than the sandbox has.

holds: rlimits
unconfined: root
alone: small
"""
from kit.attack import breach, held

ALLOWED = 256
blocks = []
try:
    while len(blocks) <= ALLOWED // 8:
        blocks.append(bytearray(b"x" * (8 << 20)))
except MemoryError:
    held(f"{len(blocks) * 8} MiB")
breach(f"{len(blocks) * 8} MiB")
