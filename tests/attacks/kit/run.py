"""Runs attacks one after the other, each in a fork of this very process: with its ids, namespaces,
filters and open files, whether this is a command or the interpreter. One JSON line for each.

    run.py ATTACK.py...         or, in the interpreter, run(["ATTACK.py", ...])
"""
import json
import os
import runpy
import select
import signal
import sys
import time
import traceback

SECONDS = 20  # for one attack
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def child(path, out):
    """Never returns."""
    status = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        sys.path.insert(0, HERE)
        for name in [n for n in sys.modules if n.split(".")[0] == "kit"]:
            del sys.modules[name]
        runpy.run_path(path, run_name="__main__")
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 70
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def run_one(path):
    from_child, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(path, out)
    os.close(out)
    text, end, status = b"", time.monotonic() + SECONDS, None
    while status is None:
        ready, _, _ = select.select([from_child], [], [], 0.05)
        if ready:
            text += os.read(from_child, 65536)
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            status = code
            os.set_blocking(from_child, False)
            try:
                text += os.read(from_child, 65536)      # what it said since, which is all that a pipe holds
            except BlockingIOError:
                pass                                    # nothing, and a child of its own is still there
        elif time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            text += b"\nno verdict in time"
    os.close(from_child)
    return {"attack": os.path.basename(path), "status": os.waitstatus_to_exitcode(status),
            "output": text.decode("utf-8", "backslashreplace")[-4000:]}


def run(names):
    for name in names:
        print(json.dumps(run_one(os.path.join(HERE, name))), flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
