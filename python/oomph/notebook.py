"""Finds which cell of a notebook a line is in, and stops a run there.

When a run is stopped, the kernel stays, and what is left of the cells is passed over.

A kernel that went away would be an error to whatever runs the notebook (`jupyter nbconvert --execute`, papermill), and
the run would count as failed.
"""

from __future__ import annotations

import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_CELL = re.compile(r"<ipython-input-(\d+)-|/ipykernel_\d+/\d+\.py$")


def cell_of(filename: str) -> int | None:
    """The number of the cell that code of this file was typed into, as in `In [5]`; None for a file that is not a cell.

    IPython itself knows it; an old IPython has it in the name of the file, and ipykernel a temporary file for each cell.
    """
    found = _CELL.search(filename)
    if found is None:
        return None
    shell: Any = sys.modules.get("IPython.core.interactiveshell")
    try:
        compiler = shell.InteractiveShell.instance().compile if shell.InteractiveShell.initialized() else None
        number = getattr(compiler, "_filename_map", {}).get(filename)
    except Exception:
        # IPython's inner names change with its versions.
        number = None
    if number is None and found.group(1):
        number = found.group(1)
    return int(number) if number else None


def line_of(filename: str, line: int) -> str | None:
    """The text of a line of a cell, which is in no file; None where it is not known."""
    import linecache

    return linecache.getline(filename, line).strip() or None


class PeakSeen(BaseException):
    """Unwinds the cell in which the peak was seen.  Not an `Exception`, so that no program takes it for a fault."""


_stopped = False


def running() -> bool:
    """Whether this process is a kernel that executes cells."""
    shell = sys.modules.get("IPython.core.interactiveshell")
    if shell is None or "ipykernel" not in sys.modules or not shell.InteractiveShell.initialized():
        return False
    return getattr(shell.InteractiveShell.instance(), "kernel", None) is not None


def leave() -> NoReturn:
    """End the present cell as a success, and all that follow before they begin."""
    global _stopped
    _stopped = True
    raise PeakSeen


def install(shell: Any) -> None:
    """Attach to IPython's `InteractiveShell`."""
    original = shell.run_code

    async def run_code(self, code_obj, result=None, **kwargs):
        if not _stopped:
            failed = await original(self, code_obj, result, **kwargs)
            if not _stopped:
                return failed
        if result is not None:
            result.error_in_exec = None
        return False

    shell.run_code = run_code
