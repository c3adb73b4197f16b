"""Changes its ids: to root, to another user, to more groups.

holds: user namespace, root and user
unconfined: root
"""
import os

from kit.attack import tries, unconfined


def setuid(uid):
    def change():
        if os.getuid() == uid and not unconfined:
            return None
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(uid, uid, uid)
                os._exit(0)
            except OSError as e:
                os._exit(e.errno)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            raise OSError(code, "setresuid")
        return f"uid {uid}"
    return change


def groups():
    os.setgroups([0, 4, 27, 42])
    return os.getgroups()


tries({"root": setuid(0), "user": setuid(1000), "stranger": setuid(65533), "groups": groups})
