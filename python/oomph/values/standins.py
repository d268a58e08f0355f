"""Fills small results that were not computed: zeros, and positions within range."""

from __future__ import annotations

from oomph.values import decoders
from oomph.values.operations import POSITIONS
from oomph.values.unknown import BLANK, GUESS, KNOWN, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oomph._types import Tensor
    from oomph.values.kernels import Kernels
    from oomph.values.operations import Operation

#: A vocabulary is at least this large, and no choice among experts.
_VOCABULARY = 1024

#: So many tensors of flags are remembered.
_FLAGS = 16


class Standins:
    """Fills results and notes what is known of them."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._memory = kernels.memory
        self._unknowns = kernels.unknowns
        #: Flags that say of a large tensor whether it is finite and were too many to be written, by address: how many,
        #: and what all of them are.  A program asks `all` or `any` of them next, and a question drops them: something
        #: else may come to lie there.  Not by identity, for PyTorch 2.1 makes new objects for each call of a kernel.
        self._flags: dict[int, tuple[int, bool]] = {}

    def fill(self, tensor: Tensor, level: int) -> None:
        """Zeros in a new tensor, marked as not computed."""
        self._memory.zero(tensor)
        self._unknowns.note(tensor, level)

    def zero(self, operation: Operation, out: Tensor) -> None:
        """Zeros that are meant."""
        if self._kernels.large(out):
            return
        self._memory.zero(out)
        if not operation.mutated:
            self._unknowns.note(out, KNOWN)
        elif self._unknowns.covers(out) or self._unknowns.level(out) == BLANK:
            # Factories are not seen themselves (torch sends them past every other kernel); their filling is.
            self._unknowns.change(out, KNOWN)

    def leave(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[Tensor]
    ) -> None:
        """Sets the small results of an operation that is not computed to something harmless."""
        kernels = self._kernels
        written = list(operation.mutates(args, kwargs)) if operation.mutated else ()
        for out in outs:
            if not kernels.large(out) and not any(out is one for one in written):
                self.fill(out, UNKNOWN)
        if operation.base == "all" and outs and not written:
            self.nothing_found(outs)
        elif operation.base in POSITIONS:
            self.positions(operation, args, kwargs, outs)
        elif operation.status and outs and not kernels.large(outs[-1]):
            # A run is healthy until it is shown not to be.
            self._unknowns.note(outs[-1], KNOWN)
        if written and not operation.base.startswith("_foreach"):
            for tensor in written:
                if isinstance(tensor, kernels.torch.Tensor) and kernels.on_device(tensor) and not kernels.large(tensor):
                    if operation.out:
                        self._memory.zero(tensor)
                    self._unknowns.change(tensor, UNKNOWN)

    def nothing_found(self, outs: Sequence[Tensor]) -> None:
        """Of "any" and "all" over something unknown, neither finds the exception: "all" holds."""
        for out in outs:
            if not self._kernels.large(out):
                self._memory.alias(out).fill_(1)

    def finite(self, operation: Operation, args: tuple[Any, ...], outs: Sequence[Tensor]) -> None:
        """What `isnan`, `isinf` and what they are made of say of something large: a run is healthy."""
        if operation.base in ("isnan", "isinf"):
            flag = False
        elif isinstance(args[1], float):
            flag = operation.base == "ne"
        else:
            flag = operation.base == "eq"
        for out in outs:
            if self._kernels.large(out):
                while len(self._flags) >= _FLAGS:
                    self._flags.pop(next(iter(self._flags)))
                self._flags[out.data_ptr()] = (out.numel(), flag)
            else:
                self._memory.alias(out).fill_(flag)
                self._unknowns.note(out, KNOWN)

    def of_finite(self, args: tuple[Any, ...], outs: Sequence[Tensor]) -> bool:
        """Gives "all" or "any" of such flags its value; False where these are not the flags."""
        flags = args[0] if args else None
        if not self._flags or not isinstance(flags, self._kernels.torch.Tensor) or not self._kernels.large(flags):
            return False
        count, flag = self._flags.pop(flags.data_ptr(), (0, False))
        if count != flags.numel() or flags.dtype != self._kernels.torch.bool:
            return False
        for out in outs:
            if not self._kernels.large(out):
                self._memory.alias(out).fill_(flag)
                self._unknowns.note(out, KNOWN)
        return True

    def chosen(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[Tensor]
    ) -> None:
        """The best of a decoder loop's scores, which were computed from zeros (see `decoders`)."""
        torch, source = self._kernels.torch, args[0]
        values, places = outs[0], outs[POSITIONS[operation.base]]
        named = dict(zip(operation.arguments, args))
        named.update(kwargs)
        if named.get("dim", -1) in (-1, source.dim() - 1) and source.dim() and places.numel():
            scores = self._memory.alias(source)
            found = decoders.best(torch, scores, places.size(-1), named.get("largest", True))
            self._memory.alias(places).copy_(found)
            self._memory.alias(values).copy_(scores.gather(-1, found))
        self._unknowns.change(places, GUESS)

    def drawn(self, operation: Operation, source: Tensor, out: Tensor) -> None:
        """Positions that `multinomial` draws from something unknown.

        The small probabilities of a search with beams were computed from zeros: beams that do not count yet have none.
        """
        if decoders.compares() and decoders.asks() and not self._kernels.large(source):
            found = decoders.best(self._kernels.torch, self._memory.alias(source), out.size(-1))
            self._memory.alias(out).copy_(found)
            self._unknowns.change(out, GUESS)
        else:
            self.positions(operation, (source,), {}, (out,))

    def positions(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[Tensor]
    ) -> None:
        """Positions in something unknown: within range, different within a row, even over the rows.

        Those of tokens stay clear of both ends of a vocabulary, where padding and end-of-text are: a generation runs to the
        length that the program allows, which is the most memory it can need.
        """
        which = POSITIONS[operation.base]
        if which >= len(outs) or not args:
            return
        out = outs[which]
        if self._kernels.large(out) or out.dtype in self._kernels.floats:
            return
        source = args[0]
        named = operation.arguments
        dim = kwargs.get("dim")
        if dim is None and "dim" in named and named.index("dim") < len(args):
            dim = args[named.index("dim")]
        if dim is None:
            dim = None if operation.base in ("argmax", "argmin") else -1
        if source.dim() == 0:
            return
        size = source.numel() if dim is None else source.size(dim)
        if not size or not out.numel():
            return
        torch = self._kernels.torch
        # Experts are chosen several at a time, and are all alike.
        routes = operation.base == "topk" and size < _VOCABULARY and out.numel() > out.size(-1) > 1
        start = 0 if routes else size // 3
        clear = decoders.places(size, start, out.numel()) if decoders.asks() else None
        if clear is not None:
            self._memory.alias(out).copy_(torch.tensor(clear, device="cpu").view(out.size()))
            self._unknowns.change(out, GUESS)
            return
        steps = torch.arange(out.numel(), dtype=torch.int64, device="cpu")
        if dim is None or out.dim() == 0 or operation.base not in ("topk", "multinomial"):
            values = (steps + start) % size
            self._memory.alias(out).copy_(values.view(out.size()))
        else:
            last = dim % out.dim()
            count = out.size(last)
            shape = [out.size(index) for index in range(out.dim()) if index != last] + [count]
            if operation.base == "topk" and size < _VOCABULARY and out.numel() > count:
                kernels = self._kernels
                kernels.warn.routed(kernels.routing)
                if kernels.routing == "worst":
                    steps = steps % count
            values = ((steps + start) % size).view(shape)
            self._memory.alias(out).copy_(values.movedim(-1, last))
        self._unknowns.change(out, GUESS)
