"""Opens files until it is told no, and raises its limit first.

holds: rlimits
unconfined: root
"""
import os
import resource

from kit.attack import breach, held, unconfined

ALLOWED = 8192
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (ALLOWED * 2, max(ALLOWED * 2, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
except (ValueError, OSError):
    pass
first = os.open("/dev/null", os.O_RDONLY)
count = 0
try:
    while count <= ALLOWED:
        os.dup(first)
        count += 1
    breach(f"{count} files")
except OSError as e:
    held(f"{count} files: {e}")
