"""Keeps a dry run from leaving anything behind: writes go to the run's scratch folder, and reads see them there.

This is the state of a union of two trees. The *lower* tree is the real file system and is never changed outside the
allowed places. The *upper* tree lies under $OOMPH_RUN/scratch at the same absolute paths and holds what the run wrote.
A *hidden* path is one whose lower entry (and all below it) was removed or replaced by the run.

Every process of the run shares the state: changes are appended to a log, and a counter in a mapped page shows the
others that there is something new, so that looking costs no system call. Paths are compared by their *key*, the
absolute path with symbolic links resolved through the union.

`overlay_os` puts this under Python's own file functions. What does not go through Python is only covered where
`savers` translates the paths of a compiled library, and where `commands` replaces a command of the shell.
"""

from __future__ import annotations

import errno
import os
import stat

from oomph import _protocol as protocol
from oomph.places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from oomph._types import AnyPath

_LINK = "/proc/oomph-lower"
"""Target prefix of a symbolic link in the upper tree that stands for a real file, moved or linked but not copied."""

_open = os.open
_close = os.close
_write = os.write
_read = os.read
_lstat = os.lstat
_stat = os.stat
_readlink = os.readlink
_mkdir = os.mkdir
_rmdir = os.rmdir
_unlink = os.unlink
_link = os.link
_symlink = os.symlink
_rename = os.rename
_replace = os.replace
_listdir = os.listdir
_getcwd = os.getcwd
_copymode = os.chmod

UPPER, LOWER, NOTHING = "upper", "lower", "nothing"

state: Overlay | None = None
"""The overlay of this process, or None when writes are allowed."""


def fail(number: int, path: AnyPath, other: AnyPath | None = None) -> NoReturn:
    """Raise the OSError that the kernel would have given for this path."""
    if other is None:
        raise OSError(number, os.strerror(number), path)
    raise OSError(number, os.strerror(number), path, None, other)


class Overlay:
    """The union as one process sees it."""

    def __init__(self, run_folder: str, program_root: str | None = None) -> None:
        import mmap

        self.root = os.path.join(os.path.realpath(run_folder), protocol.PATH_SCRATCH)
        private = os.path.join(os.path.realpath(run_folder), protocol.PATH_OVERLAY)
        os.makedirs(self.root, exist_ok=True)
        os.makedirs(private, exist_ok=True)
        self.private = private
        """Where the processes of the run keep what they share."""
        self.places = Places(os.path.realpath(run_folder), program_root, private)
        self._log = os.path.join(private, "log")
        counter = _open(os.path.join(private, "counter"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(counter, 8)
            self._page = mmap.mmap(counter, 8)
        finally:
            _close(counter)
        self._seen = bytes(8)
        self._offset = 0
        self.hidden: set[str] = set()
        self.touched: set[str] = set()
        """Keys of directories of which the upper tree holds entries that the lower one lacks or that replace them."""
        self._real_directories: dict[str, str] = {}

    # -- state shared by the processes of the run --------------------------------------------------------------

    def dirty(self) -> bool:
        """Say whether anything at all has been redirected; takes in what other processes did. No system call."""
        if self._page[:] != self._seen:
            self._refresh()
        return bool(self.touched or self.hidden)

    def _refresh(self):
        self._seen = self._page[:]
        try:
            log = _open(self._log, os.O_RDONLY)
        except OSError:
            return
        try:
            os.lseek(log, self._offset, os.SEEK_SET)
            chunks = []
            while True:
                chunk = _read(log, 1 << 20)
                if not chunk:
                    break
                chunks.append(chunk)
        finally:
            _close(log)
        data = b"".join(chunks)
        end = data.rfind(b"\0") + 1
        self._offset += end
        for entry in data[:end].split(b"\0")[:-1]:
            (self.hidden if entry[:1] == b"-" else self.touched).add(os.fsdecode(entry[1:]))
        self._real_directories.clear()

    def _note(self, sign, key):
        log = _open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _write(log, sign + os.fsencode(key) + b"\0")
            size = os.fstat(log).st_size
        finally:
            _close(log)
        self._page[:] = size.to_bytes(8, "little")
        self._refresh()

    def hide(self, key: str) -> None:
        """From now on the lower entry of `key` does not exist."""
        self.dirty()
        if not self.is_hidden(key):
            self._note(b"-", key)

    def touch(self, directory: str) -> None:
        """The upper tree holds an entry of this directory."""
        if directory not in self.touched:
            self._note(b"+", directory)

    # -- paths -------------------------------------------------------------------------------------------------

    def upper(self, key: str) -> str:
        """Where the upper entry of `key` lies."""
        return self.root + key

    def logical(self, path: str) -> str:
        """Turn a path inside the scratch folder back into the path that it stands for."""
        if path.startswith(self.root):
            rest = path[len(self.root) :]
            if not rest or rest[0] == "/":
                return rest or "/"
        return path

    def absolute(self, path: AnyPath, dir_fd: int | None = None) -> str:
        """The absolute form of a path as the program means it; links are not resolved."""
        path = os.fspath(path)
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if path[:1] != "/":
            if not path:
                fail(errno.ENOENT, path)
            base = self.logical(_getcwd() if dir_fd is None else _readlink("/proc/self/fd/%d" % dir_fd))
            path = base + "/" + path
        return path

    def key(self, path: AnyPath, dir_fd: int | None = None, follow: bool = True) -> str:
        """Resolve a path to its key. The last component is resolved too when `follow` is set.

        A trailing part that does not exist stays unchanged, as in os.path.realpath.
        """
        path = self.logical(self.absolute(path, dir_fd))
        if "//" in path or "/." in path or path[-1] == "/":
            parts = [part for part in path.split("/") if part and part != "."]
        else:
            parts = path[1:].split("/")
        if not parts:
            return "/"
        last = parts.pop()
        if last == "..":
            parts.append(last)
            return self._directory(parts)
        directory = self._directory(parts)
        key = (directory if directory != "/" else "") + "/" + last
        if not follow:
            return key
        for _ in range(40):
            target = self._link_target(key)
            if target is None:
                return key
            key = self.key(target if target[:1] == "/" else os.path.dirname(key) + "/" + target, follow=False)
        fail(errno.ELOOP, path)

    def _directory(self, parts):
        """Resolve the components of a directory; results are remembered until the overlay changes."""
        joined = "/" + "/".join(parts)
        known = self._real_directories.get(joined)
        if known is not None:
            return known
        at = ""
        for part in parts:
            if part == "..":
                at = at[: at.rfind("/")] if "/" in at else ""
                continue
            at += "/" + part
            if self._link_target(at) is not None:
                at = self.key(at)
            if at == "/":
                at = ""
        at = at or "/"
        if len(self._real_directories) > 4096:
            self._real_directories.clear()
        self._real_directories[joined] = at
        return at

    def _link_target(self, key):
        """The target when `key` (whose parent is resolved) is a symbolic link, else None."""
        where, real, info = self.find(key)
        if info is None or not stat.S_ISLNK(info.st_mode):
            return None
        target = _readlink(real)
        # Links of /proc such as /proc/self/fd/3 name things that have no path.
        if target[:1] != "/" and ":[" in target:
            return None
        return target

    def is_hidden(self, key: str) -> bool:
        """Say whether the lower entry of `key`, or a directory above it, was removed by the run."""
        hidden = self.hidden
        if not hidden:
            return False
        while key not in hidden:
            cut = key.rfind("/")
            if cut <= 0:
                return False
            key = key[:cut]
        return True

    def find(self, key: str) -> tuple[str, str, os.stat_result | None]:
        """Look one entry up, not following it: (UPPER, LOWER or NOTHING, real path, its lstat or None).

        A directory that exists in both trees counts as the lower one.
        """
        if (key[: key.rfind("/")] or "/") in self.touched:
            real = self.root + key
            try:
                info = _lstat(real)
            except OSError:
                info = None
            if info is not None:
                if stat.S_ISLNK(info.st_mode):
                    target = _readlink(real)
                    if target.startswith(_LINK):
                        real = target[len(_LINK) :]
                        return LOWER, real, _lstat(real)
                elif stat.S_ISDIR(info.st_mode) and not self.is_hidden(key):
                    try:
                        below = _lstat(key)
                    except OSError:
                        below = None
                    if below is not None and stat.S_ISDIR(below.st_mode):
                        return LOWER, key, below
                return UPPER, real, info
        if not self.is_hidden(key):
            try:
                return LOWER, key, _lstat(key)
            except OSError:
                pass
        return NOTHING, self.root + key, None

    def is_directory(self, key: str) -> bool:
        """Say whether `key` is a directory in the union."""
        info = self.find(key)[2]
        return info is not None and stat.S_ISDIR(info.st_mode)

    def exists(self, key: str) -> bool:
        """Say whether `key` names anything in the union."""
        return self.find(key)[2] is not None

    # -- reading -----------------------------------------------------------------------------------------------

    def readable(self, path: Any, dir_fd: int | None = None, follow: bool = True) -> str | None:
        """The real path to read instead of `path`, or None when `path` itself is right.

        Only called when the overlay is dirty.
        """
        if self.places.never_redirected(path):
            return None
        if dir_fd is None and path.__class__ is str and path:
            # Most reads go to directories that the run has not touched; then one look at the entry itself is enough.
            whole = path if path[0] == "/" else self.logical(_getcwd()) + "/" + path
            cut = whole.rfind("/")
            directory = self._real_directories.get(whole[:cut])
            if directory is not None and directory == whole[:cut] and directory not in self.touched \
                    and not (self.hidden and self.is_hidden(whole)) and whole[cut:] not in ("/", "/.", "/.."):
                if not follow:
                    return None
                try:
                    if not stat.S_ISLNK(_lstat(whole).st_mode):
                        return None
                except OSError:
                    return None
        key = self.key(path, dir_fd, follow)
        if self.places.allowed(key):
            # The path may lead there through a link that only exists in the union.
            return key if os.path.isabs(path) and key != path else None
        where, real, info = self.find(key)
        if where == LOWER and real == key:
            return None if dir_fd is None and os.fspath(path)[:1] in ("/", b"/") and key == path else key
        return real

    def names(self, key: str) -> list[str] | None:
        """The names in a directory of the union, or None when the lower tree alone is right."""
        hidden = self.is_hidden(key)
        if key not in self.touched and not hidden:
            if not self.hidden or not any(gone.startswith(key.rstrip("/") + "/") for gone in self.hidden):
                return None
        result: dict[str, None] = {}
        if not hidden:
            try:
                for name in _listdir(key):
                    if key.rstrip("/") + "/" + name not in self.hidden:
                        result[name] = None
            except OSError:
                if not os.path.isdir(self.root + key):
                    raise
        try:
            for name in _listdir(self.root + key):
                if name not in result and (hidden or key in self.touched):
                    result[name] = None
        except OSError:
            if hidden:
                raise
        return list(result)

    # -- writing -----------------------------------------------------------------------------------------------

    def parent_of(self, key: str, shown: AnyPath) -> str:
        """Make sure that the parent of `key` is a directory of the union; give it."""
        parent = key[: key.rfind("/")] or "/"
        info = self.find(parent)[2]
        if info is None:
            fail(errno.ENOENT, shown)
        if not stat.S_ISDIR(info.st_mode):
            fail(errno.ENOTDIR, shown)
        return parent

    def prepare(self, key: str, shown: AnyPath) -> tuple[str, str]:
        """Make the upper parent of `key` and note that it has an entry there; give the upper path."""
        parent = self.parent_of(key, shown)
        os_makedirs(self.root + parent)
        return self.root + key, parent

    def writable(self, key: str, shown: AnyPath, content: bool = True) -> str:
        """Bring the upper entry of `key` into being, with the lower content unless it is about to be replaced.

        Gives the upper path. Two processes that copy at the same time end up with one and the same file.
        """
        where, real, info = self.find(key)
        upper, parent = self.prepare(key, shown)
        if where == LOWER and info is not None and stat.S_ISREG(info.st_mode):
            part = "%s.%d.oomph-part" % (upper, os.getpid())
            self._copy(real, part, info if content else None)
            try:
                _copymode(part, stat.S_IMODE(info.st_mode) | 0o600)
                if real != key:
                    _unlink(upper)
                _link(part, upper)
            except FileExistsError:
                pass
            finally:
                _unlink(part)
        self.touch(parent)
        return upper

    @classmethod
    def _copy(cls, source, target, info):
        """Copy a regular file, keeping its holes as holes; without `info` only make it."""
        out = _open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if info is not None:
                cls.fill(source, out, info)
        finally:
            _close(out)

    @staticmethod
    def fill(source: str, out: int, info: os.stat_result) -> None:
        """Write the content of a file, whose status is `info`, to an empty file that is open; holes stay holes."""
        taken = _open(source, os.O_RDONLY)
        try:
            zeros = bytes(1 << 20)
            while True:
                chunk = _read(taken, 1 << 20)
                if not chunk:
                    break
                if chunk == zeros:
                    os.lseek(out, len(chunk), os.SEEK_CUR)
                else:
                    while chunk:
                        chunk = chunk[_write(out, chunk) :]
            os.ftruncate(out, info.st_size)
        finally:
            _close(taken)

    def remove(self, key: str) -> None:
        """Remove what `find` sees at `key` (not a directory's contents) from the union."""
        self._drop_upper(key)
        if not self.is_hidden(key):
            try:
                _lstat(key)
            except OSError:
                return
            self.hide(key)

    def _drop_upper(self, key):
        upper = self.root + key
        try:
            info = _lstat(upper)
        except OSError:
            return
        if stat.S_ISDIR(info.st_mode):
            for name in _listdir(upper):
                self._drop_upper(key + "/" + name)
            _rmdir(upper)
        else:
            _unlink(upper)

    def reference(self, key: str, real: str, shown: AnyPath) -> None:
        """Let `key` stand for the real file `real` without copying it; it is copied when it is written to."""
        upper, parent = self.prepare(key, shown)
        try:
            _unlink(upper)
        except OSError:
            pass
        _symlink(_LINK + real, upper)
        self.touch(parent)

    def transplant(self, source: str, target: str, shown: AnyPath) -> None:
        """Make `target` what `source` is now, through the whole tree below it, leaving `source` alone."""
        where, real, info = self.find(source)
        if info is None:
            fail(errno.ENOENT, source)
        if stat.S_ISDIR(info.st_mode):
            self.make_directory(target, shown, stat.S_IMODE(info.st_mode) | 0o700)
            names = self.names(source)
            for name in _listdir(real) if names is None else names:
                self.transplant(source + "/" + name, target + "/" + name, shown)
        elif stat.S_ISLNK(info.st_mode):
            upper, parent = self.prepare(target, shown)
            _symlink(_readlink(real), upper)
            self.touch(parent)
        elif where == LOWER:
            self.reference(target, real, shown)
        else:
            upper, parent = self.prepare(target, shown)
            try:
                _link(real, upper)
            except OSError:
                self._copy(real, upper, info)
            self.touch(parent)

    def make_directory(self, key: str, shown: AnyPath, mode: int = 0o777) -> None:
        """Make an empty directory in the upper tree."""
        upper, parent = self.prepare(key, shown)
        try:
            _mkdir(upper, mode)
        except FileExistsError:
            pass
        self.touch(parent)


def os_makedirs(path: str) -> None:
    """os.makedirs with the original functions, for folders inside the scratch folder."""
    try:
        _mkdir(path, 0o777)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os_makedirs(path[: path.rfind("/")])
        try:
            _mkdir(path, 0o777)
        except FileExistsError:
            pass


def install(run_folder: str, program_root: str | None = None) -> None:
    """Put the overlay under this process's file functions."""
    global state
    if os.name != "posix" or state is not None:
        return
    from oomph import commands, overlay_os

    made = Overlay(run_folder, program_root)
    state = made
    overlay_os.install(made)
    commands.install(made)


def move(run_folder: str, program_root: str | None = None) -> None:
    """Begin with an empty overlay in another run folder; what wraps the file functions stays."""
    if state is not None:
        state.__init__(run_folder, program_root)  # type: ignore[misc] # It has no subclass.


def real_path(path: Any, writing: bool = False) -> Any:
    """Translate a path for a library that opens files without Python: where to read it, or where to write it.

    Gives `path` unchanged when there is nothing to translate. With `writing` the parent is made ready in the scratch
    folder and a file that exists is copied there, so the caller may change it in place.
    """
    if state is None or not isinstance(path, (str, bytes, os.PathLike)):
        return path
    shown = os.fspath(path)
    if not writing:
        try:
            return (state.readable(shown) or path) if state.dirty() else path
        except OSError:
            return path
    key = state.key(shown)
    if state.places.allowed(key):
        return path
    try:
        return state.writable(key, shown)
    except OSError:
        # The library will fail on the upper path with words of its own; it must not be sent to the real one.
        return state.upper(key)
