"""Sets environment variables in a forked child, and finds those that came too late.

A library that was imported before the fork has read its variables before the program could set them. So the server
notes what is read while it imports, and a child that is to set one of those otherwise, or whose program does, ends and
leaves a file in its run folder: the launcher then starts a process.
"""

from __future__ import annotations

import os
import sys

# The overlay replaces the public name of the one, the watcher that of the other.
from io import open as _open

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

_exit = os._exit

_BEFORE_PYTHON = (
    "PYTORCH_", "TORCH", "CUDA", "NVIDIA_", "CUDNN_", "CUBLAS_", "NCCL_", "GLOO_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "BLIS_", "NUMEXPR_", "LD_", "MALLOC_", "GLIBC_", "PYTHON", "AT_", "C10_", "TRITON_", "OOMPH_",
)
"""Variables that compiled libraries read while they are loaded, where Python does not see it, begin with one of these."""

_OF_MODULES = {"tensorflow": ("TF_", "XLA_FLAGS"), "jax": ("JAX_", "XLA_FLAGS"), "keras": ("KERAS_",)}
"""The same of libraries that few programs import. Where the server has not, nothing has read them."""

_FILE = protocol.PATH_SET_TOO_LATE
"""In the run folder; `crates/oomph-launch/src/server` reads it."""

_Environ = type(os.environ)
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (os.__file__, __file__)
) + ("<frozen ",)


class Watch:
    """Notes what is read while the server imports, and what a child sets afterwards."""

    def __init__(self) -> None:
        self._read: set[Any] = set()
        self._before: dict[str, str] = {}
        self._final: dict[str, str] = {}
        self._before_python: tuple[str, ...] = _BEFORE_PYTHON
        self._original = _Environ.__getitem__
        self._literal: dict[str, str | None] = {}
        """Variables that the program's text sets between its imports, with their values before."""

    def begin(self) -> None:
        """Note every variable that is read from now on."""
        read, original = self._read, self._original

        def __getitem__(self, key):
            read.add(key)
            return original(self, key)

        _Environ.__getitem__ = __getitem__  # type: ignore[method-assign]

    def end(self) -> None:
        """The imports are done."""
        _Environ.__getitem__ = self._original  # type: ignore[method-assign]
        self._final = dict(os.environ)
        of_modules = (prefixes for module, prefixes in _OF_MODULES.items() if module in sys.modules)
        self._before_python = _BEFORE_PYTHON + sum(of_modules, ())

    def set_early(self, name: str, value: str, only_if_absent: bool) -> None:
        """Do what the program's text does to a variable between two imports."""
        try:
            before: str | None = self._original(os.environ, name)
        except KeyError:
            before = None
        if only_if_absent and before is not None:
            return
        self._literal.setdefault(name, before)
        os.environ[name] = value

    def too_late(self, name: str, value: str | None) -> bool:
        """Say whether a library may have read this variable already, and found something else."""
        read = name in self._read or name.startswith(self._before_python)
        return read and self._final.get(name) != value

    def become(self, changes: dict[str, str | None]) -> None:
        """In a child: undo what was set early, set what this run sets, and see what the program sets."""
        os.environ[protocol.PATH_RUN_VARIABLE] = str(changes.pop(protocol.PATH_RUN_VARIABLE))
        late = [name for name, value in changes.items() if self.too_late(name, value)]
        if late:
            refuse("run", late[0])
        for name, value in dict(self._literal, **changes).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        watch = self
        set_item, delete_item = _Environ.__setitem__, _Environ.__delitem__

        def __setitem__(self, key, value):
            set_item(self, key, value)
            watch._changed(key, value)

        def __delitem__(self, key):
            delete_item(self, key)
            watch._changed(key, None)

        _Environ.__setitem__, _Environ.__delitem__ = __setitem__, __delitem__  # type: ignore[method-assign]

    def _changed(self, name, value):
        if self.too_late(name, value) and _by_the_program():
            refuse("program", name)


def refuse(who: str, name: str, folder: str | None = None) -> NoReturn:
    """End this run, of which a process of its own would have made another; say who set what."""
    try:
        with _open(os.path.join(folder or os.environ[protocol.PATH_RUN_VARIABLE], _FILE), "w") as file:
            file.write("%s %s" % (who, name))
    finally:
        _exit(0)


def _by_the_program():
    """Say whether the program itself changes a variable: a library that does was imported before it could."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    name = frame.f_code.co_filename if frame is not None else ""
    return "site-packages" not in name and "dist-packages" not in name
