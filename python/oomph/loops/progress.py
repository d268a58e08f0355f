"""Judges the iterations of one loop: whether its memory has settled, or grows, and by how much.

This module imports nothing of torch. Memory comes in as plain numbers, so the rules can be tested without a GPU.
"""

from __future__ import annotations

UNKNOWN, FLAT, GROWING = "unknown", "flat", "growing"

_KEPT = 48
"""Readings that are kept; a trend needs no more."""
_NOISE = 1024
"""Differences between iterations below this many bytes count as equal: counters and scalars of a step."""
_SPREAD = 0.02
"""Growth counts as constant when it varies by no more than this part of it."""
_LONG = 12
"""Readings after which a loop whose memory goes up and down is judged by its trend."""


class Progress:
    """The iterations of one loop, as far as they count.

    `skip` leading readings are left out of the trend: the first iterations make optimizer states and buffers.
    """

    def __init__(self, skip: int) -> None:
        self.iterations = 0
        self.readings = 0
        self._skip = skip
        self._held: list[int] = []
        self._at: list[int] = []
        """The iterations that the readings in `_held` were taken after: a loop that accumulates has several to a reading."""
        self._epochs: list[int] = []
        self._peak: int | None = None
        self.unmoved = 0
        """Readings that have left the peak of reserved memory where it was."""

    def read(self, held: int, peak: int) -> None:
        """An iteration that counts has ended with `held` bytes allocated; `peak` is the reserved peak so far."""
        self.readings += 1
        if peak == self._peak:
            self.unmoved += 1
        else:
            self._peak, self.unmoved = peak, 0
        self._epochs = (self._epochs + [held])[-4:]
        if self.readings > self._skip:
            self._held.append(held)
            self._at.append(self.iterations)
            del self._held[:-_KEPT], self._at[:-_KEPT]

    def begin_again(self) -> None:
        """What was seen so far was of another kind."""
        self.readings = 0
        self._peak = None
        self.jumped()

    def jumped(self) -> None:
        """What follows may differ from what was seen: begin the judgement again."""
        self.unmoved = 0
        self._held.clear()
        self._at.clear()
        self._epochs.clear()

    def trend(self) -> tuple[str, float]:
        """(UNKNOWN, 0), (FLAT, 0) or (GROWING, bytes per iteration)."""
        trend, rate = self._trend_of_readings()
        return trend, rate and rate / self.iterations_of_reading()

    def iterations_of_reading(self) -> float:
        """Iterations from one reading to the next, at the last three."""
        at = self._at[-4:]
        return max(1.0, (at[-1] - at[0]) / (len(at) - 1)) if len(at) > 1 else 1.0

    def _trend_of_readings(self):
        held = self._held
        if len(held) < 3:
            return UNKNOWN, 0
        steps = [after - before for before, after in zip(held, held[1:])]
        last = steps[-3:]
        if all(abs(step) <= _NOISE for step in steps[-2:]) and abs(sum(last)) <= 2 * _NOISE:
            small = sum(last) / len(last)
            # A scalar a step, 512 bytes in PyTorch's allocator, still adds up over a long run.
            return (GROWING, small) if len(last) == 3 and min(last) > 0 else (FLAT, 0)
        if len(last) == 3 and min(last) > 0 and max(last) - min(last) <= max(_NOISE, _SPREAD * sum(last) / 3):
            return GROWING, sum(last) / 3
        if len(held) >= _LONG:
            third = len(held) // 3
            early, late = held[:third], held[-third:]
            if min(late) > max(early):
                return GROWING, (_median(late) - _median(early)) / float(len(held) - third)
            return FLAT, 0
        return UNKNOWN, 0

    def trend_of_epochs(self) -> tuple[str, float]:
        """As `trend`, of whole epochs: nothing is left out, and two that are alike are enough."""
        held = self._epochs
        steps = [after - before for before, after in zip(held, held[1:])]
        if not steps:
            return UNKNOWN, 0
        if steps[-1] <= _NOISE:
            return FLAT, 0
        if len(steps) >= 2 and min(steps[-2:]) > _NOISE:
            return GROWING, sum(steps[-2:]) / 2
        return (UNKNOWN, 0) if len(steps) < 3 else (FLAT, 0)


def _median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def fills_after(rate: float, headroom: float) -> int | None:
    """In how many more iterations a card with `headroom` bytes left is full; None when it never is."""
    return None if rate <= 0 else max(0, int(headroom // rate))
