"""Decoder loops: lets the loops of transformers run to their limit, and says so where one did not.

The scores of tokens are large and never computed. Tokens are guessed that end no text, which carries greedy search and
sampling to their limit: a loop says by its configuration which do. A beam search also compares the scores of its beams, and
ends where it finds nothing to gain. The loops' own small arithmetic is therefore computed with zeros for the scores, as if all
tokens were equally likely: what has ended and what has not then follows as on a card, up to the limit of the length.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading

from oomph import sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from oomph._types import Tensor, Torch
    from oomph.values.unknown import Warner

_MODULE = "transformers.generation.utils"
_FILES = "/transformers/generation/"
#: The loops of transformers, by version: each gives the sequences, or an object that holds them.
_LOOPS = ("_sample", "_beam_search", "_assisted_decoding", "_greedy_search", "_group_beam_search",
          "_constrained_beam_search", "_contrastive_search")
#: The files through which an operation of a loop comes: the methods and functions of torch.
_THROUGH = ("/torch/_tensor.py", "/torch/functional.py", "/torch/nn/functional.py", "/torch/_ops.py")
#: So many frames lie between a kernel and the line that called it at most.
_FRAMES = 8


def asks() -> bool:
    """Whether the operation that is under way is one of a decoder loop's own, not one of its model's."""
    if _MODULE not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return False
        name = frame.f_code.co_filename
        if _FILES in name:
            return True
        if not (sites.is_own_file(name) or name.endswith(_THROUGH)):
            return False
        frame = frame.f_back
    return False


def runs() -> bool:
    """Whether a decoder loop is anywhere around what is under way."""
    if _MODULE not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _FILES in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


class _Around(threading.local):
    """The decoder loops that are under way in a thread."""

    def __init__(self) -> None:
        self.loops: list[tuple[frozenset[int], int]] = []
        """Of each the tokens that end a text, and how many beams share a row of scores."""


_around = _Around()


def compares() -> bool:
    """Whether the loop that is under way compares the scores of beams that share a row, some of which do not count yet."""
    return bool(_around.loops) and _around.loops[-1][1] > 1


def _ends(size):
    """The tokens that end a text in the loop that is under way, and the length of its vocabulary; nothing for a row of scores
    that are not of tokens.

    The beams of a text share a row: position 7 is token 7 of the first, and so is the vocabulary's length more of the second.
    """
    if not _around.loops:
        return frozenset(), size
    tokens, beams = _around.loops[-1]
    length = size if size % beams else size // beams
    return (tokens, length) if tokens and max(tokens) < length else (frozenset(), size)


def places(size: int, start: int, count: int) -> list[int] | None:
    """`count` positions among `size` scores of tokens, from `start` on, none of which ends a text; None where any will do."""
    tokens, length = _ends(size)
    if not tokens or len(tokens) >= length:
        return None
    every = itertools.chain(range(start, size), itertools.cycle(range(size)))
    return list(itertools.islice((place for place in every if place % length not in tokens), count))


def best(torch: Torch, scores: Tensor, count: int, largest: bool = True) -> Tensor:
    """Positions of the `count` best of the last dimension, for scores of which many are equal.

    Among equal ones those in the middle come first, because tokens at both ends of a vocabulary end texts or pad them, and
    those of which the loop says that they end a text come last.
    """
    size = scores.size(-1)
    tokens, length = _ends(size)
    made = []
    for row in scores.reshape(-1, size):
        order = (row == (row.max() if largest else row.min())).nonzero().view(-1)
        equal = order.numel()
        if equal < count:
            order = row.sort(descending=largest, stable=True).indices
        start = equal // 3 if equal > count else 0
        first = torch.cat((order[start:equal], order[:start]))
        if tokens:
            ends = torch.isin(first % length, torch.tensor(sorted(tokens), device="cpu"))
            first = torch.cat((first[~ends], first[ends]))
        made.append(torch.cat((first, order[equal:]))[:count])
    return torch.stack(made).view(scores.size()[:-1] + (count,))


def watch(module: Any, warn: Warner) -> None:
    """Has the loops of transformers say where they ended before their limit by what was never computed."""
    for name in _LOOPS:
        original = getattr(module.GenerationMixin, name, None)
        if original is not None:
            setattr(module.GenerationMixin, name, _watched(original, warn))


def _watched(original, warn):
    @functools.wraps(original)
    def loop(self, *args, **kwargs):
        config = _config(args, kwargs)
        before = warn.guessed_tokens
        _around.loops.append(_described(config, kwargs))
        try:
            out = original(self, *args, **kwargs)
        finally:
            _around.loops.pop()
        try:
            _compare(out, config, warn, before)
        except Exception:
            # What a loop takes and gives differs by version; a word that cannot be said must not end the program.
            pass
        return out

    return loop


def _config(args, kwargs):
    config = kwargs.get("generation_config")
    for one in args if config is None else ():
        if hasattr(one, "max_length") and hasattr(one, "num_beams"):
            config = one
    return config


def _described(config, kwargs):
    """The tokens that end a text in a loop, and its beams that share a row of scores."""
    ends = kwargs.get("eos_token_id")
    if ends is None:
        ends = getattr(config, "eos_token_id", None)
    ends = ends if isinstance(ends, (list, tuple)) else (ends,)
    beams, groups = getattr(config, "num_beams", 1), getattr(config, "num_beam_groups", 1)
    beams = beams if isinstance(beams, int) else 1
    groups = groups if isinstance(groups, int) else 1
    return frozenset(one for one in ends if type(one) is int), max(1, beams // max(1, groups))


def _compare(out, config, warn, before):
    limit = getattr(config, "max_length", None)
    sequences = getattr(out, "sequences", out)
    if isinstance(limit, int) and warn.guessed_tokens > before and sequences.shape[-1] < limit:
        if _around.loops:
            # A small model that drafts for a large one does so anew for every few tokens.
            warn.drafted_less()
        else:
            warn.ended_early(int(sequences.shape[-1]), limit)
