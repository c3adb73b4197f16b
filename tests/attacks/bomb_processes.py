"""Forks until it is told no, and keeps what it got for a while.

In a sandbox that has the memory for them, so that nothing but their number stops it.

holds: rlimits
unconfined: root
alone: base
"""
import os
import signal
import time

from kit.attack import breach, held

ALLOWED = 1024
children = []
why = "enough"
while len(children) <= ALLOWED + 50:
    try:
        pid = os.fork()
    except OSError as e:
        why = e
        break
    if pid == 0:
        signal.pause()
        os._exit(0)
    children.append(pid)
time.sleep(0.7)
for pid in children:
    os.kill(pid, signal.SIGKILL)
for pid in children:
    os.waitpid(pid, 0)
breach(f"{len(children)} processes") if len(children) > ALLOWED else held(f"{len(children)} processes: {why}")
