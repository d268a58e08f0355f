"""Has Python leave the frames of a process that a signal ends, so that a fault of oomph's own is not called the program's."""

from __future__ import annotations

import os
from io import open as _open

from oomph import _protocol as protocol
from oomph import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_mkdir = os.makedirs
_file: Any = None
"""Where the frames go. It has to stay open until the process ends."""


def install() -> None:
    """From now on leave the frames in the run folder, unless the program has them written elsewhere."""
    hook.in_each_run(_begin)


def _begin():
    global _file
    import faulthandler

    folder = hook.run_folder()
    if folder is None or faulthandler.is_enabled() and _file is None:
        return
    path = os.path.join(folder, protocol.PATH_HOOK, "%d%s" % (os.getpid(), protocol.PATH_CRASH_END))
    _mkdir(os.path.dirname(path), exist_ok=True)
    file = _open(path, "w", encoding="utf-8", errors="surrogateescape")
    file.write(os.path.dirname(os.path.abspath(__file__)) + os.sep + "\n")
    file.flush()
    # Frames of the others may be changing under them.
    faulthandler.enable(file, all_threads=False)
    _file, before = file, _file
    if before is not None:
        before.close()
