"""Runs a script as the interpreter does: its text compiled as `__main__`, its end as Python's own."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OWN = os.path.dirname(os.path.abspath(__file__))

compiled = compile
"""Makes code of a script's text: `compile(text, path, mode, dont_inherit=True)`; loops may be instrumented on the way."""


def read(path: str) -> bytes:
    """The text of a script; a script that cannot be read ends the process with the interpreter's words."""
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        sys.stderr.write("%s: can't open file %r: [Errno %s] %s\n" % (sys.executable, path, error.errno, error.strerror))
        raise SystemExit(2) from None


def become(path: str) -> dict[str, Any]:
    """Give `__main__` the names that the interpreter gives a script; returns them all."""
    from _frozen_importlib_external import SourceFileLoader

    main = sys.modules["__main__"]
    main.__file__ = path
    main.__cached__ = None  # type: ignore[attr-defined]
    main.__loader__ = SourceFileLoader("__main__", path)
    return main.__dict__


def execute(text: str | bytes, path: str, namespace: dict[str, Any]) -> None:
    """Execute a script's text in the names of `__main__`; raises the SystemExit with which it ends."""
    try:
        exec(compiled(text, path, "exec", dont_inherit=True), namespace)
    except SystemExit:
        raise
    except BaseException as error:
        # Whatever ends a script is shown as the interpreter shows it, Ctrl-C too.
        show(error)
        raise SystemExit(status(error)) from None


def show(error: BaseException) -> None:
    """Print what the interpreter would have printed: the traceback without the frames that led to the program."""
    trace = error.__traceback__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename.startswith(_OWN) or trace.tb_frame.f_code.co_filename == "<string>"
    ):
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    try:
        # As the interpreter announces it, to who listens.
        sys.audit("sys.excepthook", sys.excepthook, type(error), error, trace)
        sys.excepthook(type(error), error, trace)
    except SystemExit:
        raise
    except BaseException:
        # A hook that fails itself leaves the showing to Python's own, as in the interpreter.
        sys.__excepthook__(type(error), error, trace)


def status(error: BaseException) -> int:
    """The exit status after an exception that nothing caught; an interrupt ends the process by its signal."""
    if isinstance(error, KeyboardInterrupt):
        import signal

        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1
