"""Puts the overlay under Python's file functions: wrappers around open and the functions of os.

Each wrapper takes the original's arguments. As long as nothing was redirected in the whole run, a read costs one
comparison of eight bytes. Errors carry the path that the program gave, never one of the scratch folder.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from oomph.overlay import NOTHING, UPPER, fail
from oomph.overlay_entries import Entry, Scan, Shown
from oomph.overlay_moves import movers
from oomph.places import is_special

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import AnyPath
    from oomph.overlay import Overlay

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TMPFILE = getattr(os, "O_TMPFILE", 0)


def _is_path(value):
    return isinstance(value, (str, bytes)) or (hasattr(value, "__fspath__") and not isinstance(value, int))


def make_open(ov: Overlay, original: Callable[..., Any]) -> Callable[..., Any]:
    """builtins.open over the overlay. The file's `name` stays what the program gave."""
    os_open = os.open

    def open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        if opener is not None or file.__class__ is int or mode.__class__ is not str:
            return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if "w" not in mode and "a" not in mode and "+" not in mode and "x" not in mode:
            if (ov._page[:] == ov._seen and not ov.touched and not ov.hidden) or not ov.dirty() or not _is_path(file):
                return original(file, mode, buffering, encoding, errors, newline, closefd)
            real = ov.readable(file)
        elif not _is_path(file):
            return original(file, mode, buffering, encoding, errors, newline, closefd)
        else:
            real = _place(file, "w" in mode, "a" in mode or "w" in mode, "x" in mode)
        if real is None:
            return original(file, mode, buffering, encoding, errors, newline, closefd)

        def redirected(path, flags):
            with Shown(path):
                return os_open(real, flags, 0o666)

        return original(file, mode, buffering, encoding, errors, newline, closefd, redirected)

    def _place(file, truncate, create, exclusive):
        return place_for_writing(ov, file, None, truncate, create or exclusive, exclusive)

    return open


def place_for_writing(
    ov: Overlay,
    file: AnyPath,
    dir_fd: int | None,
    truncate: object,
    create: object,
    exclusive: object,
    nofollow: object = False,
) -> str | None:
    """Decide where an open for writing goes: a real path, or None for the unchanged path."""
    key = ov.key(file, dir_fd, follow=not (exclusive or nofollow))
    if ov.places.allowed(key):
        return key if ov.dirty() and key != os.fspath(file) and dir_fd is None else None
    where, real, info = ov.find(key)
    if info is not None:
        if exclusive:
            fail(errno.EEXIST, file)
        if stat.S_ISDIR(info.st_mode):
            fail(errno.EISDIR, file)
        if is_special(info):
            return real
    elif not create:
        fail(errno.ENOENT, file)
    elif os.fspath(file)[-1:] in ("/", b"/"):
        fail(errno.EISDIR, file)
    with Shown(file):
        return ov.writable(key, file, content=not truncate)


def install(ov: Overlay) -> None:
    """Replace the functions of builtins, io and os in this process."""
    import builtins
    import io

    originals = {name: getattr(os, name) for name in _WRAPPED if hasattr(os, name)}
    wrappers = _make(ov, dict(originals))
    _early_pathlib(originals, wrappers)
    opened = make_open(ov, io.open)
    opened.__module__, opened.__qualname__, opened.__doc__ = "io", "open", io.open.__doc__
    builtins.open = io.open = opened
    for name, wrapper in wrappers.items():
        original = originals[name]
        wrapper.__module__, wrapper.__name__, wrapper.__qualname__ = "os", name, name
        wrapper.__doc__ = original.__doc__
        text = getattr(original, "__text_signature__", None)
        if text:
            wrapper.__text_signature__ = text
        for capability in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids"):
            if original in getattr(os, capability, ()):
                getattr(os, capability).add(wrapper)
        setattr(os, name, wrapper)
    _after(ov)


def _early_pathlib(originals, wrappers):
    """Up to Python 3.10 pathlib keeps the functions of os in a class of its own, where a plain function would turn
    into a method. It is imported first, with the originals, and then given the wrappers explicitly."""
    if sys.version_info >= (3, 11):
        return
    import io
    import pathlib

    accessor = getattr(pathlib, "_NormalAccessor", None)
    for name in list(vars(accessor) if accessor else ()):
        held = vars(accessor)[name]
        held = getattr(held, "__func__", held)
        for known, original in originals.items():
            if held is original:
                setattr(accessor, name, staticmethod(_later(known)))
        if held is io.open:
            setattr(accessor, name, staticmethod(lambda *args, **kwargs: io.open(*args, **kwargs)))


def _later(name):
    return lambda *args, **kwargs: getattr(os, name)(*args, **kwargs)


def _after(ov):
    """Modules that were imported before and keep something of their own."""
    from oomph import hook

    def shutil_by_paths(shutil):
        # The variant with directory descriptors is a protection against races; by paths it does the same work.
        shutil._use_fd_functions = False
        shutil.copyfile = _make_copyfile(ov, shutil)

    hook.on_import("shutil", shutil_by_paths)


def _make_copyfile(ov, shutil):
    """shutil.copyfile that keeps the holes of a checkpoint: a copy of 100 GB of nothing takes no room either."""
    import functools

    original = shutil.copyfile

    @functools.wraps(original)
    def copyfile(src, dst, *, follow_symlinks=True):
        if _is_path(src) and _is_path(dst) and follow_symlinks and ov.dirty():
            source, target = ov.key(src), ov.key(dst)
            where, real, info = ov.find(source)
            if where == UPPER and stat.S_ISREG(info.st_mode) and source != target and not ov.places.allowed(target):
                # Opening it does all the checks, and makes the place ready.
                with open(dst, "wb") as file, Shown(src):
                    ov.fill(real, file.fileno(), info)
                return dst
        return original(src, dst, follow_symlinks=follow_symlinks)

    return copyfile


_WRAPPED = (
    "open", "stat", "lstat", "access", "listdir", "scandir", "readlink", "statvfs", "chdir", "getcwd", "getcwdb",
    "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "symlink", "truncate", "utime", "chmod", "chown",
    "lchown", "setxattr", "getxattr", "listxattr", "removexattr", "mkfifo", "mknod",
)


def _make(ov, real):
    made = {}
    made.update(_readers(ov, real))
    made.update(_directories(ov, real))
    made.update(_changers(ov, real))
    made.update(movers(ov, real))
    return {name: made[name] for name in made if name in real}


def _readers(ov, real):
    dirty = ov.dirty
    r_open, r_stat, r_lstat, r_access = real["open"], real["stat"], real["lstat"], real["access"]

    def open(path, flags, mode=0o777, *, dir_fd=None):
        if not _is_path(path):
            return r_open(path, flags, mode, dir_fd=dir_fd)
        if flags & _WRITE_FLAGS == 0:
            place = ov.readable(path, dir_fd) if dirty() else None
        elif _TMPFILE and flags & _TMPFILE == _TMPFILE:
            key = ov.key(path, dir_fd)
            place = None if ov.places.allowed(key) else ov.root
        else:
            place = place_for_writing(
                ov, path, dir_fd, flags & os.O_TRUNC, flags & os.O_CREAT, flags & os.O_EXCL and flags & os.O_CREAT,
                flags & getattr(os, "O_NOFOLLOW", 0),
            )
        if place is None:
            return r_open(path, flags, mode, dir_fd=dir_fd)
        with Shown(path):
            return r_open(place, flags, mode)

    def stat(path, *, dir_fd=None, follow_symlinks=True):
        if not dirty() or not _is_path(path):
            return r_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        place = ov.readable(path, dir_fd, follow_symlinks)
        if place is None:
            return r_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        with Shown(path):
            return r_stat(place, follow_symlinks=follow_symlinks)

    def lstat(path, *, dir_fd=None):
        place = ov.readable(path, dir_fd, False) if dirty() else None
        if place is None:
            return r_lstat(path, dir_fd=dir_fd)
        with Shown(path):
            return r_lstat(place)

    def access(path, mode, *, dir_fd=None, effective_ids=False, follow_symlinks=True):
        place = None
        if dirty() and _is_path(path):
            try:
                place = ov.readable(path, dir_fd, follow_symlinks)
            except OSError:
                return False
        if place is None:
            return r_access(path, mode, dir_fd=dir_fd, effective_ids=effective_ids, follow_symlinks=follow_symlinks)
        return r_access(place, mode)

    def _read_only(name):
        original = real.get(name)

        def reader(path, *args, **kwargs):
            place = None
            if dirty() and _is_path(path):
                follow = name not in ("readlink",) and kwargs.get("follow_symlinks", True)
                place = ov.readable(path, kwargs.get("dir_fd"), follow)
            if place is None:
                return original(path, *args, **kwargs)
            kwargs.pop("dir_fd", None)
            with Shown(path):
                value = original(place, *args, **kwargs)
            return os.fsencode(value) if isinstance(path, bytes) and isinstance(value, str) else value

        return reader

    made = {"open": open, "stat": stat, "lstat": lstat, "access": access}
    for name in ("readlink", "statvfs", "getxattr", "listxattr"):
        made[name] = _read_only(name)
    return made


def _directories(ov, real):
    dirty = ov.dirty
    r_listdir, r_scandir, r_chdir, r_getcwd = real["listdir"], real["scandir"], real["chdir"], real["getcwd"]

    def _merged(path):
        """Key, names of the union (or None when the lower tree alone is right) and the real directory."""
        if path.__class__ is int:
            key = ov.logical(ov.absolute(".", path)[:-2])
        elif ov.places.never_redirected(path):
            return None, None, None
        else:
            key = ov.key(path)
        if ov.places.allowed(key):
            return key, None, None
        where, place, info = ov.find(key)
        if info is None:
            fail(errno.ENOENT, path)
        if not stat.S_ISDIR(info.st_mode):
            fail(errno.ENOTDIR, path)
        names = ov.names(key)
        if names is None and where == UPPER:
            # A directory that the program has made and put nothing into yet: there is none below it to list.
            names = []
        return key, names, place

    def listdir(path=None):
        if not dirty():
            return r_listdir(path)
        names = _merged("." if path is None else path)[1]
        if names is None:
            return r_listdir(path)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(path=None):
        if not dirty():
            return r_scandir(path)
        key, names, place = _merged("." if path is None else path)
        if names is None:
            return r_scandir(path)
        if path.__class__ is int:
            shown: Any = ""
        else:
            shown = os.fspath("." if path is None else path)
        binary = isinstance(shown, bytes)
        entries = []
        for name in names:
            _, at, info = ov.find((key if key != "/" else "") + "/" + name)
            if info is None:
                continue
            own = os.fsencode(name) if binary else name
            whole = os.path.join(shown, own) if shown else own
            entries.append(Entry(own, whole, at, info, os.stat))
        return Scan(entries)

    def chdir(path):
        place = None
        if _is_path(path) and dirty():
            place = ov.readable(path)
        with Shown(path):
            r_chdir(path if place is None else place)

    def getcwd():
        return ov.logical(r_getcwd())

    def getcwdb():
        return os.fsencode(ov.logical(r_getcwd()))

    return {"listdir": listdir, "scandir": scandir, "chdir": chdir, "getcwd": getcwd, "getcwdb": getcwdb}


def _changers(ov, real):
    allowed = ov.places.allowed
    r_mkdir, r_rmdir, r_unlink = real["mkdir"], real["rmdir"], real["unlink"]
    r_symlink, r_truncate = real["symlink"], real["truncate"]

    def _real_place(key, path, dir_fd):
        """The arguments for a change that may really happen; through a link of the union if there is one."""
        return (key, None) if ov.dirty() else (path, dir_fd)

    def mkdir(path, mode=0o777, *, dir_fd=None):
        key = ov.key(path, dir_fd, follow=False)
        if allowed(key):
            path, dir_fd = _real_place(key, path, dir_fd)
            return r_mkdir(path, mode, dir_fd=dir_fd)
        if ov.exists(key):
            fail(errno.EEXIST, path)
        with Shown(path):
            ov.make_directory(key, path, mode | 0o700)

    def rmdir(path, *, dir_fd=None):
        key = ov.key(path, dir_fd, follow=False)
        if allowed(key):
            path, dir_fd = _real_place(key, path, dir_fd)
            return r_rmdir(path, dir_fd=dir_fd)
        info = ov.find(key)[2]
        if info is None:
            fail(errno.ENOENT, path)
        if not stat.S_ISDIR(info.st_mode):
            fail(errno.ENOTDIR, path)
        if os.listdir(key):
            fail(errno.ENOTEMPTY, path)
        with Shown(path):
            ov.remove(key)

    def unlink(path, *, dir_fd=None):
        key = ov.key(path, dir_fd, follow=False)
        if allowed(key):
            path, dir_fd = _real_place(key, path, dir_fd)
            return r_unlink(path, dir_fd=dir_fd)
        info = ov.find(key)[2]
        if info is None:
            fail(errno.ENOENT, path)
        if stat.S_ISDIR(info.st_mode):
            fail(errno.EISDIR, path)
        with Shown(path):
            ov.remove(key)

    def remove(path, *, dir_fd=None):
        unlink(path, dir_fd=dir_fd)

    def symlink(src, dst, target_is_directory=False, *, dir_fd=None):
        key = ov.key(dst, dir_fd, follow=False)
        if allowed(key):
            return r_symlink(src, dst, target_is_directory, dir_fd=dir_fd)
        if ov.exists(key):
            fail(errno.EEXIST, src, dst)
        with Shown(src, dst):
            upper, parent = ov.prepare(key, dst)
            r_symlink(src, upper)
            ov.touch(parent)

    def truncate(path, length):
        if not _is_path(path):
            return r_truncate(path, length)
        place = place_for_writing(ov, path, None, False, False, False)
        with Shown(path):
            r_truncate(path if place is None else place, length)

    def _special(name):
        original = real.get(name)

        def maker(path, *args, **kwargs):
            key = ov.key(path, kwargs.get("dir_fd"), follow=False)
            if allowed(key):
                return original(path, *args, **kwargs)
            if ov.exists(key):
                fail(errno.EEXIST, path)
            kwargs.pop("dir_fd", None)
            upper, parent = ov.prepare(key, path)
            with Shown(path):
                original(upper, *args, **kwargs)
            ov.touch(parent)

        return maker

    def _attributes(name):
        original = real.get(name)
        follows = name != "lchown"

        def setter(path, *args, **kwargs):
            if not _is_path(path):
                return original(path, *args, **kwargs)
            key = ov.key(path, kwargs.get("dir_fd"), follows and kwargs.get("follow_symlinks", True))
            if allowed(key):
                return original(path, *args, **kwargs)
            where, place, info = ov.find(key)
            if where == NOTHING:
                fail(errno.ENOENT, path)
            if where == UPPER:
                kwargs.pop("dir_fd", None)
                with Shown(path):
                    return original(place, *args, **kwargs)
            # The attributes of a real file stay as they are: nothing a program computes depends on them, and a copy
            # only to carry them could be of any size.
            return None

        return setter

    made = {"mkdir": mkdir, "rmdir": rmdir, "unlink": unlink, "remove": remove, "symlink": symlink, "truncate": truncate}
    for name in ("mkfifo", "mknod"):
        made[name] = _special(name)
    for name in ("utime", "chmod", "chown", "lchown", "setxattr", "removexattr"):
        made[name] = _attributes(name)
    return made
