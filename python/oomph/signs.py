"""Signs that a run will die of GPU memory: the allocator gives its cache back again and again, what is held grows, or a batch
that is larger than all before is still to come.

Figures are taken at the ends of optimizer steps, where a program that does not leak holds the same as a step before. A forecast
is made only where the growth is steady; what fluctuates gets no date.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS = 24
"""Growth is judged over this many steps: a loader's or a cache's warming up is over by then."""

_LEAST = 1 << 20
"""Growth below this many bytes a step is not reported: a scalar's 512 bytes a step fill no card within a run."""

_STEADY = 0.25
"""The two halves of those steps may differ in their growth by this part of it."""

_LEAST_OF_GROWTH = 0.5
"""What a step needs grows at least by this part of what is held, or it is not the leak that it shows."""

_SETTLED = 3
"""Steps before this one say nothing of a batch's price: the optimizer's state is not there, libraries are loaded."""

_WIDER = 1.1
"""Two batches tell what a token takes if one is larger by this factor."""

_DOMINANT = 3
"""One batch shows what a token takes if what comes and goes in a step is so many times the gradients: then it is not what an
optimizer takes for a moment. The gradients themselves are held where a step ends."""


class Signs:
    """What is noticed of one card, step by step."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._needed: list[int] = []
        self._batches: list[tuple[int, int]] = []
        """The tokens of the largest batch so far and the peak with it, whenever there was a larger one."""
        self._retries: int | None = None
        self._retried = 0
        self._told: set[str] = set()

    def stepped(
        self,
        step: int,
        held: int,
        peak: int,
        retries: int,
        room: Callable[[], int],
        tokens: tuple[int, int] | None = None,
        gradients: int | None = None,
        lost: tuple[int, int] | None = None,
    ) -> list[str]:
        """A step has ended: give the sentences to tell now.

        `held` and `peak` are what is allocated now and was at most, in bytes, `retries` is how often the allocator has given
        its cache back so far, and `room()` says how many bytes can still be allocated. `tokens` are those of the largest
        batch so far and of the largest that may still come (`oomph.ahead`), `gradients` what all gradients take, in bytes.
        `lost` is the cache, in bytes, and how much of it lies in pieces between live tensors.
        """
        warnings = []
        retried = self._retries is not None and retries > self._retries
        self._retries = retries
        self._retried = self._retried + 1 if retried else 0
        if self._retried == 2 and self._once("retries"):
            warnings.append(
                "PyTorch gave its cache back to get memory in two steps in a row (to step %d): the card is nearly full"
                % step
            )
        self._held.append(held)
        del self._held[: -_STEPS - 1]
        # A piece that no step has filled so far is lost to a leak, whose sizes are the same in each step.
        self._needed.append(peak if lost is None else min(held + lost[0], peak + lost[1]))
        del self._needed[: -_STEPS - 1]
        growth = self._growth()
        if growth is not None and self._once("growth"):
            left = self._left(growth, held, peak, held + room())
            warnings.append(
                "%s more are held after each step: the card is full in about %d steps (step %d)"
                % (size(growth), left, step + left)
            )
        if tokens is not None and step >= _SETTLED:
            needed, most = self._largest(held, peak, gradients, *tokens), held + room()
            if needed is not None and needed > most and self._once("batch"):
                warnings.append(
                    "batches of up to %d tokens are still to come, the largest so far had %d: one takes about %s, and PyTorch "
                    "can have %s" % (tokens[1], tokens[0], size(needed), size(most))
                )
        return warnings

    def _left(self, growth, held, peak, most):
        """The steps until what a step needs is more than PyTorch can have."""
        filling = (self._needed[-1] - self._needed[0]) / _STEPS
        if filling >= _LEAST_OF_GROWTH * growth:
            return max(0, int((most - self._needed[-1]) // filling))
        # An early peak hides it: a step needs what it took at most beyond what was held at its end.
        return max(0, int((most - held - max(0, peak - held)) // growth))

    def _largest(self, held, peak, gradients, seen, coming):
        """The peak of the largest batch to come: what a token takes, times its tokens. None where that is not known."""
        if not self._batches or seen > self._batches[-1][0]:
            self._batches.append((seen, peak))
        (least, low), (most, high) = self._batches[0], self._batches[-1]
        if most >= _WIDER * least:
            each = (high - low) / (most - least)
        elif gradients is not None and peak - held > _DOMINANT * gradients:
            each = (peak - held) / seen
        else:
            return None
        return int(peak + each * (coming - seen)) if each > 0 else None

    def _once(self, what):
        new = what not in self._told
        self._told.add(what)
        return new

    def _growth(self):
        """Bytes a step, where they grow steadily; else None."""
        if len(self._held) <= _STEPS:
            return None
        half = _STEPS // 2
        first = (self._held[half] - self._held[0]) / half
        second = (self._held[-1] - self._held[half]) / (_STEPS - half)
        growth = (self._held[-1] - self._held[0]) / _STEPS
        if growth < _LEAST or abs(first - second) > _STEADY * growth:
            return None
        falls = sum(1 for before, after in zip(self._held, self._held[1:]) if after < before)
        # A cache that is emptied now and then is neither a leak nor steady.
        return growth if falls == 0 else None


def size(count: float) -> str:
    """Bytes for a sentence."""
    return "%.2f GiB" % (count / 2.0**30) if count >= 1 << 30 else "%.2f MiB" % (count / 2.0**20)
