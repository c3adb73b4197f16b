"""The shell's fork bomb, which multiplies, and does not stop by itself.

Unconfined it runs in a pid namespace of its own under a limit that it must reach.

holds: rlimits, pid namespace
unconfined: namespaces
alone: small
as: user
"""
import os
import resource
import signal
import subprocess
import time

from kit.attack import breach, held, processes, unconfined

LIMIT = 200
ALLOWED = 1024 + 64  # of one user, and room for what is there besides
# No id but one that nobody else has: the limit counts processes by user.
bomb = subprocess.Popen(["bash", "-c", "b() { b | b & b & }; b; sleep 3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                        preexec_fn=lambda: (resource.setrlimit(resource.RLIMIT_NPROC, (LIMIT, LIMIT)), os.setuid(0x4AAA0000)) if unconfined else None)
count, end = 0, time.monotonic() + 1.5
while time.monotonic() < end:
    time.sleep(0.1)
    count = max(count, len(processes()))
if unconfined:
    breach(f"{count} processes") if count >= LIMIT // 2 else held(f"{count} processes")
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
breach(f"{count} processes") if count > ALLOWED else held(f"{count} processes, and the neighbours answered")
