"""A writer of PyTorch's zip checkpoints that leaves holes instead of writing large payloads.

The weights of a dry run are meaningless, and there may be tens of gigabytes of them. The file that comes out is a valid
checkpoint of the right size and structure: `torch.load` of any version reads it, the payloads in the holes read as
zeros, and on the disk it takes a few megabytes.
"""

from __future__ import annotations

import ctypes
import os
import struct
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

REAL_BYTES = 64 << 20
"""How much payload of one file is written for real, in the order of writing."""
HOLE_FROM = 1 << 20
"""Records smaller than this are always written."""
_ALIGN = 64
_MAX32 = 0xFFFFFFFF


def _times(matrix, vector):
    total = 0
    for row in matrix:
        if not vector:
            break
        if vector & 1:
            total ^= row
        vector >>= 1
    return total


def crc_of_zeros(count: int) -> int:
    """The CRC-32 of `count` zero bytes, in the time of a few hundred operations."""
    if count <= 1 << 16:
        return zlib.crc32(bytes(count))
    # The register of a CRC after a zero bit is a linear map of the one before; squaring it makes bytes of bits and
    # powers of two of bytes. The first and last inversion of the register are done by hand.
    matrix = [0xEDB88320] + [1 << bit for bit in range(31)]
    for _ in range(3):
        matrix = [_times(matrix, row) for row in matrix]
    register = _MAX32
    while count:
        if count & 1:
            register = _times(matrix, register)
        count >>= 1
        if count:
            matrix = [_times(matrix, row) for row in matrix]
    return register ^ _MAX32


def _view(data, size):
    """A buffer over the bytes of a record: bytes, str, a storage, or the address of host memory."""
    if isinstance(data, str):
        data = data.encode("utf-8")
    if isinstance(data, int):
        address = data
    elif hasattr(data, "data_ptr"):
        address = data.data_ptr()
    else:
        return memoryview(data).cast("B")[:size]
    if not size:
        return b""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


class SparseZipWriter:
    """Replaces torch's PyTorchFileWriter: `write_record` and `write_end_of_file`."""

    def __init__(self, file: IO[bytes], archive: str) -> None:
        self._file = file
        self._archive = archive
        self._at = 0
        self._entries: list[tuple[str, int, int, int]] = []
        self._left = REAL_BYTES
        self.finished = False

    def archive_name(self) -> str:
        """The name of the folder in the archive that holds all records."""
        return self._archive

    def get_all_written_records(self) -> set[str]:
        """The names of the records so far."""
        return {name for name, _, _, _ in self._entries}

    def set_min_version(self, version: int) -> None:
        """Accepted and ignored: the version written is the one that every reader since 1.6 takes."""

    def write_record_metadata(self, name: str, size: int) -> None:
        """Reserve room for a record whose bytes are not there."""
        self._record(name, None, size)

    def write_record(self, name: str, data: Any, size: int, compress: bool = False) -> None:
        """Write a record, or leave a hole of its size."""
        self._record(name, data, int(size))

    def _record(self, name, data, size):
        if data is None or (size >= HOLE_FROM and size > self._left):
            view, crc = None, crc_of_zeros(size)
        else:
            view = _view(data, size)
            crc = zlib.crc32(view)
            self._left -= size
        path = (self._archive + "/" + name).encode("utf-8")
        extra = struct.pack("<HHQQ", 1, 16, size, size) if size >= _MAX32 else b""
        start = self._at + 30 + len(path) + len(extra) + 4
        padding = -start % _ALIGN
        extra += struct.pack("<HH", 0x4246, padding) + b"Z" * padding
        short = min(size, _MAX32)
        header = struct.pack(
            "<IHHHHHIIIHH", 0x04034B50, 45 if size >= _MAX32 else 20, 0x0800, 0, 0, 0x21, crc, short, short, len(path),
            len(extra),
        )
        self._entries.append((name, size, crc, self._at))
        self._file.write(header + path + extra)
        self._at += len(header) + len(path) + len(extra)
        if view is None:
            self._file.seek(size, os.SEEK_CUR)
        else:
            self._file.write(view)
        self._at += size

    def write_end_of_file(self) -> None:
        """Write the closing records and the directory of the archive."""
        if self.finished:
            return
        self.finished = True
        names = self.get_all_written_records()
        for name, text in (("version", "3\n"), (".data/serialization_id", "0" * 40)):
            if name not in names:
                self._record(name, text, len(text))
        begin = self._at
        for name, size, crc, offset in self._entries:
            path = (self._archive + "/" + name).encode("utf-8")
            wide = b""
            if size >= _MAX32:
                wide += struct.pack("<QQ", size, size)
            if offset >= _MAX32:
                wide += struct.pack("<Q", offset)
            extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
            short = min(size, _MAX32)
            self._out(
                struct.pack(
                    "<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45 if wide else 20, 0x0800, 0, 0, 0x21, crc, short, short,
                    len(path), len(extra), 0, 0, 0, 0, min(offset, _MAX32),
                ) + path + extra
            )
        count, length = len(self._entries), self._at - begin
        if begin >= _MAX32 or count >= 0xFFFF:
            at = self._at
            self._out(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, length, begin))
            self._out(struct.pack("<IIQI", 0x07064B50, 0, at, 1))
        few = min(count, 0xFFFF)
        self._out(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, few, few, length, min(begin, _MAX32), 0))

    def _out(self, data):
        self._file.write(data)
        self._at += len(data)
