"""Small objects that the overlay hands out: entries of merged directories, and errors that show the right path."""

from __future__ import annotations

import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import stat_result
    from types import TracebackType
    from typing import Literal

    from oomph._types import AnyPath


class Shown:
    """Puts the program's own path into an OSError that was raised for a path of ours."""

    __slots__ = ("path", "path2")

    def __init__(self, path: AnyPath, path2: AnyPath | None = None) -> None:
        self.path, self.path2 = path, path2

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = self.path
            if error.filename2 is not None:
                error.filename2 = self.path2
        return False


class Entry:
    """An entry of a merged directory, with the interface of os.DirEntry."""

    __slots__ = ("name", "path", "_real", "_lstat", "_stat", "_follow")

    def __init__(
        self,
        name: str | bytes,
        path: str | bytes,
        real: str,
        info: stat_result,
        follow: Callable[[str | bytes], stat_result],
    ) -> None:
        self.name, self.path, self._real, self._lstat, self._follow = name, path, real, info, follow
        self._stat: stat_result | None = None

    def __fspath__(self) -> str | bytes:
        return self.path

    def __repr__(self) -> str:
        return "<DirEntry %r>" % (self.name,)

    def inode(self) -> int:
        """The inode of the entry itself."""
        return self._lstat.st_ino

    def is_symlink(self) -> bool:
        """Whether the entry is a symbolic link."""
        return stat.S_ISLNK(self._lstat.st_mode)

    def is_junction(self) -> bool:
        """Never: junctions are of Windows."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> stat_result:
        """The status of the entry, or of what it points to."""
        if not follow_symlinks or not self.is_symlink():
            return self._lstat
        if self._stat is None:
            self._stat = self._follow(self.path)
        return self._stat

    def _kind(self, test, follow_symlinks):
        try:
            return test(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the entry is a directory."""
        return self._kind(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the entry is a regular file."""
        return self._kind(stat.S_ISREG, follow_symlinks)


class Scan:
    """What scandir gives for a merged directory: an iterator that is also a context manager."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def close(self) -> None:
        """Give nothing more."""
        self._entries = iter(())

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
