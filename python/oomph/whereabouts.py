"""Has the interpreter write where its main thread is when the launcher asks with a signal: a program that waits is asked so.

The signal's handler is `faulthandler`'s, which is C and works while the main thread is blocked in a system call or in a library;
the interrupted call is resumed. Nothing else of the process takes notice.
"""

from __future__ import annotations

import faulthandler
import os

# The overlay replaces the public name.
from io import open as _open

from oomph import _protocol as protocol
from oomph import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

SIGNAL = 16
"""A signal that Linux defines and never sends (SIGSTKFLT); `oomph_launch` sends it."""

_HIGH = 700
"""A number of a descriptor that a program which closes those from 3 on, as daemons do, is not given again soon."""

_file: IO[bytes] | None = None


def install() -> None:
    """Answer from now on; in a child of the fork server into its own run folder."""
    _answer()
    hook.in_new_run(_answer)


def _answer():
    global _file
    folder = hook.run_folder()
    if folder is None or not hasattr(faulthandler, "register"):
        return
    with _open(os.path.join(folder, protocol.PATH_WHERE), "ab", buffering=0) as opened:
        try:
            import fcntl

            number = fcntl.fcntl(opened.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
        except (ImportError, OSError):
            # So many descriptors are not allowed here.
            number = os.dup(opened.fileno())
    earlier, _file = _file, _open(number, "ab", buffering=0)
    faulthandler.register(SIGNAL, file=_file, all_threads=False, chain=False)
    if earlier is not None:
        earlier.close()
