"""Records which files below the program's folder the program reads: what its answer depends on.

`oomph sweep` keeps answers, and one is known only as long as these files have not changed. Python's own opens are seen
(an audit event), and modules are taken from `sys.modules`. What a compiled library opens directly is not seen.
"""

from __future__ import annotations

import os
import sys

from oomph import hook

_MOST = 2000
"""More files are data, and their digests would take longer than the run."""

_NOT_OWN = ("site-packages", "dist-packages", "__pycache__", ".git")
"""Folders whose files are not the program's own."""

_LIBRARIES = tuple(
    os.path.join(os.path.abspath(folder), "") for folder in
    (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), sys.prefix, sys.base_prefix)
)
"""The hook's own files, and an environment that lies in the program's folder."""

_seen: dict[str, bool] = {}
_root: str | None = None


def install(root: str) -> None:
    """Note what is read below `root` from now on; for a child of the fork server begin again."""
    global _root
    first = _root is None
    _root = os.path.realpath(root).rstrip(os.sep) + os.sep
    _seen.clear()
    if first:
        _heard.__cantrace__ = True  # type: ignore[attr-defined]
        sys.addaudithook(_heard)


def _heard(event, arguments):
    if event != "open":
        return
    try:
        path, _, flags = arguments
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and not (flags or 0) & os.O_ACCMODE:
            _note(path)
    except Exception:
        # An audit hook that raises would end the program's `open`.
        pass


def _note(path):
    path = os.path.abspath(path)
    if path.startswith(_root) and path not in _seen and len(_seen) < _MOST:
        if not path.startswith(_LIBRARIES) and not any(name in _NOT_OWN for name in path.split(os.sep)):
            _seen[path] = True


def as_list() -> list[str] | None:
    """The files, sorted; None where nobody asked."""
    if _root is None or not hook.config["reads"]:
        return None
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            _note(path)
    return sorted(path for path in list(_seen) if os.path.isfile(path))
