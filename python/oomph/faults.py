"""Notes what dies in oomph's own code, which voids the answer of the run: what came of it may be an answer about another program.

A fault of the hook is swallowed where the program can go on without that part of it (`hook.guarded`). Some parts the answer
hangs on (`hook.needed`), and some faults reach the program: a worker's thread dies of one, and the program waits without end. Those
are written at once, and the launcher ends the run.
"""

from __future__ import annotations

import dis
import linecache
import os
import re
import sys

# The overlay replaces the public name; the mark is written with the original.
from io import open as _open

from oomph import _protocol as protocol
from oomph import sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from oomph._protocol import HookFault
    from oomph.record import Record

    Place = tuple[str, int, str]

_MOST = 8
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep

_WITHIN = (
    "batches.py", "history.py", "loops" + os.sep, "meter.py", "moments.py", "owners" + os.sep, "phases.py", "program" + os.sep,
    "undrawn.py", "values" + os.sep, "watcher.py", "work.py",
)
"""What of the hook runs within the program's own calls of its framework. The rest replaces functions of Python's and of
libraries', and raises what those raise."""

_OF_THE_MACHINE = (
    OSError, ImportError, MemoryError, SyntaxError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration,
)
"""What no code of oomph's is to blame for alone: a full disk, a library that is not there, an end that was asked for."""

_PASSES_ON = frozenset(dis.opmap[name] for name in ("CALL_FUNCTION_EX", "RAISE_VARARGS", "RERAISE") if name in dis.opmap)
"""Instructions with which a wrapper calls what it is around, or raises on purpose."""

_AROUND = re.compile(r"\b(?:original|plain\w*|previous|native|past|_stats|next|iter)\(")
"""What a wrapper of oomph's calls what it is around, where it gives it arguments of its own.

These are names in oomph's own source, and no program's. An instruction alone does not say whether the function that it calls is
the one that was replaced: before Python 3.11 it has no place within its line.
"""


def place_of(error: BaseException, deep: bool = True) -> Place | None:
    """File, line and function of oomph's in which an exception arose; None where it is the program's or a library's own.

    The innermost frame that is not a library's decides, or without `deep` the innermost of all: a wrapper is not to blame
    for what that raises which it is around.
    """
    if isinstance(error, _OF_THE_MACHINE) or hasattr(error, "_oomph_acquitted") or sites.is_oom(error):
        return None
    entry: TracebackType | None = error.__traceback__
    found = None
    while entry is not None:
        name = entry.tb_frame.f_code.co_filename
        if not deep or name.startswith(_OWN) or sites.is_user_file(name):
            found = entry
        entry = entry.tb_next
    if found is None:
        return None
    code = found.tb_frame.f_code
    if not code.co_filename.startswith(_OWN):
        return None
    if found.tb_lasti >= 0 and code.co_code[found.tb_lasti] in _PASSES_ON:
        return None
    if _AROUND.search(linecache.getline(code.co_filename, found.tb_lineno)):
        return None
    return code.co_filename[len(_OWN):], found.tb_lineno, code.co_name


def acquitted(error: BaseException) -> BaseException:
    """An exception that arose in oomph's code and is the program's own: what oomph stands before raises it as well."""
    error._oomph_acquitted = True  # type: ignore[attr-defined]
    return error


def swallowed(error: BaseException) -> None:
    """A part of the hook has failed without which the program goes on, and the answer stands."""
    _note(error, place_of(error), False)


def voids(error: BaseException) -> None:
    """A part of the hook has failed that the answer hangs on."""
    _note(error, place_of(error), True)


def reached(error: BaseException) -> None:
    """An exception has reached the program, or ended a thread or a process of it: if it is oomph's, the run ends."""
    place = place_of(error, deep=False)
    if place is not None and place[0].startswith(_WITHIN):
        _note(error, place, True, True)


def died(error: BaseException) -> None:
    """A part of oomph's has failed within a call of the program's: the run ends, whatever the program makes of it."""
    _note(error, place_of(error), True, True)


def _note(error, place, voids, ends=False):
    # The record may be what fails, and nothing may be raised here.
    try:
        if place is None:
            return
        from oomph import record

        current = record.current()
        note_in(current, error, place, voids)
        if ends:
            end_run()
    except Exception:
        # What is left is the program's own message.
        pass


def note_in(record: Record, error: BaseException, place: Place, voids: bool) -> None:
    """Put a fault into the record, once for each place."""
    file, line, function = place
    file = "oomph/" + file.replace(os.sep, "/")
    fault: HookFault = {
        "kind": type(error).__name__, "message": sites.message_of(error)[:400],
        "site": {"file": file, "line": line, "function": function}, "voids": voids,
    }
    known = [one for one in record.faults if one["site"] == fault["site"]]
    if known:
        known[0]["voids"] = known[0]["voids"] or voids
    elif len(record.faults) < _MOST:
        record.faults.append(fault)
    if voids:
        record.write()


def end_run() -> None:
    """Have the launcher end the run: the program may wait without end for what has died."""
    folder = os.environ.get(protocol.PATH_RUN_VARIABLE)
    # A guarded run is the user's own, and goes on.
    hook = sys.modules.get("oomph.hook")
    if not folder or hook is None or hook.config["guard"] is not None:
        return
    with _open(os.path.join(folder, protocol.PATH_FAULT), "wb"):
        pass
