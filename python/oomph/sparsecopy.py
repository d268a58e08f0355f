"""Copies files with holes: `shutil` copies every zero of a checkpoint whose payload was left out.

A trainer that pushes its checkpoints copies them first. Twelve gigabytes of zeros take longer than the training steps
before them, and would take that much of the disk.
"""

from __future__ import annotations

import os
import shutil
import stat

from oomph.sparsezip import HOLE_FROM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

#: What is copied at a time.
_PIECE = 1 << 20


def install() -> None:
    """Let `shutil` keep holes where it copies by descriptors, which it does on Linux."""
    original = getattr(shutil, "_fastcopy_sendfile", None)
    if original is None or getattr(original, "_oomph", False):
        return

    def _fastcopy_sendfile(fsrc, fdst):
        if not copy_holes(fsrc, fdst):
            original(fsrc, fdst)

    _fastcopy_sendfile._oomph = True  # type: ignore[attr-defined]
    shutil._fastcopy_sendfile = _fastcopy_sendfile  # type: ignore[attr-defined]


def copy_holes(source: IO[bytes], target: IO[bytes]) -> bool:
    """Copy a file that is mostly holes, and say whether that was done: nothing is written otherwise."""
    try:
        taken, given = source.fileno(), target.fileno()
        info, there = os.fstat(taken), os.fstat(given)
    except (OSError, ValueError, AttributeError):
        return False
    ordinary = stat.S_ISREG(info.st_mode) and stat.S_ISREG(there.st_mode) and there.st_size == 0
    if not ordinary or info.st_size < HOLE_FROM or info.st_blocks * 512 * 2 > info.st_size:
        return False
    at = 0
    while at < info.st_size:
        try:
            at = os.lseek(taken, at, os.SEEK_DATA)
            end = os.lseek(taken, at, os.SEEK_HOLE)
        except OSError:
            # There is no data any more, or the file system knows no holes.
            if at == 0 and info.st_blocks:
                return False
            break
        while at < end:
            piece = os.pread(taken, min(_PIECE, end - at), at)
            if not piece:
                break
            at += os.pwrite(given, piece, at)
        else:
            continue
        break
    os.ftruncate(given, info.st_size)
    os.lseek(given, 0, os.SEEK_END)
    return True
