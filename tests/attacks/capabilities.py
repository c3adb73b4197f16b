"""Raises capabilities: by capset, ambient and inheritable sets, file capabilities, keep-caps.

holds: user namespace
unconfined: root
"""
import ctypes
import os
import shutil
import struct
import subprocess
import tempfile

from kit.attack import libc, syscall, tries

PR_CAPBSET_READ, PR_CAP_AMBIENT, PR_SET_SECUREBITS = 23, 47, 28


def capset():
    head = (ctypes.c_uint * 2)(0x20080522, 0)
    every = (ctypes.c_uint * 6)(1 << 0, 1 << 0, 0, 0, 0, 0)  # CAP_CHOWN
    syscall("capset", head, every)
    return "CAP_CHOWN"


def bounding():
    return [cap for cap in range(41) if libc.prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1]


def effective():
    return int(next(line for line in open("/proc/self/status") if line.startswith("CapEff")).split()[1], 16)


def securebits():
    if libc.prctl(PR_SET_SECUREBITS, 1 << 4, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "securebits")
    return "securebits"


def of_file():
    """A program with capabilities in its extended attributes."""
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.copy("/usr/bin/grep", folder)
        os.setxattr(program, "security.capability", struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0))
        text = subprocess.run([program, "CapEff", "/proc/self/status"], capture_output=True, text=True).stdout
        return int(text.split()[1], 16) and text


tries({"effective": effective, "bounding": bounding, "file": of_file, "securebits": securebits, "capset": capset})
