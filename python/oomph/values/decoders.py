"""Decoder loops: lets the loops of transformers run to their limit, and says so where one did not.

The scores of tokens are large and never computed. Tokens are guessed that end no text, which carries greedy search and
sampling to their limit. A beam search also compares the scores of its beams, and ends where it finds nothing to gain. The
loops' own small arithmetic is therefore computed with zeros for the scores, as if all tokens were equally likely: what
has ended and what has not then follows as on a card, up to the limit of the length.
"""

from __future__ import annotations

import functools
import sys

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


def best(torch: Torch, scores: Tensor, count: int, largest: bool = True) -> Tensor:
    """Positions of the `count` best of the last dimension, for scores of which many are equal.

    Among equal ones those in the middle come first: tokens at both ends of a vocabulary end texts or pad them.
    """
    order = scores.sort(dim=-1, descending=largest, stable=True)
    rows, places = order.values.reshape(-1, scores.size(-1)), order.indices.reshape(-1, scores.size(-1))
    made = []
    for row, place in zip(rows, places):
        equal = int((row == row[0]).sum())
        start = equal // 3 if equal > count else 0
        turned = torch.cat((place[start:equal], place[:start], place[equal:]))
        made.append(turned[:count])
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
        before = warn.guessed_tokens
        out = original(self, *args, **kwargs)
        try:
            _compare(out, args, kwargs, warn, before)
        except Exception:
            # What a loop takes and gives differs by version; a word that cannot be said must not end the program.
            pass
        return out

    return loop


def _compare(out, args, kwargs, warn, before):
    config = kwargs.get("generation_config")
    for one in args if config is None else ():
        if hasattr(one, "max_length") and hasattr(one, "num_beams"):
            config = one
    limit = getattr(config, "max_length", None)
    sequences = getattr(out, "sequences", out)
    if isinstance(limit, int) and warn.guessed_tokens > before and sequences.shape[-1] < limit:
        warn.ended_early(int(sequences.shape[-1]), limit)
