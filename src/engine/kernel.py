"""Driver of one Python context inside a sandbox.

It runs cells in IPython's InteractiveShell and speaks JSON lines with the engine on a socket:
the engine sends {"op": "run", "code": ..., "env": ...}, the driver answers with the lines of
E2B's /execute stream, from number_of_executions to end_of_execution. {"op": "env", "env": ...} sets
variables for good and has no answer. File descriptors 1 and 2
belong to the engine as well, so what C code and subprocesses print needs no help from here.

prepare() does what may be shared by forks (imports, the shell object; no thread, no open file),
serve() does what belongs to one context. Started with the zygote's library as descriptor 4 it does the
first once, with the libraries that most people import, and then forks itself into sandboxes.
"""

import _ctypes
import asyncio
import atexit
import binascii
import bdb
import builtins
import codecs
import collections
import ctypes
import fcntl
import functools
import gc
import getpass
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import select
import signal
import site
import subprocess
import sys
import termios
import time
import traceback
import types
from _thread import allocate_lock, get_ident, start_new_thread
from datetime import datetime, timezone
from math import isfinite
from time import monotonic


def import_ipython():
    """Import IPython without its terminal front end and jedi, which take half of the time.

    IPython's package imports both, but only a terminal uses them. They stay importable.
    """
    embed = types.ModuleType("IPython.terminal.embed")
    embed.embed = lambda *args, **kw: importlib.import_module("IPython.terminal.embed").embed(*args, **kw)
    sys.modules.update({"IPython.terminal.embed": embed, "jedi": None})
    try:
        import IPython.core.interactiveshell
    finally:
        del sys.modules["IPython.terminal.embed"], sys.modules["jedi"]


import_ipython()

from IPython.core import interactiveshell
from IPython.core.async_helpers import get_asyncio_loop
from IPython.core.autocall import ExitAutocall
from IPython.core.display_functions import display
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.core.formatters import BaseFormatter
from IPython.core.profiledir import ProfileDir
from IPython.utils.text import LSString, SList
from traitlets import ObjectName, Type, Unicode
from traitlets.config import Config

BAD_ENGINE = 70                 # exit status when the control socket cannot be understood or used
MAX_LINE = 16 << 20             # no line to the engine may be longer
MAX_HELD = 1 << 20              # output of threads kept between two runs; what is more is dropped
GATHER = 16 << 10               # characters of output that are sent without waiting for more
LINGER = 0.01                   # seconds that output may wait for more
PATIENCE = 5                    # milliseconds for the first request before a kernel warms itself up
MAX_CELLS = 1 << 19             # a DataFrame with more cells is given without its data

# A handler of the user's may raise, so these wait while no cell runs.
USER_SIGNALS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2)

FD = {"stdout": 1, "stderr": 2}
KEY = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
    "application/json": "json", "application/javascript": "javascript", "e2b/data": "data",
    "e2b/chart": "chart",
}
BASE64 = ("image/png", "image/jpeg", "application/pdf")


# --- values to JSON ---

def text_of(value):
    """str(value), also when the value's own code is broken."""
    try:
        return str(value)
    except Exception:
        return "<%s object>" % type(value).__name__


def plain(value, above=()):
    """The value in JSON's own types: no NaN, no cycle, no foreign object."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 4096 else hex(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if id(value) in above or len(above) > 50 or type(value).__name__ in ("NaTType", "NAType"):
        return None
    above += (id(value),)
    if isinstance(value, dict):
        return {text_of(k): plain(v, above) for k, v in list(value.items())}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v, above) for v in list(value)]
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    for method in ("isoformat", "tolist"):                      # dates; NumPy's scalars and arrays
        try:
            return plain(getattr(value, method)(), above)
        except Exception:
            continue
    return text_of(value)


strict_json = json.JSONEncoder(allow_nan=False).encode


def to_json(value):
    """Valid ASCII JSON of any value. What is JSON already, nearly always, is not walked twice."""
    try:
        return strict_json(value)
    except (TypeError, ValueError, RecursionError):
        return strict_json(plain(value))


def to_line(frame):
    return to_json(frame).encode("ascii") + b"\n"


def frame_data(frame):
    """The `data` of a pandas DataFrame: {column: [values]}."""
    try:
        if frame.size > MAX_CELLS:
            return None
        columns = (frame.iloc[:, i] for i in range(frame.shape[1]))
        return {text_of(name): plain(column.tolist()) for name, column in zip(frame.columns, columns)}
    except Exception:
        return None                                             # text and html are still there


@functools.lru_cache(None)
def charts():
    """charts.py, which lies beside this file; read when the first figure is shown."""
    path = os.path.join(os.path.dirname(os.path.realpath(text_of.__code__.co_filename)), "charts.py")
    with open(path, encoding="utf-8") as source:
        code = compile(source.read(), path, "exec")
    names = {"__name__": "charts"}
    exec(code, names)
    return names


def figure_chart(figure):
    """The `chart` of a matplotlib figure."""
    try:
        return charts()["chart_of"](figure)
    except Exception:
        return {}                                               # the picture is still there


def json_data(value):
    """The `json` of a list or dict; None when something in it has no place in JSON."""
    left = MAX_CELLS

    def convert(value, depth):
        nonlocal left
        left -= 1
        if left < 0 or depth > 50:
            raise ValueError
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)):
            return plain(value)
        if isinstance(value, dict):
            return {text_of(k): convert(v, depth + 1) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [convert(v, depth + 1) for v in value]
        for method in ("isoformat", "tolist"):
            if hasattr(value, method):
                return convert(getattr(value, method)(), depth + 1)
        raise TypeError

    try:
        return convert(value, 0)
    except Exception:
        return None                                             # text is still there


def mime_value(mime, value):
    """One value of a MIME bundle as it goes on the wire."""
    if isinstance(value, (bytes, bytearray)):
        if mime in BASE64 or not mime.startswith(("text/", "application/j", "image/svg")):
            return binascii.b2a_base64(value, newline=False).decode("ascii")
        return value.decode("utf-8", "replace")
    if KEY.get(mime, "json") in ("json", "data", "chart"):
        return value
    value = text_of(value)
    if mime in BASE64:
        return "".join(value.split())
    if mime == "text/plain" and len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


def result_line(bundle, main):
    """The result line of a MIME bundle."""
    values = {text_of(m): mime_value(text_of(m), v) for m, v in bundle.items() if v is not None}
    if all(len(v) < MAX_LINE for v in values.values() if isinstance(v, str)):
        line = values_line(values, main)
        if len(line) <= MAX_LINE:
            return line
    return values_line(trimmed(values), main)


def values_line(values, main):
    frame = {key: values[mime] for mime, key in KEY.items() if mime in values}
    extra = {mime: value for mime, value in values.items() if mime not in KEY}
    return to_line({"type": "result", **frame, "extra": extra, "is_main_result": main})


def trimmed(values):
    """The values that fit in a line: the largest are left out first, text is cut instead."""
    sizes = {mime: len(value) if isinstance(value, str) and len(value) > MAX_LINE else len(to_json({mime: value}))
             for mime, value in values.items()}
    room, notes = MAX_LINE - (1 << 20), ""
    text = values.pop("text/plain", "")
    while sum(sizes.values()) > room:
        largest = max(sizes, key=sizes.get)
        del sizes[largest]
        if largest == "text/plain":
            text, notes = text[:256 << 10], notes + "\n[text cut: too large]"
            room -= 4 << 20                                     # a character has up to 12 bytes
        else:
            del values[largest]
            notes += "\n[%s left out: too large]" % largest[:100]
    return {"text/plain": text + notes[:32 << 10], **values}


# --- the way out ---

class Wire:
    """All lines to the engine leave through one thread of this object.

    Python runs signal handlers in the main thread only, so no KeyboardInterrupt (nor what a
    handler of the user's raises) can tear a line, and no lock is shared that one could leave
    taken: the queue is a deque, whose append is atomic, and waiting is for a lock of one's own.
    """

    def __init__(self):
        self.fd = -1
        self.child = False              # this process is a fork of the driver: write to fd 1 and 2
        self.queue = collections.deque()    # (kind, load): kind is a stream's name or as in _take()
        self.bell = allocate_lock()     # free: rung, the thread has to look at the queue
        self.bell.acquire()
        self.awake = False              # the thread will look soon without being rung
        self.unsent = 0                 # about how much was queued since somebody last waited
        self.thread = None
        # The rest belongs to the thread.
        self.running = False            # between number_of_executions and end_of_execution
        self.failed = False             # this run has had its error line
        self.name, self.parts, self.size, self.deadline = None, [], 0, 0.0
        self.held, self.held_size = [], 0

    def open(self, fd):
        self.fd = fd
        os.register_at_fork(after_in_child=self._forked)
        start_new_thread(self._main, ())

    def put(self, kind, load):
        """Queue text of a stream or a whole line; wait when the engine does not keep up."""
        if self.child:
            if kind in FD:
                write_all(FD[kind], load.encode("utf-8", "backslashreplace"))
            return
        self.queue.append((kind, load))
        if kind not in FD or not self.awake:
            self._ring()
        self.unsent += len(load)
        if self.unsent >= GATHER:
            self.unsent = 0
            self.sync()

    def sync(self):
        """Wait until all that was put before is with the engine."""
        if self.child or get_ident() == self.thread:            # a __del__ may print in the thread
            return
        ticket = allocate_lock()
        ticket.acquire()
        self.queue.append(("ticket", ticket))
        self._ring()
        ticket.acquire()

    def _ring(self):
        try:
            self.bell.release()
        except RuntimeError:
            pass                                                # rung already

    def _forked(self):
        """In a forked child: the socket and what is queued are the parent's."""
        if self.child:                  # a fork of a fork
            return
        self.child = True
        self.queue.clear()
        os.close(self.fd)
        if getattr(signal.getsignal(signal.SIGINT), "__func__", None) is Kernel.on_sigint:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _main(self):
        self.thread = get_ident()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while True:
                self._turn()
        except BaseException:
            os._exit(BAD_ENGINE)                                # the engine is gone, or no memory

    def _turn(self):
        timeout = max(0.0, self.deadline - monotonic()) if self.parts else -1
        self.awake = bool(self.parts)
        self.bell.acquire(timeout=timeout)
        self.awake = False              # before the look: what is put after it rings
        while self.queue:
            self._take(*self.queue.popleft())
        if self.parts and monotonic() >= self.deadline:
            self._flush()

    def _take(self, kind, load):
        if kind == "ticket":
            self._flush()
            load.release()
        elif kind == "ready":
            write_all(self.fd, load)
        elif kind == "start":
            self.running, self.failed = True, False
            write_all(self.fd, load)
            held, self.held, self.held_size = self.held, [], 0
            for item in held:
                self._take(*item)
        elif kind == "error" and (self.failed or not self.running):
            pass                        # an interrupt can make the shell tell of two
        elif not self.running:
            self.held_size += len(load)
            if self.held_size <= MAX_HELD:
                self.held.append((kind, load))
        elif kind in FD:
            self._gather(kind, load)
        else:                                                   # "line", "error" or "end"
            self._flush()
            write_all(self.fd, load)
            self.running = kind != "end"
            self.failed = self.failed or kind == "error"

    def _gather(self, name, text):
        if name != self.name:
            self._flush()
            self.name = name
        if not self.parts:
            self.deadline = monotonic() + LINGER
        self.parts.append(text)
        self.size += len(text)
        if self.size >= GATHER:
            self._flush()

    def _flush(self):
        text = "".join(self.parts)
        self.parts, self.size = [], 0
        step = (64 << 10) if text.isascii() else (16 << 10)     # at most 64 KiB as UTF-8
        for at in range(0, len(text), step):
            write_all(self.fd, stamped_line(self.name, text[at:at + step]))


def stamped_line(name, text):
    now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
    return to_line({"type": name, "text": text, "timestamp": now})


def write_all(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data):]


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr of the user's code."""
    encoding, errors, newlines, line_buffering, mode = "utf-8", "replace", None, False, "w"

    def __init__(self, wire, name):
        self._wire, self._kind, self.name = wire, name, "<%s>" % name
        self.buffer = ByteStream(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if text:
            self._wire.put(self._kind, text)
        return len(text)

    def flush(self):
        self._wire.sync()

    def close(self):
        """A context has no other output to go on with, so it is never closed."""
        self.flush()

    def reconfigure(self, **options):
        """Encoding and buffering are fixed; programs that set them mean no harm."""

    def fileno(self):
        return FD[self._kind]

    def writable(self):
        return True


class ByteStream(io.BufferedIOBase):
    """sys.stdout.buffer: bytes that become text of the stream, also when cut within a character."""

    def __init__(self, text):
        self._text, self.name, self.mode = text, text.name, "wb"
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data):
        data = bytes(data)
        self._text.write(self._decode(data))
        return len(data)

    def flush(self):
        self._text.flush()

    def close(self):
        self.flush()

    def fileno(self):
        return self._text.fileno()

    def writable(self):
        return True


# --- the shell ---

class Quit(BaseException):
    """What `exit` and `quit` raise: it ends the run and is no error."""


class Exiter(ExitAutocall):
    def __call__(self, *args):
        raise Quit


class MainResult(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.wire.put("line", result_line(format_dict, True))

    def finish_displayhook(self):
        pass


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kw):
        self._validate_data(data, metadata)
        if not update:                  # E2B's stream has no line for an update
            self.shell.wire.put("line", result_line(data, False))

    def clear_output(self, wait=False):
        """E2B's stream has no line for it."""


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    """Knows figures by itself, as matplotlib_inline takes them out of every formatter's table."""
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, obj):
        if any(c.__name__ == "Figure" and c.__module__ == "matplotlib.figure" for c in type(obj).__mro__):
            return figure_chart(obj)
        return super().__call__(obj)


class MemoryDB(dict):
    """Stands for IPython's on-disk database, so that a context leaves no file in the home."""

    def keys(self, pattern=""):
        return [key for key in dict.keys(self) if key.startswith(pattern.rstrip("*"))]


class ZMQInteractiveShell(interactiveshell.InteractiveShell):
    """Libraries know a notebook, where rich output is welcome, by this class name."""
    display_pub_class = Type(Publisher)
    displayhook_class = Type(MainResult)
    wire = None                         # set before the first instance is made
    started = False                     # this run has come to the user's code
    pending = False                     # an interrupt came before that
    failed = False                      # this run has had its error line
    awaiting = None                     # the task of a cell that awaits
    interrupted = False                 # its cancellation stands for a KeyboardInterrupt

    def init_ipython_dir(self, ipython_dir):
        pass                            # setting it would make the directory

    def _exiter_default(self):
        return Exiter(self)

    def enable_gui(self, gui=None):
        """There is no screen."""

    async def run_code(self, code_obj, result=None, *, async_=False):
        """IPython swallows interrupts in places on its way to the user's code: they wait for it."""
        self.started = True
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt
        return await super().run_code(code_obj, result, async_=async_)

    def system(self, cmd):
        """`!cmd`, on a terminal so that its output comes line by line."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        status = run_shell(self.var_expand(cmd, depth=1), lambda text: print(text, end=""), True)
        self.user_ns["_exit_code"] = -(status - 128) if status > 128 else status

    def getoutput(self, cmd, split=True, depth=0):
        """`x = !cmd`"""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        parts = []
        run_shell(self.var_expand(cmd, depth=depth + 1), parts.append, False)
        text = "".join(parts)
        return SList(text.splitlines()) if split else LSString(text)

    def _get_exc_info(self, exc_tuple=None):
        """Cut the driver's own frames off the end of a traceback: the user's call is what counts.

        Frames interrupted before their first line go too, as IPython cannot show them.
        """
        etype, value, tb = super()._get_exc_info(exc_tuple)
        entry = tb
        while entry is not None and entry.tb_next is not None:
            last = entry.tb_next
            if last.tb_frame.f_code.co_filename == run_shell.__code__.co_filename or not last.tb_lineno:
                entry.tb_next = None
            entry = entry.tb_next
        return etype, value, tb

    def showtraceback(self, exc_tuple=None, *args, **kw):
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if self.wire.child and isinstance(error, SystemExit):
            os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
        if not isinstance(error, Quit):
            super().showtraceback(exc_tuple, *args, **kw)

    def _showtraceback(self, etype, evalue, stb):
        self.fail(etype.__name__, text_of(evalue), "".join(stb))

    def fail(self, name, value, trace):
        """A run has one error line; what fails after it, or in a fork, is told on stderr."""
        if self.failed or self.wire.child:
            self.wire.put("stderr", trace + "\n")
        else:
            self.wire.put("error", to_line({"type": "error", "name": name[:1000], "value": value[:200 << 10],
                                            "traceback": trace[:1 << 20]}))
        self.failed = True

    def loop_runner_with_interrupt(self, coro):
        """Run a cell that awaits. An interrupt is raised in the cell, not in the event loop."""
        loop = get_asyncio_loop()
        task = self.awaiting = loop.create_task(awaited(coro, self))
        try:
            while True:
                try:
                    return loop.run_until_complete(task)
                except KeyboardInterrupt:                       # it hit another task
                    if task.done():
                        raise
                    self.interrupt_task()
        finally:
            self.awaiting, self.interrupted = None, False

    def interrupt_task(self):
        self.interrupted = True
        self.awaiting.cancel()
        self.awaiting.get_loop().call_soon_threadsafe(lambda: None)     # it may be asleep


async def awaited(coro, shell):
    return await interruptible(coro, shell)


@types.coroutine
def interruptible(coro, shell):
    """Await coro, giving it KeyboardInterrupt when an interrupt has cancelled its task."""
    try:
        future = coro.send(None)
        while True:
            try:
                value = yield future
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and shell.interrupted:
                    shell.interrupted, error = False, KeyboardInterrupt()
                future = coro.throw(error)
            else:
                future = coro.send(value)
    except StopIteration as stop:
        return stop.value


def output_pair(tty):
    """(read end, write end) for a command's output; a pipe where there are no terminals."""
    try:
        ours, theirs = os.openpty() if tty else os.pipe()
    except OSError:
        return os.pipe()
    if tty:
        mode = termios.tcgetattr(theirs)
        mode[1] &= ~termios.OPOST                               # "\n" stays "\n"
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        termios.tcsetwinsize(theirs, (24, 80))
    return ours, theirs


def run_shell(command, sink, tty):
    """Run a command, give its output to sink as it comes, return its status as subprocess does."""
    ours, theirs = output_pair(tty)
    try:
        child = subprocess.Popen([os.environ.get("SHELL") or "/bin/sh", "-c", command], stdin=subprocess.DEVNULL,
                                 stdout=theirs, stderr=theirs, start_new_session=True)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        copy_output(ours, sink, child)
        return child.wait()
    except BaseException:
        end_group(child)
        raise
    finally:
        os.close(ours)


def copy_output(fd, sink, child):
    """Until the end of file, or silence after the child's end: a background process may stay."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        if readable(fd, 50):
            try:
                data = os.read(fd, 64 << 10)
            except OSError:                                     # EIO: a terminal nobody has open
                data = b""
            text = decode(data, not data)
            if text:
                sink(text)
            if not data:
                return
        elif child.poll() is not None:
            return


def end_group(child):
    """End a command and what it started, giving it a moment to do so itself."""
    try:
        os.killpg(child.pid, signal.SIGINT)
        child.wait(0.2)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    except ProcessLookupError:
        child.wait()


def no_input(prompt=""):
    raise StdinNotImplementedError("raw_input was called, but this frontend does not support input requests.")


def no_getpass(prompt="", stream=None):
    raise StdinNotImplementedError("getpass was called, but this frontend does not support input requests.")


def page(shell, data, start=0, screen_lines=0):
    """Help goes to stdout, as nobody is there to turn pages."""
    text = data.get("text/plain", "") if isinstance(data, dict) else data
    print("\n".join(text.splitlines()[start:]))


# --- the runs ---

class Kernel:
    def __init__(self, shell, fd):
        self.shell, self.wire, self.fd = shell, shell.wire, fd
        self.busy = False               # from before a request is read until its run ends
        self.error = None               # what ended the cell, in IPython's words

    def on_sigint(self, signum, frame):
        """Raise KeyboardInterrupt if the user's code runs; keep it if that is about to run.

        That a cell runs is seen on the stack, not by a flag that would be set a moment too early
        or too late: what is raised below _cell() is always caught by run().
        """
        if self.shell.started and below_cell(frame):
            if self.shell.awaiting and not self.shell.awaiting.cancelling() and in_event_loop(frame):
                self.shell.interrupt_task()     # raising would break the loop
            else:
                raise KeyboardInterrupt
        elif self.busy or readable(self.fd, 0):
            self.shell.pending = True

    def serve(self):
        """Run what the engine asks for until it hangs up."""
        rest = b""
        while True:
            readable(self.fd, None)
            self.busy = True            # before the read, which hides the request from on_sigint()
            try:
                data = os.read(self.fd, 1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line:
                    self.obey(*parse(line))
                else:                   # what interrupts came so far were for an earlier one
                    self.shell.pending = False

    def obey(self, op, code, env):
        if op == "run":
            self.run(code, env)
        else:
            set_env(env)
            self.busy = False

    def run(self, code, env):
        self.error, self.shell.started, self.shell.failed = None, False, False
        count = self.shell.execution_count
        self.wire.put("start", to_line({"type": "number_of_executions", "execution_count": count}))
        saved = set_env(env)
        self.before()
        try:
            self._cell(code)
        except BaseException as error:
            self.error = error
        signal.pthread_sigmask(signal.SIG_BLOCK, USER_SIGNALS)
        if self.error is not None and not self.shell.failed:
            self.tell(self.error)
        if self.wire.child:
            os._exit(int(self.shell.failed))                    # a fork that came back from its cell
        set_env(saved)
        # IPython counts twice or not at all when a cell fails in certain ways.
        self.shell.execution_count = count + (1 if code and not code.isspace() else 0)
        signal.signal(signal.SIGINT, self.on_sigint)            # the user's is for one cell
        self.busy = False               # an interrupt is now for the next request, if there is one
        self.shell.pending = False
        self.wire.put("end", b'{"type": "end_of_execution"}\n')
        self.wire.sync()

    def warm_up(self):
        """Be ready for the first run before it comes.

        An interrupt that comes meanwhile is for a run that came meanwhile, and waits for it.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        self.before()
        rehearse(self.shell)
        self.wire.sync()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))

    def before(self):
        importlib.invalidate_caches()                           # a package may have been installed
        for name in FD:
            if not hasattr(sys, name):
                setattr(sys, name, Stream(self.wire, name))     # IPython cannot run without

    def _cell(self, code):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, USER_SIGNALS)
        result = self.shell.run_cell(code, store_history=True)
        self.error = result.error_in_exec if result.error_before_exec is None else result.error_before_exec

    def tell(self, error):
        """The error line of what IPython could not show, or was interrupted in showing."""
        if isinstance(error, (Quit, UsageError, bdb.BdbQuit)):
            return
        try:
            trace = "".join(traceback.format_exception_only(type(error), error))
        except BaseException:
            trace = type(error).__name__
        self.shell.fail(type(error).__name__, text_of(error), trace)


def rehearse(shell):
    """Go the way of a run, and show nothing: what is copied after a fork at its first time is then done."""
    parse(b'{"op": "env"}')
    shell.run_cell("print('', end='')")
    stamped_line("stdout", "")


def below_cell(frame):
    while frame and frame.f_back:
        frame = frame.f_back
        if frame.f_code is Kernel._cell.__code__:
            return True
    return False


def in_event_loop(frame):
    ours = (ZMQInteractiveShell.loop_runner_with_interrupt, awaited, interruptible)
    return (frame.f_globals.get("__name__", "").partition(".")[0] in ("asyncio", "selectors")
            or any(frame.f_code is function.__code__ for function in ours))


def set_env(env):
    """Set variables (None: remove) and return what undoes it."""
    saved = {}
    for name, value in (env or {}).items():
        old = environ.get(name)
        try:
            if value is not None:
                environ[name] = text_of(value)
            else:
                environ.pop(name, None)
            saved[name] = old
        except (ValueError, OSError):
            pass                                                # no system can have such a variable
    return saved


environ = os.environ                    # the user may replace os.environ


# --- pictures ---

class ImageHook(importlib.abc.MetaPathFinder):
    """Has every PIL image that is saved to a named file shown as well, as E2B's template does.

    It waits for the import of PIL.Image, so that nobody pays for it who does not use it.
    """

    def find_spec(self, name, path, target=None):
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.Image.save = shown_first(module.Image.save)

        spec.loader.exec_module = exec_module
        return spec


def shown_first(save):
    @functools.wraps(save)
    def save_and_show(image, fp, *args, **kw):
        if isinstance(fp, str):
            display(image)
        return save(image, fp, *args, **kw)
    return save_and_show


# --- libraries that are there before they are asked for ---

PRELOADED = ("numpy", "pandas", "matplotlib.pyplot", "matplotlib_inline.backend_inline")


class Preloaded(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that were imported before the fork, kept out of sight until somebody imports one.

    So sys.modules is what it would be without them, and what a user has installed or written
    himself comes first, as always. They depend on each other: either all are taken or none is.
    """

    def __init__(self, modules):
        self.modules = modules
        self.tops = {name.partition(".")[0] for name in modules}
        self.spec = None                # what the import replaces for a moment

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] not in self.tops:
            return None
        sys.meta_path.remove(self)
        if not self.fits():
            return None
        # The one that is imported is put there by the import itself, which would else load it again.
        sys.modules.update((other, module) for other, module in self.modules.items() if other != name)
        seed = getattr(self.modules.get("numpy.random"), "seed", None)
        if seed:
            seed()                                              # forks must not share their numbers
        if name not in self.modules:
            return importlib.util.find_spec(name)
        self.spec = self.modules[name].__spec__
        return importlib.util.spec_from_loader(name, self)

    def fits(self):
        """Whether the system's own is what an import would find, configured as it was for us."""
        own = [p for p in sys.path if not p.startswith(sys.prefix + "/")]
        finder = importlib.machinery.PathFinder
        return not (any(finder.find_spec(top, own) for top in self.tops)
                    or os.path.exists("matplotlibrc")
                    or os.path.exists(os.path.expanduser("~/.config/matplotlib/matplotlibrc")))

    def create_module(self, spec):
        return self.modules[spec.name]

    def exec_module(self, module):
        module.__spec__ = self.spec


def preload(libraries):
    """Import the libraries, have them do once what takes long the first time, and hide them."""
    before = set(sys.modules)
    for name in libraries:
        try:
            importlib.import_module(name)
        except ImportError:
            continue                                            # then nobody has it
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot:
        pyplot.plot([1, 2])
        pyplot.savefig(io.BytesIO())
        pyplot.close("all")
        forget_fonts(sys.modules.get("matplotlib.font_manager"))
    new = {name: module for name, module in sys.modules.items() if name not in before}
    tops = {name.partition(".")[0] for name, module in new.items()
            if "-packages/" in (getattr(module, "__file__", None) or "")}
    hidden = {name: module for name, module in new.items()
              if name.partition(".")[0] in tops - before}
    for name in hidden:
        del sys.modules[name]
    if hidden:
        sys.meta_path.insert(0, Preloaded(hidden))


def forget_fonts(manager):
    """matplotlib has every fork forget its open fonts, which copies what they are in: here that is done once for all."""
    forget = getattr(getattr(manager, "_get_font", None), "cache_clear", None)
    if forget:
        forget()


# --- start and end ---

DEFAULTS = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "TERM": "xterm-color", "CLICOLOR": "1",
            "PAGER": "cat", "GIT_PAGER": "cat"}


def prepare(libraries=()):
    """Make the shell and load the libraries. Nothing here may start a thread or keep a file open."""
    module = types.ModuleType("__main__", "Automatically created module for IPython interactive environment")
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    interactiveshell.PickleShareDB = lambda path: MemoryDB()
    ZMQInteractiveShell.wire = Wire()
    shell = ZMQInteractiveShell.instance(config=config, profile_dir=ProfileDir(), user_module=module,
                                         user_ns=vars(module))
    shell.loop_runner = shell.loop_runner_with_interrupt
    shell.set_hook("show_in_pager", page, 99)
    formatter = DataFormatter(parent=shell.display_formatter)
    formatter.for_type_by_name("pandas.core.frame", "DataFrame", frame_data)
    shell.display_formatter.formatters[formatter.format_type] = formatter
    formatter = ChartFormatter(parent=shell.display_formatter)
    shell.display_formatter.formatters[formatter.format_type] = formatter
    for kind in (list, dict):
        shell.display_formatter.formatters["application/json"].for_type(kind, json_data)
    sys.meta_path.insert(0, ImageHook())
    builtins.input, getpass.getpass = no_input, no_getpass
    ours = os.path.dirname(os.path.realpath(run_shell.__code__.co_filename))
    sys.path[:] = [p for p in sys.path if os.path.realpath(p) != ours]
    for original in (sys.__stdout__, sys.__stderr__):
        if original is not None:
            original.reconfigure(line_buffering=True)
    importlib.invalidate_caches()                               # its first call imports
    preload(libraries)
    shell.run_cell("None", silent=True)                         # it imports, too
    sys.path_importer_cache.clear()     # each run has all of them forget: that of a fork would copy them first
    gc.collect()
    gc.freeze()


def settle(shell):
    """What depends on the context's environment and directory."""
    for name, value in DEFAULTS.items():
        environ.setdefault(name, value)
    user = site.getusersitepackages()
    path = [p for p in sys.path if p not in ("", user)]
    system = [i for i, p in enumerate(path) if p.endswith("-packages")]
    path.insert(system[0] if system else len(path), user)
    sys.path[:] = ["", *path]
    sys.argv[:] = [""]
    shell.home_dir, shell.starting_dir = os.path.expanduser("~"), os.getcwd()
    shell.history_manager.dir_hist[:] = [shell.starting_dir]


def adopt(fd):
    """Move the control socket out of the way of the user's files and of programs they start."""
    for lowest in (1000, 200, 10):
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:                                         # above the limit on open files
            continue
        os.close(fd)
        return moved
    os.set_inheritable(fd, False)
    return fd


def readable(fd, timeout):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout))


def parse(line):
    try:
        request = json.loads(line)
        op, code, env = request["op"], request["code"] if request["op"] == "run" else "", request.get("env")
        if op not in ("run", "env") or not isinstance(code, str) or not isinstance(env, (dict, type(None))):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        os._exit(BAD_ENGINE)
    return op, code, env


def serve(fd):
    """Run cells in the prepared shell until the engine hangs up. Does not return."""
    shell = ZMQInteractiveShell.instance()
    settle(shell)
    fd = adopt(fd)
    shell.wire.open(fd)
    for name in FD:
        setattr(sys, name, Stream(shell.wire, name))
    kernel = Kernel(shell, fd)
    signal.signal(signal.SIGINT, kernel.on_sigint)
    shell.wire.put("ready", b'{"type": "ready"}\n')
    if not readable(fd, PATIENCE):
        kernel.warm_up()
    kernel.serve()
    leave()


def leave():
    """Give the user's exit functions two seconds; their threads get none."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, USER_SIGNALS)
    signal.alarm(2)
    atexit._run_exitfuncs()
    os._exit(0)


LIBRARY = "/proc/self/fd/4"             # src/zygote, given to the zygote only


def zygote():
    """Fork into one sandbox after the other. Returns in the forks, as a fresh Python would begin there."""
    library = ctypes.PyDLL(LIBRARY)
    library.zygote_enter.restype = ctypes.c_void_p
    if library.zygote_open() < 0:
        os._exit(BAD_ENGINE)
    while library.zygote_next() == 0:
        ctypes.pythonapi.PyOS_BeforeFork()
        pid = library.zygote_fork()
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            size = ctypes.c_size_t()
            waits = library.zygote_join()
            if waits > 0:                                       # its sandbox is still being built
                rehearse(ZMQInteractiveShell.instance())
            strings = library.zygote_enter(ctypes.byref(size)) if waits >= 0 else None
            if not strings:
                os._exit(BAD_ENGINE)
            variables = ctypes.string_at(strings, size.value)
            _ctypes.dlclose(library._handle)                    # it has done its work
            begin(variables)
            return
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        library.zygote_forked(pid)
    os._exit(0)


def begin(variables):
    """What an interpreter does at its start with its environment."""
    environ.clear()
    for variable in variables.split(b"\0")[:-1]:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    time.tzset()
    site.USER_BASE = site.USER_SITE = None
    user = site.getusersitepackages()
    if os.path.isdir(user):
        site.addsitedir(user)
        site.execusercustomize()


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.readlink(LIBRARY).startswith("/memfd:"):              # else it is this script
        environ.update(MPLBACKEND=DEFAULTS["MPLBACKEND"], OPENBLAS_NUM_THREADS="1")
        prepare(PRELOADED)
        zygote()
    else:
        prepare()
    serve(3)


if __name__ == "__main__":
    main()
