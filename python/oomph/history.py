"""Turns on PyTorch's own recording of its allocator for the run, and writes it out as a snapshot.

A program that makes its own recording keeps it: oomph's steps aside.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import threading
from io import open as _open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

    from oomph._types import Torch, Warns

_replace = os.replace

STEPPED_ASIDE = (
    "The program records PyTorch's memory history itself, so oomph keeps no history of its own and cannot name the bytes."
)


class History:
    """The allocator's history of this process."""

    def __init__(self, torch: Torch, record: Warns, entries: int) -> None:
        self.torch = torch
        self.record = record
        self.entries = max(1, int(entries))
        self.on = False
        self.aside = False
        self._ours = False

    def attach(self) -> None:
        """Notice when the program itself starts or stops a recording."""
        native = self.torch._C
        for name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_recordMemoryHistory"):
            original = getattr(native, name, None)
            if original is not None:
                setattr(native, name, self._stepping_aside(original, name))

    def _stepping_aside(self, original, name):
        history = self

        def record_memory_history(*args, **kwargs):
            if not history._ours:
                history.step_aside()
            return original(*args, **kwargs)

        record_memory_history.__name__ = record_memory_history.__qualname__ = name
        return record_memory_history

    def step_aside(self) -> None:
        """Give up the recording, with all that it holds, because the program wants its own."""
        if self.on:
            self._record(False)
            self.on = False
        if not self.aside:
            self.aside = True
            self.record.warn(STEPPED_ASIDE)

    def start(self) -> None:
        """Start the recording, on every device; CUDA is in use by now."""
        if self.aside or self.on:
            return
        enabled = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is not None and enabled():
            self.step_aside()
            return
        self.on = bool(self._record(True))

    def stop(self) -> None:
        """Stop the recording."""
        self.on = False
        self._record(False)

    def _record(self, on):
        """Call `_record_memory_history` as this version of torch has it; tell whether it did what was asked."""
        record = self.torch.cuda.memory._record_memory_history
        self._ours = True
        try:
            if not hasattr(self.torch._C, "_cuda_record_memory_history_legacy"):
                # 2.0: a switch and flags.
                record(on, record_context=on, trace_alloc_max_entries=self.entries, trace_alloc_record_context=on)
            elif on:
                record("all", context="alloc", stacks="python", max_entries=self.entries, **self._in_all_threads())
            else:
                record(None)
            return True
        except Exception:
            # The function is private to torch and takes other arguments in other versions.
            return False
        finally:
            self._ours = False

    def _in_all_threads(self):
        """Arguments by which any thread may end the recording.

        What it adds to one thread alone, for the names of profiler ranges, can only be taken back there: at the end of the
        program, in the main thread, torch would warn.
        """
        if threading.current_thread() is threading.main_thread():
            return {}
        names = inspect.signature(self.torch.cuda.memory._record_memory_history).parameters
        return {"global_record_annotations": True} if "global_record_annotations" in names else {}

    def snapshot(self) -> dict[str, Any]:
        """What torch knows of its allocator now, as nested dicts and lists."""
        with _no_collection():
            return self._snapshot()

    def save(self, snapshot: dict[str, Any], file: IO[bytes]) -> None:
        """Pickle a snapshot as torch's own viewer reads it."""
        import pickle

        with _no_collection():
            pickle.dump(snapshot, file, 4)

    def _snapshot(self):
        # To put names to frames, torch 2.8 and later ask torch._inductor, which is imported for the question: several
        # seconds, for frames that only a program that uses it already can have.
        lazy = getattr(self.torch, "_lazy_modules", None)
        hidden = lazy if isinstance(lazy, set) and "_inductor" in lazy and "_inductor" not in vars(self.torch) else None
        if hidden is not None:
            hidden.discard("_inductor")
        try:
            return self.torch.cuda.memory._snapshot()
        finally:
            if hidden is not None:
                hidden.add("_inductor")


@contextlib.contextmanager
def _no_collection():
    """Keep the collector from going again and again through hundreds of thousands of dicts that are no garbage."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def write_whole(path: str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file as a whole or not at all, whoever else writes it at the same time."""
    part = "%s.%d.part" % (path, threading.get_ident())
    try:
        with _open(part, "wb") as file:
            write(file)
        _replace(part, path)
    except BaseException:
        # Whatever ends the writing, Ctrl-C too, leaves no part of a file; it is raised on.
        try:
            os.unlink(part)
        except OSError:
            pass
        raise
