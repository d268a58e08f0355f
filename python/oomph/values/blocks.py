"""Follows the blocks of device memory: how many bytes each has, and that what was noted of a place ends with its block.

PyTorch's allocator gives the same addresses again and again, to tensors of any size. The virtual GPU lists every block that
the allocator hands out (`oomph_follow_allocator`), and the list is read before anything is noted or asked of a block.
Where the allocator cannot be followed, a block's size is read from the tensor's storage.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Tensor, Torch

#: The allocator's object, as C++ names it.
_ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
#: So many blocks are read from the list at once.
_AT_ONCE = 512
#: So many words of an object of C++ are looked at to find what is in it.
_WORDS = 16


class Blocks:
    """What is known of each block of device memory, and how large it is."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        #: The level of each block that has one, by address.
        self.levels: dict[int, int] = {}
        #: The bytes of each block that the allocator handed out while it was followed.
        self.sizes: dict[int, int] = {}
        #: How many blocks were handed out that nobody has asked about; its `value` is asked before `settle` is called.
        self.waiting: Any = ctypes.c_size_t(0)
        #: Whether the allocator is followed, so that a level that is noted is that of the block that lies there now.
        self.followed = False
        self.settle: Callable[[], None] = _nothing
        self._of_storage: Callable[[Tensor], int | None] | None = None

    def follow(self, poison: bool = False) -> None:
        """Follows the allocator from now on, where that can be done. With `poison` each block begins with a test's pattern."""
        try:
            library = ctypes.PyDLL(None)
            begin, take = library.oomph_follow_allocator, library.oomph_handed
            path = os.path.join(os.path.dirname(self._torch.__file__), "lib", "libc10_cuda.so")
            allocator = ctypes.c_void_p.in_dll(ctypes.CDLL(path), _ALLOCATOR).value
        except (AttributeError, OSError, ValueError):
            # No virtual GPU, or a PyTorch whose allocator is found in another way.
            return
        begin.argtypes, begin.restype = [ctypes.c_void_p, ctypes.c_bool], ctypes.c_void_p
        take.argtypes, take.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_size_t
        waiting = begin(allocator, poison)
        if waiting:
            self.waiting = ctypes.c_size_t.from_address(waiting)
            self.settle = self._settling(take)
            self.followed = True

    def _settling(self, take):
        room: Any = (ctypes.c_size_t * (2 * _AT_ONCE))()
        into, waiting, levels, sizes = ctypes.addressof(room), self.waiting, self.levels, self.sizes

        def settle():
            """Forgets what was noted of the blocks that lay where new ones lie."""
            while waiting.value:
                count = take(into, _AT_ONCE)
                if count == 1:
                    address = room[0]
                    sizes[address] = room[1]
                    levels.pop(address, None)
                    continue
                given = room[: 2 * count]
                for address, size in zip(given[::2], given[1::2]):
                    sizes[address] = size
                    levels.pop(address, None)

        return settle

    def bytes_of(self, tensor: Tensor) -> int | None:
        """How many bytes the block has that a tensor lies in; None where nothing says."""
        if self.waiting.value:
            self.settle()
        size = self.sizes.get(address_of(tensor))
        if size is not None:
            return size
        if self._of_storage is None:
            self._of_storage = storage_reader(self._torch) or _unknown
        return self._of_storage(tensor)

    def forget(self) -> None:
        """Drops everything, as after a fork."""
        self.levels.clear()
        self.sizes.clear()
        self.waiting, self.settle, self.followed = ctypes.c_size_t(0), _nothing, False


def address_of(tensor: Tensor) -> int:
    """Where the block begins that a tensor lies in.

    It is worked out from the tensor: asking for its storage would make a Python object of the storage, whose reference
    autograd would count, and gradients would be added out of place.
    """
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


def storage_reader(torch: Torch) -> Callable[[Tensor], int | None] | None:
    """A function that reads from memory how many bytes a tensor's storage has, without an object of Python for it.

    Where the fields lie is found by looking at tensors of which everything is known; None where that does not succeed.
    """
    word = ctypes.c_size_t.from_address
    fields = set()
    for count in (1021, 3067):
        tensor = torch.empty(count, dtype=torch.uint8, device="cpu")
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        there = getattr(storage, "_cdata", 0)
        begin = getattr(tensor, "_cdata", 0)
        if not there or not begin:
            return None
        storages = [at for at in range(0, 8 * _WORDS, 8) if word(begin + at).value == there]
        lengths = [at for at in range(0, 8 * _WORDS, 8) if word(there + at).value == count]
        fields.add((tuple(storages), tuple(lengths)))
    if len(fields) != 1:
        return None
    to_storages, to_sizes = fields.pop()
    if len(to_storages) != 1 or len(to_sizes) != 1:
        return None
    to_storage, to_size = to_storages[0], to_sizes[0]

    def read(tensor):
        return word(word(tensor._cdata + to_storage).value + to_size).value

    return read


def _unknown(tensor):
    return None


def _nothing():
    return None
