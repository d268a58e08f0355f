"""Renames and links over the overlay: between places that may be changed and places that may not."""

from __future__ import annotations

import errno
import os
import stat

from oomph.overlay import LOWER, fail
from oomph.overlay_entries import Shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph.overlay import Overlay


def movers(ov: Overlay, real: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The wrappers of rename, replace and link, given the overlay and the original functions."""
    allowed = ov.places.allowed
    r_link = real["link"]

    def _ends(src, dst, src_dir_fd, dst_dir_fd):
        return ov.key(src, src_dir_fd, follow=False), ov.key(dst, dst_dir_fd, follow=False)

    def _move(original, src, dst, src_dir_fd, dst_dir_fd):
        source, target = _ends(src, dst, src_dir_fd, dst_dir_fd)
        free, into = allowed(source), allowed(target)
        if free and into:
            return original(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        _, place, info = ov.find(source)
        if info is None:
            fail(errno.ENOENT, src, dst)
        _, _, there = ov.find(target)
        directory = stat.S_ISDIR(info.st_mode)
        if source == target:
            return None
        if directory and (target + "/").startswith(source + "/"):
            fail(errno.EINVAL, src, dst)
        if there is not None:
            if stat.S_ISDIR(there.st_mode):
                if not directory:
                    fail(errno.EISDIR, src, dst)
                if os.listdir(target):
                    fail(errno.ENOTEMPTY, src, dst)
            elif directory:
                fail(errno.ENOTDIR, src, dst)
        with Shown(src, dst):
            if into:
                _carry_out(place, source, target, directory)
            else:
                ov.parent_of(target, dst)
                if there is not None:
                    ov.remove(target)
                if free:
                    _carry_in(place, target, info, dst)
                else:
                    ov.transplant(source, target, dst)
            if free:
                _delete(place)
            else:
                ov.remove(source)

    def _carry_in(place, target, info, shown):
        """From a temporary place into the union: the content has to move, since the source goes away."""
        if stat.S_ISDIR(info.st_mode):
            ov.make_directory(target, shown)
            for name in real["listdir"](place):
                inner = place + "/" + name
                _carry_in(inner, target + "/" + name, real["lstat"](inner), shown)
            return
        upper, parent = ov.prepare(target, shown)
        if stat.S_ISLNK(info.st_mode):
            real["symlink"](real["readlink"](place), upper)
        else:
            try:
                r_link(place, upper)
            except OSError:
                ov._copy(place, upper, info)
        ov.touch(parent)

    def _carry_out(place, source, target, directory):
        """From the union to a place where writing is allowed: a copy, since the source may be the user's."""
        if directory:
            if not os.path.isdir(target):
                real["mkdir"](target)
            for name in os.listdir(source):
                inner = source + "/" + name
                _, at, info = ov.find(inner)
                _carry_out(at, inner, target + "/" + name, info is not None and stat.S_ISDIR(info.st_mode))
            return
        part = "%s.%d.oomph-part" % (target, os.getpid())
        ov._copy(place, part, real["stat"](place))
        real["replace"](part, target)

    def _delete(place):
        info = real["lstat"](place)
        if stat.S_ISDIR(info.st_mode):
            for name in real["listdir"](place):
                _delete(place + "/" + name)
            real["rmdir"](place)
        else:
            real["unlink"](place)

    def rename(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        return _move(real["rename"], src, dst, src_dir_fd, dst_dir_fd)

    def replace(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        return _move(real["replace"], src, dst, src_dir_fd, dst_dir_fd)

    def link(src, dst, *, src_dir_fd=None, dst_dir_fd=None, follow_symlinks=True):
        source, target = _ends(src, dst, src_dir_fd, dst_dir_fd)
        if allowed(target) and allowed(source):
            return r_link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
        where, place, info = ov.find(source)
        if info is None:
            fail(errno.ENOENT, src, dst)
        with Shown(src, dst):
            if allowed(target):
                if where == LOWER:
                    # A hard link to a real file would let a later write through it reach the real file.
                    fail(errno.EXDEV, src, dst)
                return r_link(place, target)
            if ov.exists(target):
                fail(errno.EEXIST, src, dst)
            if where == LOWER:
                ov.reference(target, place, dst)
            else:
                upper, parent = ov.prepare(target, dst)
                r_link(place, upper)
                ov.touch(parent)

    return {"rename": rename, "replace": replace, "link": link}
