"""Detects whether a loss compares the samples of a batch with each other, as contrastive losses do.

Such a loss has a product of two matrices in its graph that are computed from the batch both, with a row and a column for each
sample. A classifier's product has a weight for the one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from oomph._types import Tensor

_MOST_NODES = 200
_PRODUCTS = ("MmBackward0", "BmmBackward0", "AddmmBackward0", "MvBackward0")
_SAME = ("TBackward0", "TransposeBackward0", "ToCopyBackward0", "PermuteBackward0")
_MOST_TIMES = 64
"""Columns of a product by its rows: several negatives for each sample are columns too."""


def compares_samples(outputs: Iterable[Tensor], sizes: Iterable[int]) -> bool:
    """Say whether one of the outputs of a backward pass compares the samples of batches that have one of these sizes."""
    waiting = [output.grad_fn for output in outputs if getattr(output, "grad_fn", None) is not None]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if node.name() in _PRODUCTS:
            if any(_is_of_pairs(node, size) for size in sizes):
                return True
        waiting.extend(following for following, _ in node.next_functions if following is not None)
    return False


def _is_of_pairs(node, size):
    metadata = getattr(node, "_input_metadata", None)
    shape = tuple(metadata[0].shape) if metadata else ()
    if len(shape) != 2 or shape[0] not in (size, 2 * size):
        return False
    rows, columns = shape
    if columns % rows or columns > _MOST_TIMES * rows:
        return False
    factors = [factor for factor, _ in node.next_functions][-2:]
    return len(factors) == 2 and not any(_is_weight(factor) for factor in factors)


def _is_weight(node):
    """Whether a factor needs no gradient or is a weight itself."""
    while node is not None and node.name() in _SAME:
        node = node.next_functions[0][0]
    return node is None or node.name().endswith("AccumulateGrad")
