"""Turns a forked child into the program: its streams, its arguments, its `__main__`, its end."""

from __future__ import annotations

import atexit
import builtins
import importlib
import importlib.machinery
import io
import os
import sys
import threading
import types

from oomph import mainscript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_exit = os._exit


def connect(output: str, tail: str | None) -> None:
    """Point the standard streams where this run's output goes; the end of standard error may be wanted in a file."""
    if output == "stderr":
        os.dup2(2, 1)
    elif output == "discard":
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.close(nothing)
    if tail is not None:
        file = os.open(tail, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(file, 2)
        os.close(file)
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        if isinstance(stream, io.TextIOWrapper) and not stream.write_through:
            stream.reconfigure(line_buffering=number == 2 or os.isatty(number))


def run(request: dict[str, Any]) -> None:
    """Run the program and end this process as a Python of its own would have ended. Does not return."""
    try:
        _run(request)
    except SystemExit as asked:
        _leave(asked.code)


def _leave(code):
    """End with what a program gave to `sys.exit`.

    Everything is done that a program sees of its end. The interpreter is not taken apart: a forked child would copy
    nearly all of the server's memory, page by page, only to give it back, which takes longer than many a run.
    """
    status = code if isinstance(code, int) else int(code is not None)
    try:
        if status and not isinstance(code, int):
            print(code, file=sys.stderr)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                # As Python says of what could not be written at the very end.
                status = 120
        _exit(status & 0xFF)


def _run(request):
    """Run the program; raises the SystemExit with which it ends."""
    script, module = request.get("script"), request.get("module")
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    sys.argv[:] = request["argv"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = request["command"]
    importlib.invalidate_caches()
    try:
        if module is not None:
            import runpy

            runpy._run_module_as_main(module, True)  # type: ignore[attr-defined]
        else:
            _run_script(script, main)
    except SystemExit:
        raise
    except BaseException as error:
        # Whatever ends the program is shown as the interpreter shows it, Ctrl-C too.
        mainscript.show(error)
        raise SystemExit(mainscript.status(error)) from None
    raise SystemExit(0)


def _run_script(script, main):
    path = os.path.join(os.getcwd(), script) if sys.version_info >= (3, 9) else script
    main.__file__ = path
    main.__cached__ = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__spec__ = None
    mainscript.execute(mainscript.read(path), path, main.__dict__)
