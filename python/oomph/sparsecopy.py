"""Copies of files with holes: `shutil` copies every zero of a checkpoint whose payload was left out.

A trainer that pushes its checkpoints copies them first. Twelve gigabytes of zeros take longer than the training steps
before them, and would take that much of the disk.
"""

import os
import shutil
import stat

from oomph.sparsezip import HOLE_FROM

#: What is copied at a time.
_PIECE = 1 << 20


def install():
    """Let `shutil` keep holes where it copies by descriptors, which it does on Linux."""
    original = getattr(shutil, "_fastcopy_sendfile", None)
    if original is None or getattr(original, "_oomph", False):
        return

    def _fastcopy_sendfile(fsrc, fdst):
        if not copy_holes(fsrc, fdst):
            original(fsrc, fdst)

    _fastcopy_sendfile._oomph = True
    shutil._fastcopy_sendfile = _fastcopy_sendfile


def copy_holes(source, target):
    """Copy a file that is mostly holes, and say whether that was done: nothing is written otherwise."""
    try:
        source, target = source.fileno(), target.fileno()
        info, there = os.fstat(source), os.fstat(target)
    except (OSError, ValueError, AttributeError):
        return False
    ordinary = stat.S_ISREG(info.st_mode) and stat.S_ISREG(there.st_mode) and there.st_size == 0
    if not ordinary or info.st_size < HOLE_FROM or info.st_blocks * 512 * 2 > info.st_size:
        return False
    at = 0
    while at < info.st_size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, at, os.SEEK_HOLE)
        except OSError:
            # There is no data any more, or the file system knows no holes.
            if at == 0 and info.st_blocks:
                return False
            break
        while at < end:
            piece = os.pread(source, min(_PIECE, end - at), at)
            if not piece:
                break
            at += os.pwrite(target, piece, at)
        else:
            continue
        break
    os.ftruncate(target, info.st_size)
    os.lseek(target, 0, os.SEEK_END)
    return True
