"""Attaches to System V segments, queues and semaphores of the host, POSIX queues and /dev/shm.

holds: ipc namespace, mount namespace
unconfined: root
"""
import ctypes
import os

from kit.attack import decoys, has_secret, libc, read, syscall, tries

key = decoys["ipc_key"]


def segment():
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(syscall("shmget", key, 0, 0), None, 0o10000)
    return has_secret(ctypes.string_at(address, 38)) and "the segment"


tries({
    "segment": segment,
    "queue": lambda: syscall("msgget", key, 0) >= 0 and "the queue",
    "semaphore": lambda: syscall("semget", key, 0, 0) >= 0 and "the semaphore",
    "posix queue": lambda: syscall("mq_open", decoys["queue"][1:].encode(), os.O_RDWR, 0, 0) >= 0 and "the queue",
    "/dev/shm": lambda: has_secret(read(decoys["shm"])) and "the file",
})
