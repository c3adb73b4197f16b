"""Makes more names than its disk may have inodes.

holds: mount namespace
unconfined: root
alone: small
as: user
"""
import os
import shutil
import tempfile

from kit.attack import breach, held

ALLOWED = 65536
folder = tempfile.mkdtemp(dir="/dev/shm")
count, why = 0, ""
try:
    while count <= ALLOWED:
        os.symlink("x", f"{folder}/{count}")
        count += 1
except OSError as e:
    why = e.strerror
shutil.rmtree(folder)
breach(f"{count} inodes") if count > ALLOWED else held(f"{count} inodes: {why}")
