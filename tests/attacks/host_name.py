"""Renames the machine.

holds: uts namespace, user namespace
unconfined: namespaces
"""
from kit.attack import syscall, tries

tries({"host": lambda: syscall("sethostname", b"planted", 7) == 0 and "a host name",
       "domain": lambda: syscall("setdomainname", b"planted", 7) == 0 and "a domain name"})
