"""Decides when a training run has shown its peak, by counting optimizer steps.

This module knows nothing of torch; the memory comes in as plain numbers, so the rule can be tested without a GPU.
"""

from __future__ import annotations

import threading
import weakref

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from oomph._protocol import Stopped


class StepCounter:
    """Counts iterations from the calls of any number of optimizers.

    A window holds the optimizers that have stepped in the current iteration. When one of them steps again, a new
    iteration has begun. A GAN with two optimizers therefore counts one step per iteration, and five critic updates
    per generator update count five, which is the number of calls of the most-stepped optimizer.

    An optimizer that was made after others had stepped belongs to another training, such as the next fold of a
    cross-validation, so that its first step begins an iteration.

    Each thread has iterations of its own, and all count, so that the number does not depend on how threads meet.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._local = threading.local()
        self._lock = threading.Lock()
        self._later: weakref.WeakSet[Any] = weakref.WeakSet()

    def made(self, optimizer: object) -> None:
        """Note that an optimizer was made."""
        if self.steps:
            self._later.add(optimizer)

    def stepped(self, optimizer: object) -> bool:
        """Note one call of `optimizer.step`; say whether it began a new iteration."""
        is_next = optimizer in self._later
        if is_next:
            # All that were made since the last step train together.
            self._later.clear()
        window = getattr(self._local, "window", None)
        if window is not None and optimizer not in window and not is_next:
            window.add(optimizer)
            return False
        self._local.window = weakref.WeakSet((optimizer,))
        with self._lock:
            self.steps += 1
        return True


class Growth:
    """Whether what lies on a card grows from step to step, while the peak has not moved yet."""

    MARKS = 16

    def __init__(self) -> None:
        self._held: list[tuple[int, int]] = []
        self._every = 1

    def after_step(self, count: int, held: int) -> None:
        """Note that `held` bytes are there after step `count`."""
        if count % self._every == 0:
            self._held.append((count, held))
            if len(self._held) == 2 * self.MARKS:
                self._held = self._held[1::2]
                self._every *= 2

    def per_step(self) -> int:
        """How many bytes each step leaves behind: 0 where it is not so in each part of the later half of the steps.

        Of a few steps all but the first count, in which a training makes what it keeps.
        """
        marks = self._held[len(self._held) // 2 if len(self._held) >= self.MARKS else 1 :]
        if len(marks) < 3:
            return 0
        grown = [(after[1] - before[1]) // (after[0] - before[0]) for before, after in zip(marks, marks[1:])]
        if min(grown) <= 0 or max(grown) >= 2 * min(grown):
            return 0
        (first, before), (last, after) = marks[0], marks[-1]
        return (after - before) // (last - first)


class StopRule:
    """Decides after which optimizer step a run has shown what it needs."""

    def __init__(self, mode: str, steps: int) -> None:
        self.mode = mode
        self.steps = max(1, int(steps))
        self._peaks: tuple[int, ...] | None = None
        self._unmoved = 0

    def after_step(self, count: int, peaks: Iterable[int]) -> Stopped | None:
        """Say why to stop after step `count`, or None.

        `peaks` is the peak of reserved bytes per device up to now. The first step sets the mark; the run ends when
        `steps` further steps have left it where it was, so that everything between two steps (a whole accumulation
        window, an evaluation, the saving of a checkpoint) was seen that often.
        """
        if self.mode == "steps":
            return protocol.STOPPED_STEPS if count >= self.steps else None
        if self.mode != "peak-stable":
            return None
        peaks = tuple(peaks)
        if not any(peaks):
            # Without device memory there is no peak to wait for: a program that never uses the GPU runs to its end.
            return None
        if peaks == self._peaks:
            self._unmoved += 1
        else:
            self._peaks = peaks
            self._unmoved = 0
        return protocol.STOPPED_PEAK_STABLE if self._unmoved >= self.steps else None
