"""Every signal there is to the agent: none may end or stop it.

holds: pid namespace
unconfined: root
alone: base
"""
import os
import signal
import subprocess
import time

from kit.attack import breach, held, unconfined

target = subprocess.Popen(["sleep", "60"]).pid if unconfined else 1
for sig in sorted(signal.valid_signals()):
    try:
        os.kill(target, sig)
    except OSError:
        continue
time.sleep(0.2)
state = open(f"/proc/{target}/stat").read().split()[2]
breach(f"it is in state {state}") if state in "TtZX" else held(f"it is in state {state}")
