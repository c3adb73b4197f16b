"""SIGKILL to everything it can see, and to the agent again and again.

The runner then asks the engine and the neighbours whether they live. Unconfined the victim is a
process beside it in a pid namespace of the test's own.

holds: pid namespace
unconfined: namespaces
alone: base
"""
import os
import signal
import subprocess
import time

from kit.attack import attempt, breach, held, unconfined

victim = subprocess.Popen(["sleep", "60"]).pid if unconfined else 1
signal.signal(signal.SIGTERM, signal.SIG_IGN)
refused = set()
for _ in range(50):
    for target in (-1, victim):
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            refused.add(attempt(lambda: os.kill(target, sig))[1])
time.sleep(0.2)
if unconfined:
    os.waitpid(victim, 0)
    breach("the victim died")
state = open("/proc/1/stat").read().split()[2]
if state in "TZX":
    breach(f"the agent is in state {state}")
held(f"the agent is in state {state}: {refused}")
