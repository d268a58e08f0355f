"""For a test: finds values that are taken as computed and that nothing has written.

With `OOMPH_TEST_POISON` in the environment the virtual GPU fills each block that PyTorch's allocator hands out with a pattern.
Whenever what is known of a tensor is asked, and it counts as known or guessed, its memory is looked at: a pattern there is
a fault of the engine, and the run says so. Every operation then goes the long way, which asks.
"""

from __future__ import annotations

import os

from oomph.values.unknown import GUESS, user_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Tensor
    from oomph.values.kernels import Kernels

#: The variable that switches the test on.
VARIABLE = "OOMPH_TEST_POISON"
#: What the virtual GPU fills blocks with.
PATTERN = 0x5A
#: So many single bytes of the pattern in a row are no values of a program's.
_ROW = 16


def is_wanted() -> bool:
    """Whether this run is such a test."""
    return bool(os.environ.get(VARIABLE))


def watch(kernels: Kernels) -> None:
    """Looks at each tensor whose values are asked about."""
    kernels.with_quick_ways = False
    original = kernels.unknowns.level
    said: set[str] = set()

    def level(tensor):
        found = original(tensor)
        if found <= GUESS and tensor.numel() and not kernels.large(tensor) and shows(kernels, tensor):
            place = user_line() or "in backward"
            if place not in said:
                said.add(place)
                kernels.warn.fault("%s: %s of %s counts as %s and was never written" % (
                    place, tuple(tensor.size()), tensor.dtype, "guessed" if found else "known"))
        return found

    kernels.unknowns.level = level  # type: ignore[method-assign]


def shows(kernels: Kernels, tensor: Tensor) -> bool:
    """Whether the memory of a tensor holds the pattern."""
    torch = kernels.torch
    kernels.include(kernels.key, False)
    with torch._C.DisableTorchFunction():
        seen = kernels.memory.alias(tensor).contiguous().flatten().view(torch.uint8)
        size = tensor.element_size()
        if size == 1 and tensor.dtype != torch.bool:
            size = _ROW
        rows = seen[: seen.numel() // size * size].view(-1, size)
        return bool((rows == PATTERN).all(dim=1).any())
