"""Random numbers of a comparison: they hang on the state of the program's generator, and on nothing else.

What is recomputed with the same state, as checkpointing does it, sees the same numbers. A "still" run gives each sample of a
batch the same numbers, however the batch is cut, which shows whether the numbers alone are different.
"""

from __future__ import annotations

import zlib

from oomph import forked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._protocol import Compare
    from oomph._types import Torch
    from oomph.values.operations import Operation

_draws: Draws | None = None


def begin(torch: Torch, wanted: Compare) -> None:
    """Seeds all generators as a program may that leaves it to chance, and gives numbers from here on."""
    import random

    from oomph import hook

    global _draws
    torch.manual_seed(wanted["seed"])
    random.seed(wanted["seed"])
    hook.on_import("numpy", lambda numpy: numpy.random.seed(wanted["seed"]))
    _draws = Draws(torch, wanted["still"])


def current() -> Draws | None:
    """What gives numbers in this process; None outside a comparison."""
    return _draws


class Draws:
    """Gives the operations that draw their numbers."""

    def __init__(self, torch: Torch, still: bool) -> None:
        self._torch = torch
        self._still = still
        #: Whether the training has begun: what draws before makes the weights.
        self.trains = False
        #: How often the training drew.
        self.count = 0

    def draw(self, operation: Operation, args: list[Any], kwargs: dict[str, Any], call: Callable[..., Any], asked: Any) -> Any:
        """Calls an operator of the processor that draws, with numbers that follow the card's generator."""
        torch = self._torch
        still = self._still and self.trains
        self.count += self.trains
        if still and operation.base == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        seed = zlib.crc32(operation.base.encode()) if still else self._position(asked)
        default = torch.default_generator
        state = default.get_state()
        try:
            default.manual_seed(seed)
            if operation.has_generator:
                kwargs = {**kwargs, "generator": None}
                args = [None if isinstance(one, torch.Generator) else one for one in args]
            result = call(*args, **kwargs)
        finally:
            default.set_state(state)
        if still:
            self._share(result)
        return result

    def _position(self, asked: Any) -> int:
        """A number for where the generator is."""
        torch = self._torch
        if not isinstance(asked, torch.Generator):
            if forked.is_away():
                return self.count
            asked = torch.cuda.default_generators[torch.cuda.current_device()]
        return zlib.crc32(bytes(asked.get_state().tolist()))

    def _share(self, result: Any) -> None:
        """Gives all samples what the first has."""
        if isinstance(result, self._torch.Tensor):
            if result.dim() and len(result) > 1:
                result[1:] = result[:1].clone()
        elif isinstance(result, (list, tuple)):
            for one in result:
                self._share(one)


