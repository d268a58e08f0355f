"""Stopping in a notebook: the kernel stays, and what is left of the cells is passed over.

A kernel that went away would be an error to whatever runs the notebook (`jupyter nbconvert --execute`, papermill), and
the run would count as failed.
"""

import sys


class PeakSeen(BaseException):
    """Unwinds the cell in which the peak was seen.  Not an `Exception`, so that no program takes it for a fault."""


_stopped = False


def running():
    """Whether this process is a kernel that executes cells."""
    shell = sys.modules.get("IPython.core.interactiveshell")
    if shell is None or "ipykernel" not in sys.modules or not shell.InteractiveShell.initialized():
        return False
    return getattr(shell.InteractiveShell.instance(), "kernel", None) is not None


def leave():
    """End the present cell as a success, and all that follow before they begin."""
    global _stopped
    _stopped = True
    raise PeakSeen


def install(shell):
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
