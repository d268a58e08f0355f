"""A store that answers for ranks that do not run.

NCCL's unique ids are what ranks wait for at a store: the first rank of a group puts one there. Where that rank does not
run, the others get one that each of them can work out. Everything else goes to the real store.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from io import open as _open

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_mkdir = os.makedirs
_replace = os.replace

_MARK = 0x6F6F6D70686E6363
"""The third number of every unique id that the virtual NCCL makes."""

_BYTES = 128
"""`NCCL_UNIQUE_ID_BYTES`"""

_FURTHER = re.compile(r"nccl_storekey_\d+_[1-9]\d*$")
"""Where the further unique ids of a large communicator are put, each by another rank. The first one alone names it."""

_kept: list[Any] = []
"""The stores of this process. torch keeps their C++ halves only."""


def answering(base: Any) -> Any:
    """The class of such stores, over torch's own `Store`."""

    class Answering(base):
        def __init__(self, store: Any, group: str, present: list[int]) -> None:
            super().__init__()
            self._store = store
            self._group = group
            self._present = present
            _kept.append(self)

        def _sender(self, key):
            """Who puts a value under this key, by rank in the group, and which ranks of its communicator run."""
            pair = key.rsplit("/", 1)[-1].split(":")
            if len(pair) == 2 and all(name.isdigit() for name in pair):
                # A communicator of two ranks for messages between them.
                members = [int(name) for name in pair]
                return members[0], [place for place, rank in enumerate(members) if rank in self._present]
            return (None if _FURTHER.search(key) else 0), self._present

        def _note(self, key, value):
            if len(value) == _BYTES:
                _tell(value, self._sender(key)[1])
            return value

        def set(self, key: str, value: str | bytes) -> None:
            self._store.set(key, value)
            self._note(key, value if isinstance(value, bytes) else str(value).encode())

        def get(self, key: str) -> bytes:
            if self._sender(key)[0] in self._present or self._store.check([key]):
                return self._note(key, self._store.get(key))
            return self._note(key, made_up("%s/%s" % (self._group, key)))

        def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
            keys = [key for key in keys if self._sender(key)[0] in self._present]
            if keys:
                self._store.wait(keys, *(() if timeout is None else (timeout,)))

        def multi_get(self, keys: Sequence[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
            for key, value in zip(keys, values):
                self.set(key, value)

        def add(self, key: str, amount: int) -> int:
            return self._store.add(key, amount)

        def append(self, key: str, value: str | bytes) -> None:
            self._store.append(key, value)

        def check(self, keys: Sequence[str]) -> bool:
            return self._store.check(keys)

        def compare_set(self, key: str, expected: str | bytes, value: str | bytes) -> bytes:
            return self._store.compare_set(key, expected, value)

        def delete_key(self, key: str) -> bool:
            return self._store.delete_key(key)

        def num_keys(self) -> int:
            return self._store.num_keys()

        def has_extended_api(self) -> bool:
            return self._store.has_extended_api()

        def set_timeout(self, timeout: Any) -> None:
            self._store.set_timeout(timeout)

        def clone(self) -> Answering:
            return Answering(self._store.clone(), self._group, self._present)

    return Answering


def made_up(name: str) -> bytes:
    """A unique id for a communicator of this name, the same in every process."""
    numbers = struct.unpack("<2Q", hashlib.sha256(name.encode()).digest()[:16])
    return struct.pack("<3Q", *numbers, _MARK).ljust(_BYTES, b"\0")


def _tell(unique_id, present):
    """Say which ranks of a communicator run, where the virtual NCCL looks for it."""
    first, second, mark = struct.unpack("<3Q", unique_id[:24])
    run = os.environ.get(protocol.PATH_RUN_VARIABLE)
    if mark != _MARK or not run:
        return
    folder = os.path.join(run, protocol.PATH_RANKS, "%x-%x" % (first, second))
    try:
        _mkdir(folder, exist_ok=True)
        part = os.path.join(folder, "present.%d" % os.getpid())
        with _open(part, "w") as file:
            file.write(",".join(map(str, present)))
        _replace(part, os.path.join(folder, "present"))
    except OSError:
        pass
