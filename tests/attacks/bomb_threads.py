"""Starts threads until it is told no.

holds: rlimits
unconfined: root
alone: small
"""
import threading
import time

from kit.attack import breach, held

ALLOWED = 1024
threading.stack_size(65536)
stop = threading.Event()
threads = []
why = "enough"
while len(threads) <= ALLOWED + 50:
    thread = threading.Thread(target=stop.wait, daemon=True)
    try:
        thread.start()
    except RuntimeError as e:
        why = e
        break
    threads.append(thread)
time.sleep(0.5)
stop.set()
breach(f"{len(threads)} threads") if len(threads) > ALLOWED else held(f"{len(threads)} threads: {why}")
