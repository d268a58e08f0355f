"""Renames folders in a private view of the file system that was made in a user namespace.

The kernel's overlay cannot rename a folder there that was on the disk before the run; it answers as if the two names
were on different disks. Commands such as `mv` copy then, and so does this, for Python.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat

_link = os.link


def _move(source, target):
    """Make `target` the folder that `source` is, by linking or copying what is in it."""
    try:
        os.rmdir(target)
    except FileNotFoundError:
        pass
    shutil.copytree(source, target, symlinks=True, copy_function=_twin)
    shutil.rmtree(source)


def _twin(source, target, follow_symlinks=True):
    try:
        _link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=follow_symlinks)


def _renaming(original):
    def rename(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        try:
            return original(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        except OSError as error:
            if error.errno != errno.EXDEV or src_dir_fd is not None or dst_dir_fd is not None:
                raise
            if not stat.S_ISDIR(os.lstat(src).st_mode):
                raise
            _move(src, dst)

    rename.__name__, rename.__doc__ = original.__name__, original.__doc__
    return rename


def install() -> None:
    """Have `os.rename` and `os.replace` move folders as they would outside of the view."""
    os.rename = _renaming(os.rename)
    os.replace = _renaming(os.replace)
