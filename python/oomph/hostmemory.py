"""Reads from an error that the host's memory ran out, and how many bytes were requested, where the error says.

A dry run keeps on the host what the program keeps there. A machine with less memory than the real one may run out of it,
which says nothing of the GPU.
"""

from __future__ import annotations

import errno
import re

from oomph import sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._protocol import HookHostShortage

#: What libraries say when the host refuses memory, with the number of bytes where they tell it.
_WORDS = (
    re.compile(r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes"),
    re.compile(r"unable to mmap (\d+) bytes from file .*Cannot allocate memory", re.DOTALL),
    re.compile(r"std::bad_alloc|Cannot allocate memory \(os error 12\)"),
)
_NUMPY = re.compile(r"Unable to allocate ([\d.]+) ([KMGTP]?i?B) for an array")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
#: Causes of causes that are looked at.
_DEEPEST = 8


def shortage(error: BaseException | None) -> HookHostShortage | None:
    """What the host could not give, as the record has it; None where the error is another one."""
    for _ in range(_DEEPEST):
        if error is None:
            return None
        requested = _requested(error)
        if requested is not None:
            return {
                "requested_bytes": requested,
                "site": sites.site_of_traceback(error.__traceback__),
                "message": sites.message_of(error),
            }
        error = error.__cause__ or error.__context__
    return None


def _requested(error):
    """The bytes that were requested: 0 where the error does not say, None where it is not about the host's memory."""
    text = str(error)
    if isinstance(error, MemoryError):
        found = _NUMPY.search(text)
        if found and found.group(2) in _UNITS:
            return int(float(found.group(1)) * _UNITS[found.group(2)])
        return 0
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return 0
    if isinstance(error, RuntimeError):
        for words in _WORDS:
            found = words.search(text)
            if found:
                return int(found.group(1)) if words.groups else 0
    return None
