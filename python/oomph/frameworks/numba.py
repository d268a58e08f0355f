"""Watches Numba's CUDA target: which line of the program allocates and copies, and the error that ended it.

Numba takes its memory from the driver, so the virtual GPU knows every byte. What it does not know is the line.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys

from oomph import hook, sites
from oomph.frameworks.watch import FrameworkWatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomph._protocol import HookConfig, HookOom
    from oomph._types import Library
    from oomph.record import Record

_TEXTS = ("cuda_error_out_of_memory",)
_COPIES = ("host_to_device", "device_to_host", "device_to_device")
_ALLOCATIONS = ("memalloc", "memallocmanaged")


def install(cuda: Library, record: Record, config: HookConfig) -> None:
    """Attach to a `numba.cuda` that has just been imported."""
    numba = sys.modules.get("numba")
    record.frameworks["numba"] = str(getattr(numba, "__version__", ""))
    watcher = NumbaWatcher(record, _TEXTS)
    watcher.attach()
    # What is registered later is called earlier: the record is written after it.
    atexit.register(_say_what_it_compiles_for, record)
    driver = sys.modules.get(cuda.__name__ + ".cudadrv.driver") or sys.modules.get("numba.cuda.cudadrv.driver")
    if driver is not None:
        name_lines(driver)
        watcher.hear_allocations(driver)


class NumbaWatcher(FrameworkWatcher):
    """Joins Numba to the record of this process."""

    def on_card(self, value: object) -> Iterator[tuple[int, int]]:
        parts = value if isinstance(value, (list, tuple)) else [value]
        for part in parts:
            if getattr(part, "__cuda_memory__", False) and getattr(part, "alloc_size", 0):
                yield id(part), int(part.alloc_size)

    def is_met_again(self, known: HookOom, error: BaseException) -> bool:
        """Each is another one: they do not say how much was requested, and have the same words."""
        return False

    def hear_allocations(self, driver: Library) -> None:
        """Learn of the errors that leave an allocation: inside of it, Numba frees what waits for that and asks again."""
        for name in _ALLOCATIONS:
            original = getattr(driver.Context, name, None)
            if original is not None:
                setattr(driver.Context, name, self._heard(original))

    def _heard(self, original):
        @functools.wraps(original)
        def allocate(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            except Exception as error:
                # Whatever it is goes on to the program.
                hook.guarded(self.raised, error)
                raise

        return allocate


def _say_what_it_compiles_for(record):
    nvrtc = sys.modules.get("numba.cuda.cudadrv.nvrtc")
    if nvrtc is not None and not record.architectures:
        record.architectures = hook.guarded(compiled_for, nvrtc) or []


def compiled_for(nvrtc: Library) -> list[str]:
    """The oldest cards that Numba's compiler knows: CUDA 12 begins with Maxwell, CUDA 13 with Turing. It writes text, which
    the driver compiles for later ones."""
    return ["compute_%d%d" % min(nvrtc.get_supported_ccs())]


def name_lines(driver: Library, named: Callable[..., object] | None = None) -> None:
    """Have each allocation and copy name the user's line that led to it; `named` is what it is said to."""
    named = named or _line_of_the_card()
    if named is None:
        return
    for name in _ALLOCATIONS:
        _around(driver.Context, name, named)
    for name in _COPIES:
        _around(driver, name, named)


def _around(holder, name, named):
    original = getattr(holder, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def called(*args, **kwargs):
        site = hook.guarded(sites.site_of_frame, sys._getframe(1))
        if site is None:
            return original(*args, **kwargs)
        named(os.fsencode(site["file"]), site["line"], site["function"].encode("utf-8", "replace"))
        try:
            return original(*args, **kwargs)
        finally:
            named(None, 0, None)

    setattr(holder, name, called)


def _line_of_the_card():
    """The virtual GPU's function that takes the line; None on a real card."""
    try:
        function = ctypes.CDLL(None).oomph_python_line
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p)
    function.restype = None
    return function
