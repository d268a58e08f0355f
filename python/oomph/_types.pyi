"""What annotations call the things of other libraries. No library is imported for a type checker, so they are `Any`.

Only type checkers read this file: annotations import it where `TYPE_CHECKING` holds.
"""

from os import PathLike
from typing import Any, Protocol

Torch = Any
"""The module `torch`, or what tests put in its place."""
Library = Any
"""A module of another library, or a part of one."""
Tensor = Any
Dtype = Any
Model = Any
"""A `torch.nn.Module`."""
Optimizer = Any
"""Whatever has steps that are counted: an optimizer of torch, or one of another library."""
Loader = Any
"""A loader of batches, as `torch.utils.data.DataLoader`."""
Pipeline = Any
"""A pipeline of diffusers."""

AnyPath = str | bytes | PathLike[str] | PathLike[bytes]

Peaks = dict[int, tuple[int | None, int]]
"""For each device the peak of what was reserved, where it is known, and of what was allocated, in bytes."""

class Warns(Protocol):
    """Takes a sentence for the report."""

    def warn(self, sentence: str, /) -> None: ...
