"""Follows how a process ends: exceptions that end it, exits it asks for, and the stop when its peak has been seen."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time

from oomph import _protocol as protocol
from oomph import faults, hook, notebook, ranks, sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._protocol import Stopped
    from oomph.frameworks.watch import FrameworkWatcher
    from oomph.record import Record
    from oomph.watcher import Watcher

_exit = os._exit

_CARRIERS = (
    ("torch._utils", "ExceptionWrapper"), ("multiprocessing.pool", "ExceptionWithTraceback"),
    ("concurrent.futures.process", "_ExceptionWithTraceback"),
)
"""What carries an exception from a worker to its parent, where its frames are gone. It is made where they still are."""


def install(watcher: Watcher | FrameworkWatcher) -> None:
    """Put guarded wrappers around every door through which a Python process leaves."""
    import atexit

    atexit.register(safely, watcher.record.write)
    _wrap_excepthook(watcher)
    _wrap_thread_excepthook(watcher)
    _wrap_exits(watcher)
    hook.on_import("IPython.core.interactiveshell", lambda module: _wrap_ipython(module, watcher))
    hook.on_import("multiprocessing.process", lambda module: _wrap_bootstrap(module, watcher))
    hook.on_import("multiprocessing.queues", _wrap_feeders)
    for name, carrier in _CARRIERS:
        hook.on_import(name, functools.partial(_wrap_carrier, carrier))


def safely(function: Callable[..., object], *args: object) -> None:
    """Call what must neither fail nor be interrupted before the eyes of the user."""
    try:
        function(*args)
    except (Exception, KeyboardInterrupt):
        # A second Ctrl-C while the record is written is the program's no more than the record is.
        pass


def _wrap_excepthook(watcher):
    previous = sys.excepthook
    noted = set()

    def ends(value):
        # A hook may be called by another's, so that both lead here. Noted again, when the frames are gone, an
        # out-of-memory error would lose its module and its line in the library.
        if id(value) not in noted:
            noted.add(id(value))
            safely(watcher.record.note_failure, value)
            safely(faults.reached, value)
            safely(watcher.failed, value)

    def excepthook(kind, value, tb):
        ends(value)
        try:
            # The program's traceback is shown as it would be without us.
            tb = sites.without_own_frames(tb)
            value.__traceback__ = tb
        except Exception:
            # The traceback is shown in any case; what failed is only the cut.
            pass
        previous(kind, value, tb)

    def heard(event, arguments):
        # Some, such as typer, put a hook in place of this one, to show errors in their own way.
        if event == "sys.excepthook" and arguments[0] is not excepthook:
            ends(arguments[2])

    heard.__cantrace__ = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook
    sys.addaudithook(heard)


def _wrap_thread_excepthook(watcher):
    previous = getattr(threading, "excepthook", None)
    if previous is None:
        return

    def excepthook(args, /):
        if args.exc_value is not None:
            safely(faults.reached, args.exc_value)
        safely(watcher.failed, args.exc_value)
        # Nobody gets an error of a thread, so that a program can end as if there had been memory.
        safely(watcher.record.mark_unread, args.exc_value)
        previous(args)

    threading.excepthook = excepthook


def _wrap_exits(watcher):
    """A program that prints its traceback itself leaves through sys.exit or os._exit with a status that is not 0."""
    original_exit = sys.exit
    original_now = os._exit

    def exit(status=None, /):
        safely(watcher.leaving, status)
        original_exit(status)

    def _exit(status):
        safely(watcher.leaving, status)
        safely(watcher.finish)
        original_now(status)

    exit.__doc__, _exit.__doc__ = original_exit.__doc__, original_now.__doc__
    exit.__module__, _exit.__module__ = "sys", "os"
    sys.exit = exit
    os._exit = _exit


def _wrap_ipython(module, watcher):
    shell = module.InteractiveShell
    original = shell.showtraceback

    def showtraceback(self, *args, **kwargs):
        error = sys.exc_info()[1]
        if isinstance(error, notebook.PeakSeen):
            return None
        safely(watcher.failed, error)
        return original(self, *args, **kwargs)

    shell.showtraceback = showtraceback
    notebook.install(shell)


def _wrap_bootstrap(module, watcher):
    """A process started by multiprocessing prints its own traceback and returns its status from `_bootstrap`."""
    process = module.BaseProcess
    original = process._bootstrap

    def _bootstrap(self, *args, **kwargs):
        status = original(self, *args, **kwargs)
        safely(watcher.leaving, status)
        safely(watcher.finish)
        return status

    process._bootstrap = _bootstrap


def _wrap_feeders(module):
    """The thread that feeds a queue prints what it dies of and drops what it was to send, for which others may wait."""
    queue = module.Queue
    original = queue._on_queue_feeder_error

    def _on_queue_feeder_error(error, obj):
        safely(faults.reached, error)
        return original(error, obj)

    queue._on_queue_feeder_error = staticmethod(_on_queue_feeder_error)


def _wrap_carrier(name, module):
    carrier: Any = getattr(module, name, None)
    original = getattr(carrier, "__init__", None)
    if original is None:
        return

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        error = sys.exc_info()[1]
        if error is not None:
            safely(faults.reached, error)
        original(self, *args, **kwargs)

    carrier.__init__ = __init__


class Agreement:
    """Lets the ranks of one job on this machine stop together.

    Ranks see slightly different peaks. One that left while others still want to go on could take a store or a
    collective away from them, so a rank that has seen its peak says so in the run folder and goes on until all have.
    """

    UNSEEN_RANK_STEPS = 50

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, protocol.PATH_HOOK, protocol.PATH_READY)
        self.world = _local_world()
        self.since: int | None = None

    def all_ready(self, step: int) -> bool:
        """Say that this rank is ready at `step`; tell whether every rank is, or waiting has been long enough."""
        if self.world <= 1:
            return True
        if self.since is None:
            self.since = step
            os.makedirs(self.folder, exist_ok=True)
            with open(self._mine(), "w"):
                pass
        return len(os.listdir(self.folder)) >= self.world or step - self.since >= self.UNSEEN_RANK_STEPS

    def withdraw(self) -> None:
        """The peak has moved after all."""
        try:
            os.unlink(self._mine())
        except OSError:
            pass

    def _mine(self):
        return os.path.join(self.folder, str(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or os.getpid()))


def _local_world():
    running = ranks.running()
    if running:
        return len(running)
    for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 1


def stop(record: Record, reason: Stopped) -> None:
    """End this process with status 0 because its peak has been seen, or a notebook's cells. Does not return."""
    stay = False
    try:
        stay = notebook.running()
        record.stopped = reason
        record.write()
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            safely(getattr(stream, "flush", lambda: None))
        if not stay:
            _end_children()
    finally:
        if not stay:
            _exit(0)
    notebook.leave()


def _children():
    found: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task) as file:
                found.update(int(pid) for pid in file.read().split())
    except (OSError, ValueError):
        pass
    return found


def _end_children(patience=1.5):
    """Ask this process's children to end, wait a little, and end those that do not.

    Data loading workers, compiler pools and trackers' helpers would otherwise outlive a parent that leaves without
    running its clean-up.
    """
    children = _children()
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in children:
            try:
                os.kill(pid, number)
            except OSError:
                pass
        until = time.monotonic() + patience
        while children and time.monotonic() < until:
            for pid in list(children):
                try:
                    if os.waitpid(pid, os.WNOHANG)[0] == pid:
                        children.discard(pid)
                except OSError:
                    # Somebody else has waited for it.
                    children.discard(pid)
            if children:
                time.sleep(0.01)
        if not children:
            return
