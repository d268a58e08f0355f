"""Reads device memory of the virtual GPU as host tensors.

The virtual GPU hands out host addresses.  A CPU tensor over the same bytes is therefore enough to read and write a
CUDA tensor without a copy, without a call into CUDA, and without a reference to its storage.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Dtype, Tensor, Torch

# The first page is never mapped, and a buffer whose address is zero is refused by torch.
_BASE = 4096
_TOP = 1 << 47
#: How many aliases are kept: more than the small tensors of a step, less than a megabyte.
_KEPT = 4096


class HostMemory:
    """Makes CPU tensors that alias device tensors."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        # One tensor spans the whole user address space.  It is never read as a whole: every alias is one
        # `as_strided` of it, which is cheaper than a storage per tensor and holds nothing alive.
        self._span = (ctypes.c_char * (_TOP - _BASE)).from_address(_BASE)
        # A tensor that is made in inference mode may not be written to outside it, and a mode of the program's own would
        # see it, or make something else of it.
        with torch.inference_mode(False), torch._C.DisableTorchFunction(), _without_modes(torch):
            self._bytes = torch.frombuffer(self._span, dtype=torch.uint8)
        self._bases: dict[Dtype, tuple[Tensor, int]] = {}
        #: Aliases by address, dtype, size and strides.
        self.kept: dict[tuple[Any, ...], Tensor] = {}

    def base(self, dtype: Dtype) -> tuple[Tensor, int]:
        """The whole address space as elements of `dtype`, and the size of one."""
        found = self._bases.get(dtype)
        if found is None:
            with self._torch.inference_mode(False):
                base = self._bytes.view(dtype)
            found = self._bases[dtype] = (base, base.element_size())
        return found

    def alias(self, tensor: Tensor) -> Tensor:
        """A CPU tensor of the same shape, strides and dtype over the same bytes."""
        base, size = self._bases.get(tensor.dtype) or self.base(tensor.dtype)
        address = tensor.data_ptr()
        if not address:
            if tensor.numel():
                raise ValueError("a tensor without memory has no values")
            return self._torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
        alias = base.as_strided(tensor.size(), tensor.stride(), (address - _BASE) // size)
        # Conjugation and negation may be notes on a tensor that memory does not show.
        if tensor.is_neg():
            alias = alias._neg_view()
        if tensor.is_conj():
            alias = alias.conj()
        return alias

    def known(self, tensor: Tensor) -> Tensor:
        """The same, kept for the next tensor of this shape in this place: programs go round in loops.

        Nobody may change the shape or strides of what this gives.
        """
        if tensor.is_neg() or tensor.is_conj():
            return self.alias(tensor)
        key = (tensor.data_ptr(), tensor.dtype, tensor.size(), tensor.stride())
        alias = self.kept.get(key)
        if alias is None:
            if len(self.kept) >= _KEPT:
                self.kept.clear()
            alias = self.kept[key] = self.alias(tensor)
        return alias

    def zero(self, tensor: Tensor) -> None:
        """Sets every element to zero."""
        count = tensor.numel()
        if not count:
            return
        if tensor.is_contiguous():
            ctypes.memset(tensor.data_ptr(), 0, count * tensor.element_size())
        else:
            self.alias(tensor).zero_()


def _without_modes(torch):
    """A context in which no `TorchDispatchMode` of the program's is asked."""
    return getattr(torch._C, "_DisableTorchDispatch", contextlib.nullcontext)()


class OneThread:
    """Keeps the host's arithmetic on the calling thread.

    Waking OpenMP's team costs more than a small operation, and on a machine that is busy with the user's program many
    times more.  OpenMP keeps the number per thread, so nobody else is affected.
    """

    def __init__(self, torch: Torch) -> None:
        self._count = torch.get_num_threads
        self._set = self._find()

    @staticmethod
    def _find():
        try:
            with open("/proc/self/maps") as maps:
                names = {line.split(None, 5)[5].strip() for line in maps if "omp" in line and line.count("/")}
        except OSError:
            return None
        for name in sorted(names):
            base = os.path.basename(name)
            if base.startswith(("libgomp", "libiomp5", "libomp")) and ".so" in base:
                try:
                    # Without giving up the interpreter lock: the call is shorter than that.
                    function = ctypes.PyDLL(name).omp_set_num_threads
                except (OSError, AttributeError):
                    continue
                function.argtypes = [ctypes.c_int]
                function.restype = None
                return function
        return None

    def enter(self) -> int:
        """Goes down to one thread; returns what `leave` needs."""
        # Asking torch also makes it apply its own default first, which it does once in each thread.
        before = self._count()
        if self._set is not None and before > 1:
            self._set(1)
        return before

    def leave(self, before: int) -> None:
        """Goes back."""
        if self._set is not None and before > 1:
            self._set(before)


def copy_present(to: int, source: int, size: int) -> bool:
    """Copy what of the source is in memory; say whether that could be determined.

    The rest was never written to, or belongs to a mapped checkpoint that would have to be read from disk.
    """
    spans = _present(source, size)
    for start, stop in spans or ():
        ctypes.memmove(to + start - source, start, stop - start)
    return spans is not None


def zero_present(address: int, size: int) -> bool:
    """Zero what is in memory; say whether that could be determined. What was never written to is zero."""
    spans = _present(address, size)
    for start, stop in spans or ():
        ctypes.memset(start, 0, stop - start)
    return spans is not None


def _present(address, size):
    """The spans of host memory that are in memory, as pairs of addresses; None where the system does not say."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    count = -(-(address + size - first) // mmap.PAGESIZE)
    present = (ctypes.c_ubyte * count)()
    if _mincore(ctypes.c_void_p(first), ctypes.c_size_t(address + size - first), present) != 0:
        return None
    # The other bits say nothing.
    pages = bytes(present).translate(_LOWEST_BIT)
    spans = []
    at = pages.find(1)
    while at >= 0:
        end = pages.find(0, at)
        end = count if end < 0 else end
        spans.append((max(first + at * mmap.PAGESIZE, address), min(first + end * mmap.PAGESIZE, address + size)))
        at = pages.find(1, end)
    return spans


def empty(address: int, size: int) -> None:
    """Zero memory of the host's heap. Whole pages are given back, and cost nothing until somebody looks at them."""
    page = mmap.PAGESIZE
    first = -(-address // page) * page
    last = (address + size) // page * page
    if _advise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONTNEED) != 0:
        first = last = address
    ctypes.memset(address, 0, first - address)
    ctypes.memset(last, 0, address + size - last)


#: `MADV_DONTNEED`.
_DONTNEED = 4
_advise = ctypes.CDLL(None, use_errno=True).madvise
_mincore = ctypes.CDLL(None).mincore
_LOWEST_BIT = bytes(value & 1 for value in range(256))


def readable(address: int, size: int = 1) -> bool:
    """Whether `size` bytes at `address` are this process's own readable memory.

    On a real GPU a device address is not, and touching it would end the program: the kernel is asked to copy it
    instead, which fails politely.
    """

    class _Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy = libc.process_vm_readv
    except (OSError, AttributeError):
        return False
    copy.restype = ctypes.c_ssize_t
    copy.argtypes = [
        ctypes.c_int,
        ctypes.POINTER(_Iovec),
        ctypes.c_ulong,
        ctypes.POINTER(_Iovec),
        ctypes.c_ulong,
        ctypes.c_ulong,
    ]
    into = ctypes.create_string_buffer(size)
    local = _Iovec(ctypes.addressof(into), size)
    remote = _Iovec(address, size)
    done = copy(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if done == size:
        return True
    # Some sandboxes forbid the call (EPERM, ENOSYS).  The memory map is slower and says the same.
    if ctypes.get_errno() in (1, 38):
        return _mapped(address)
    return False


def _mapped(address):
    """Whether /proc/self/maps lists `address` as readable and writable."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                span, mode = line.split(None, 2)[:2]
                first, _, last = span.partition("-")
                if int(first, 16) <= address < int(last, 16):
                    return mode.startswith("rw")
    except (OSError, ValueError):
        pass
    return False
