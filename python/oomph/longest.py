"""Says which samples of a dataset may make the largest batch, by the lengths of their parts.

What a batch takes is decided by its collate function: a preference's prompt is put before each of its two answers and all
are padded to the longest; a pair of texts is padded each for itself. So the samples are not those of the largest sum
alone. Whoever asks puts the candidates together as the program does, and takes the largest.
"""

from __future__ import annotations

import heapq
import itertools
import random
import types

from oomph.looking import attribute, is_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oomph._types import Torch

_MOST_LEAVES = 256
_MOST_PARTS = 3
"""Parts of a sample that are looked at in all their sums."""


def candidates(parts: Mapping[str, Sequence[int]], indices: Sequence[int], count: int) -> list[list[int]]:
    """Lists of `count` of the `indices`, the likeliest first; none where all samples are of one size.

    `parts` has the lengths of each part, in the order of `indices`. The candidates are the longest of all parts together, of
    each sum of some of them, and of each part in turn.
    """
    varying: list[Sequence[int]] = []
    for lengths in parts.values():
        # Marks of tokens are as long as these.
        if lengths and min(lengths) != max(lengths) and not any(lengths == other for other in varying):
            varying.append(lengths)
    if not varying:
        return []
    made = [_longest(varying, indices, count)]
    if len(varying) == 1:
        return made
    varying = heapq.nlargest(_MOST_PARTS, varying, key=max)
    singles = [_longest([one], indices, count) for one in varying]
    in_turn = [index for same_rank in zip(*singles) for index in same_rank]
    made.append(list(dict.fromkeys(in_turn))[:count])
    for number in range(len(varying) - 1, 1, -1):
        made.extend(_longest(some, indices, count) for some in itertools.combinations(varying, number))
    made.extend(singles)
    return [one for place, one in enumerate(made) if one not in made[:place]]


def candidates_by_part(parts: Mapping[str, Sequence[int]], indices: Sequence[int], count: int) -> list[list[int]]:
    """Lists of the `count` of the `indices` that are largest in one part each, those of the largest parts last.

    What is largest of all is often a number that counts samples, and no length.
    """
    varying = [lengths for lengths in parts.values() if min(lengths) != max(lengths)]
    made: list[list[int]] = []
    for lengths in sorted(varying, key=max):
        chosen = [index for _, index in heapq.nlargest(count, zip(lengths, indices))]
        if chosen not in made:
            made.append(chosen)
    return made


def largest_drawn(parts: Mapping[str, Sequence[int]], indices: Sequence[int], count: int, batches: int) -> list[int]:
    """The largest of so many batches of `count` samples each, drawn by chance, by the sum of their lengths.

    Where samples are joined and not padded, it takes all of the longest together to make the largest batch, and these do not
    meet. The numbers are drawn apart from the program's.
    """
    totals = [sum(lengths) for lengths in zip(*parts.values())]
    numbers = random.Random(0)
    places, count = range(len(totals)), min(count, len(totals))
    drawn = (numbers.sample(places, count) for _ in range(max(1, batches)))
    return [indices[place] for place in max(drawn, key=lambda some: sum(totals[place] for place in some))]


def _longest(parts, indices, count):
    found = list(zip(map(sum, zip(*parts)), indices))
    chosen = heapq.nlargest(count, found)
    length = chosen[0][0]
    if count > 1 and chosen[-1][0] == length:
        # Samples that are all of one length need no padding, and a model may do without the mask, and with less memory, than
        # the batches take that have any.
        shorter = [one for one in found if one[0] < length]
        chosen[-1:] = [max(shorter)] if shorter else chosen[-1:]
    return [index for _, index in chosen]


def columns(dataset: object) -> dict[str, list[int]] | None:
    """The lengths of the samples of a `datasets.Dataset`, by column, from its columns alone; None for any other dataset."""
    names = getattr(dataset, "column_names", None)
    if not names or not hasattr(dataset, "with_format"):
        return None
    import pyarrow
    import pyarrow.compute

    table = dataset.with_format("arrow")[:]
    if "length" in names:
        return {"length": table.column("length").to_pylist()}
    found = {}
    for name in names:
        column = table.column(name)
        kind = column.type
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            lengths = pyarrow.compute.list_value_length(column)
        elif pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
            lengths = pyarrow.compute.binary_length(column)
        else:
            continue
        found[name] = pyarrow.compute.fill_null(lengths, 0).to_pylist()
    return found or None


def extents(torch: Torch, sample: object) -> dict[str, int]:
    """How large the parts of a sample are: the values of a mapping, the members of a tuple or list, or all of it."""
    if is_mapping(sample):
        return {str(name): extent(torch, part) for name, part in sample.items()}
    if isinstance(sample, (tuple, list)) and not (sample and isinstance(sample[0], (int, float))):
        return {str(place): extent(torch, part) for place, part in enumerate(sample[:_MOST_LEAVES])}
    return {"": extent(torch, sample)}


def extent(torch: Torch, sample: object) -> int:
    """How large a sample is: the elements of its tensors, arrays, sequences and texts together."""
    total = 0
    for leaf in leaves(torch, sample, opened=True):
        if isinstance(leaf, str):
            total += len(leaf)
        elif isinstance(leaf, (list, tuple)):
            total += len(leaf)
        elif isinstance(leaf, torch.Tensor):
            total += leaf.numel()
        else:
            size = attribute(leaf, "size", 0)
            if isinstance(size, tuple) and len(size) == 2:
                # An image of PIL's.
                size = size[0] * size[1]
            total += int(size) if isinstance(size, int) else 0
    return total


def leaves(torch: Torch, value: object, opened: bool = False) -> list[object]:
    """What a sample or a batch is made of: tensors, texts, rows of numbers, and anything else that is not a container.

    With `opened`, objects of other classes are containers too (a graph, the instances of an image), by their attributes.
    """
    waiting = [value]
    found: list[object] = []
    seen: set[int] = set()
    while waiting and len(found) < _MOST_LEAVES:
        value = waiting.pop()
        if isinstance(value, torch.Tensor) or isinstance(value, str):
            found.append(value)
        elif is_mapping(value):
            waiting.extend(item for _, item in value.items())
        elif isinstance(value, (list, tuple)):
            if value and isinstance(value[0], (int, float)):
                found.append(value)
            else:
                waiting.extend(value[:_MOST_LEAVES])
        elif value is not None and not isinstance(value, (int, float, bool, bytes)):
            held = _held(torch, value) if opened and len(seen) < _MOST_LEAVES else None
            if held is None:
                found.append(value)
            elif id(value) not in seen:
                # They may refer to each other.
                seen.add(id(value))
                waiting.extend(held)
    return found


def _held(torch, value):
    """The attributes of an object; None where it has none, or says itself how large it is."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, torch.nn.Module)):
        return None
    if isinstance(attribute(value, "size"), (int, tuple)):
        return None
    held = attribute(value, "__dict__")
    return list(held.values()) if isinstance(held, dict) else None


def spread(indices: Sequence[int]) -> Iterator[int]:
    """The indices in an order in which any first part of them is spread over all."""
    count = len(indices)
    step = max(1, int(count * 0.618))
    while _common_divisor(step, count) != 1:
        step += 1
    for number in range(count):
        yield indices[number * step % count]


def _common_divisor(a, b):
    while b:
        a, b = b, a % b
    return a
