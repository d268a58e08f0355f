"""Tracks which values were never computed, and what that means for the user's program.

Kernels of the virtual GPU do nothing, so the result of an operation on large tensors has no value.  What is then
computed from it is not to be trusted either.  This is kept per block of device memory, by address, and only for blocks
that are small enough to be computed at all; everything in a large block counts as unknown.
"""

from __future__ import annotations

import sys
import threading

from oomph import flags, sites
from oomph.record import SELECTED
from oomph.values import decisions, decoders
from oomph.values.blocks import address_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Tensor
    from oomph.record import Record
    from oomph.values.blocks import Blocks

#: The value is what a real GPU would have computed.
KNOWN = 0
#: The value is plausible (a token id within range, an even routing), and not what a real GPU would have computed.
GUESS = 1
#: Memory that `torch.empty` handed out and that nothing has been seen to write.
BLANK = 2
#: The value stands for the result of an operation that did not run.
UNKNOWN = 3


class Unknowns:
    """Levels of knowledge per block of device memory, by its address."""

    def __init__(self, blocks: Blocks, large: Callable[[Tensor], bool], most: Callable[[Tensor], int]) -> None:
        #: Which blocks there are.
        self.of = blocks
        #: The level of each block that has one, by address.
        self.blocks = blocks.levels
        self._large = large
        self._most = most

    def in_large(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in a block that is too large to be computed, so that nothing is noted of it."""
        size = self.of.bytes_of(tensor)
        if size is None:
            # A view says so, except where autograd takes no part.
            return self._large(tensor._base if tensor._is_view() else tensor)
        return size > self._most(tensor)

    def level(self, tensor: Tensor) -> int:
        """What is known of the values of `tensor`."""
        if not tensor.numel():
            return KNOWN
        if self.in_large(tensor):
            return UNKNOWN
        # Nobody saw a block without a level being filled: it is fresh from `torch.empty`.
        return self.blocks.get(address_of(tensor), BLANK)

    def before(self, tensor: Tensor) -> int:
        """The same for a tensor that is written to, of whose values nothing is read."""
        return Unknowns.level(self, tensor)

    def note(self, tensor: Tensor, level: int) -> None:
        """Records that `tensor`, and with it all of its block, has got its values."""
        if self.of.waiting.value:
            self.of.settle()
        self.blocks[address_of(tensor)] = level

    def change(self, tensor: Tensor, level: int) -> None:
        """Records that what `tensor` shows of its block has been written to."""
        if not self.in_large(tensor):
            self.blocks[address_of(tensor)] = level

    def covers(self, tensor: Tensor) -> bool:
        """Whether `tensor` shows the whole of its block."""
        size = self.of.bytes_of(tensor)
        if size is None:
            return not tensor._is_view() or tensor.numel() >= tensor._base.numel()
        return tensor.numel() * tensor.element_size() >= size

    def forget(self) -> None:
        """Drops everything, as after a fork."""
        self.of.forget()


def user_line() -> str | None:
    """The innermost line of the user's own code as `file:line`, or None (as in a backward thread)."""
    site = sites.site_of_frame(sys._getframe(1))
    return None if site is None else sites.shown(site["file"], site["line"])


def _hands_on(file):
    """Whether code only hands on what it is asked for: our own, and the methods of torch's tensors."""
    return sites.is_own_file(file) or file.endswith(("/torch/_tensor.py", "/torch/_ops.py", "/torch/functional.py"))


class Warner:
    """Says each thing once per line of the user's program."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._said: set[tuple[str, str]] = set()
        self._hushed = threading.local()
        #: The places in code objects whose reading of numbers was looked at.
        self._read_at: set[Any] = set()
        #: How often a decoder loop read something of tokens that were guessed.
        self.guessed_tokens = 0

    def hush(self, by: int) -> None:
        """Says nothing of what this thread does until called again with the opposite number."""
        self._hushed.depth = getattr(self._hushed, "depth", 0) + by

    def selected(self, taken: str) -> None:
        """The size of a result depends on something unknown; `taken` says what was taken for it."""
        self._say(SELECTED, taken)

    def unknown_size(self, operation: str, most: int, taken: int, words: str) -> None:
        """A result could have any size up to `most` elements; `taken` of them are, which `words` say."""
        self.selected(words)
        if getattr(self._hushed, "depth", 0):
            return
        try:
            self._record.note_unknown_size(operation, sites.site_of_frame(sys._getframe(1)), most, taken)
        except Exception:
            # A broken report must not end the user's program.
            pass

    def branched(self) -> None:
        """The host read a number or a flag that is unknown."""
        if decoders.runs():
            # Guessed tokens stay clear of both ends of a vocabulary.
            self.guessed_tokens += 1
            self._say("tokens are drawn that were never computed, none of them an end of text",
                      "the generation runs to its limit, which takes the most, unless another line says that it did not")
        else:
            self._say("the program reads a number or a flag that was never computed",
                      "it reads as 0 or as no, and the peak may differ")

    def ended_early(self, tokens: int, limit: int) -> None:
        """A decoder loop ended before its limit, after it read what was never computed."""
        self._say("the generation ended after %d of at most %d tokens, by values that were never computed" % (tokens, limit),
                  "it may run to its limit on a card and need more")

    def drafted_less(self) -> None:
        """A decoder loop within another one ended before its limit."""
        self._say("fewer tokens are drafted at a time than the program allows, by values that were never computed",
                  "a batch of them may be larger on a card")

    def flag(self, level: int = UNKNOWN) -> bool | None:
        """What the flag reads as that the host reads now, where a healthy run needs it so, or a loop to go on; else None.

        `level` is what is known of it. A guess is made so that loops go on, and is no reason to answer otherwise.
        """
        frame = flags.reader(_hands_on)
        self._note_read(frame)
        healthy = flags.healthy(frame)
        if healthy is None and level > GUESS and not decoders.runs():
            healthy = flags.going_on(frame)
        return healthy

    def _note_read(self, frame):
        try:
            self._record.note_read(frame)
        except Exception:
            # A broken report must not end the user's program.
            pass

    def read(self) -> None:
        """The host read a number of a type that losses have. Most are only printed."""
        if getattr(self._hushed, "depth", 0):
            return
        frame = flags.reader(sites.is_own_file)
        place = frame and (frame.f_code, frame.f_lasti)
        self._note_read(frame)
        if not place or place in self._read_at:
            return
        self._read_at.add(place)
        asked = decisions.asked_at(frame)
        if asked is not None:
            self._say("whether the program continues depends on a number that was never computed and reads as 0",
                      "it may go on longer than here", sites.shown(*asked))

    def routed(self, routing: str) -> None:
        """A few of each row's columns were chosen, as experts are for tokens, by values that were not computed.

        Nothing separates a router's choice from the best labels of a sample, so the sentence is true of both.
        """
        what = "each row's few best of the columns (which expert gets which token, or the best labels) were never computed; "
        if routing == "worst":
            self._say(what + "the same few get all of them", "where sizes follow from it, this is the most")
        else:
            self._say(what + "each gets as many", "--routing worst shows the most where sizes follow from it")

    def fault(self, sentence: str) -> None:
        """Something counts as computed that was not, which a test looks for."""
        self._record.warn("a test's pattern was read: " + sentence)

    def _say(self, what, so, where=None):
        if getattr(self._hushed, "depth", 0):
            return
        key = (where or user_line() or "in backward", what)
        if key in self._said:
            return
        self._said.add(key)
        try:
            self._record.warn("%s: %s; %s" % (*key, so))
        except Exception:
            # A broken report must not end the user's program.
            pass
