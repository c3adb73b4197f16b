"""Keeps and finds keys in the kernel's keyrings, which no namespace but the user's confines.

holds: seccomp
unconfined: namespaces
"""
from kit.attack import syscall, tries

PROCESS, USER = -2, -4


tries({
    "add": lambda: syscall("add_key", b"user", b"planted", b"x", 1, PROCESS) and "a key",
    "describe": lambda: syscall("keyctl", 0, PROCESS, 1) and "a keyring",
    "join": lambda: syscall("keyctl", 1, 0) and "a session keyring",
    "request": lambda: syscall("request_key", b"user", b"planted", 0, 0) and "a key",
})
