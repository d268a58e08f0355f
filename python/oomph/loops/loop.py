"""Follows one loop of the program: what it iterates over, and what its iterations have shown."""

from __future__ import annotations

import sys
import time

from oomph import _protocol as protocol
from oomph import contents
from oomph.loops.census import Growth, shown
from oomph.loops.length import counted_range, gives_batches, length_of, may_differ, source_of
from oomph.loops.progress import Progress
from oomph.loops.sizing import sizing
from oomph.loops.skim import Skim, shapes_of, size_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from typing import Any

    from oomph.loops.abridged import Abridged
    from oomph.loops.census import Path
    from oomph.loops.course import Course
    from oomph.loops.witness import Witness
    from oomph.meter import Window

TRAINING, EPOCHS = protocol.LOOP_TRAINING, protocol.LOOP_EPOCHS
EVALUATION, OTHER = protocol.LOOP_EVALUATION, protocol.LOOP_OTHER

_MOST_VALUES = 20000
"""Values of a counting loop that are looked at for ones that differ."""


class Loop:
    """A loop that reports its iterations to a course."""

    growth: dict[str, Any] | None
    witness: Witness | None
    run: int
    grows_since: float

    batches = False
    """Whether it goes through a loader of batches."""
    endable = True
    """Whether it can be ended before its time."""
    total: int | None = None
    """How many iterations it makes; None where that is not known."""
    progress: Progress | None = None
    """What its iterations have shown, from the first one on that took any time."""

    abridged: Abridged | None = None
    """What makes the rest of its iterations cheap, once they have shown all that they do."""
    cannot_abridge = False
    """Abridged iterations did not leave behind what whole ones leave."""
    hands_out = False
    """Whether its results go where nobody can look: into a list that is being made, or to who asks a generator."""
    varied = False
    """Whether its batches differ in their shapes."""
    largest = 0
    """Elements of the largest batch, as far as they were seen."""

    def __init__(self, course: Course, file: str, line: int) -> None:
        self.course = course
        self.file = file
        self.line = line
        self.began = False

    def begin(self) -> None:
        """The loop is entered."""
        course = self.course
        self.began = True
        self.backwards_before = course.backwards
        self.steps_before = course.steps
        self.skipped_before = course.skipped_steps
        self.quick = 0
        self.begin_iteration()
        # Time of the processor: what else runs on the machine must not change an answer.
        self.began_at = time.process_time()
        course.begin(self)

    def begin_iteration(self) -> None:
        """The next iteration begins."""
        self.steps = self.course.steps
        self.child_steps = 0
        self.child_trained = False
        self.child_growth: float = 0
        self.at = time.perf_counter()

    def prepare(self) -> None:
        """The first iteration that took any time has ended."""
        self.progress = Progress(skip=2 if self.course.fresh else 1)
        self.progress.iterations = self.quick
        self.training = self.epochs = 0
        self.skipped = 0
        self.closing = 0
        self.closed = False
        self.window: Window | None = None
        self.growth = self.witness = None
        self.first_held = 0
        self.periodic: dict[Hashable, bool] = {}
        self.kept = Growth()

    @property
    def kind(self) -> str:
        """What the loop is, by what its iterations did."""
        if self.training:
            return TRAINING
        if self.epochs:
            return EPOCHS
        # Backward passes without a step are an accumulation.
        return EVALUATION if self.batches and self.course.backwards == self.backwards_before else OTHER

    def iterations(self) -> int:
        """Iterations that have ended."""
        return self.progress.iterations if self.progress is not None else self.quick

    def length(self) -> int | None:
        """How many iterations it makes; None where that is not known."""
        return self.total

    def remaining(self) -> int | None:
        """Iterations that are left; None where the length is not known."""
        left = None if self.total is None else max(0, self.total - self.iterations() - self.skipped)
        most = self.course.most_steps
        if most is not None and self.training:
            by_steps = max(0, -(-(most - self.course.steps) // max(1, self.steps_of_one())))
            left = by_steps if left is None else min(left, by_steps)
        return left

    def growing_for(self, iterations: int | None) -> int | None:
        """In how many of the next `iterations` (None: of all) its memory still grows: what it fills may hold no more then."""
        most = (self.growth or {}).get("grows_for")
        return iterations if most is None else most if iterations is None else min(most, iterations)

    def steps_of_one(self) -> int:
        """Optimizer steps of an iteration that trains."""
        return (self.course.steps - self.steps_before) // max(1, self.training)

    def pace(self) -> float:
        """Seconds of processor time of an iteration."""
        return (time.process_time() - self.began_at) / max(1, self.iterations())

    def collects(self) -> bool:
        """Whether the code after it finds more, the more iterations it makes."""
        trains = bool(self.training or self.epochs)
        if self.hands_out and not trains:
            return True
        grown = self.kept.grown().values()
        if trains:
            # A loss or a time of each step is small, whatever their number; a batch may be larger than the one before.
            return any(seen.data and not (seen.bare and self.varied) for seen in grown)
        return bool(grown) or bool(self.kept.counters())

    def sized_by(self) -> list[Path]:
        """The counters that sizes follow from once it has ended: `rows[:at]`."""
        # What training counts, its steps, is read everywhere.
        return [] if self.training or self.epochs else sizing(self.kept.counters(), self.file, self.line)

    def collected(self) -> str | None:
        """The name of data that it collects, or counts for a size; None where there is none, or it has no name."""
        trains = bool(self.training or self.epochs)
        grown = self.kept.grown().items()
        paths = [path for path, seen in grown if seen.data and not (seen.bare and self.varied and trains)] or self.sized_by()
        return shown(min(paths, key=len)) if paths else None

    def is_shortened(self) -> bool:
        """Whether some of its iterations were left out."""
        return self.skipped > 0 or self.closed and self.remaining() != 0


class ForLoop(Loop):
    """The iterator that a `for` of the user's goes through in place of its own."""

    def __init__(
        self,
        course: Course,
        iterable: Iterable[Any],
        file: str,
        line: int,
        distinct: Callable[[Any], tuple[Any, ...]] | None,
    ) -> None:
        Loop.__init__(self, course, file, line)
        self._source: Any = iter(iterable)
        self._iterable: Iterable[Any] | None = iterable
        self._distinct: Callable[[Any], tuple[Any, ...]] | None = distinct
        self._values: range | None = None
        self._seen: dict[tuple[bool, ...], bool] = {}
        self._over = False
        self.largest = 0
        """Elements of the largest batch."""
        self._skim: Skim | None = None
        self._loader: Any = None
        self._texts = False
        """Whether its batches are mostly texts, of which its body makes tensors."""
        self._shapes: list[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return _Handle(self)

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        if not self.began:
            self.begin()
        else:
            if (self.course.iteration_ended(self) or self._skim is not None) and not self._jump():
                larger = self._larger()
                if larger is not None:
                    return larger[0]
                self._end()
                raise StopIteration
        try:
            found = next(self._source)
        except StopIteration:
            self._end()
            raise
        if self.abridged is not None:
            if self.varied or self.total is None:
                self.abridged.next_is_of(size_of(found))
            return found
        self.largest = max(self.largest, size_of(found))
        if self.progress is not None and not self.varied:
            text = text_of(found)
            self._texts = self._texts or text > 0
            shapes = [*shapes_of(found), text]
            self.varied = self._shapes is not None and shapes != self._shapes
            self._shapes = shapes
        return found

    def length(self) -> int | None:
        return length_of(self._iterable) if self._iterable is not None else self.total

    def prepare(self) -> None:
        Loop.prepare(self)
        iterable, self._iterable = self._iterable, None
        self.total = length_of(iterable)
        self.batches = gives_batches(iterable)
        self._loader = source_of(iterable) if self.batches else None
        self.endable = not may_differ(iterable)
        self._values = counted_range(iterable) if self._distinct is not None else None
        if self._values is None:
            self._distinct = None
        else:
            for position in range(self.quick + 1):
                self._note(position)

    # -- values that differ --------------------------------------------------------------------------------------

    def _note(self, position):
        if self._values is not None and position < len(self._values):
            self._seen[self._shown(position)] = True

    def _shown(self, position):
        """Which of the conditions in the loop's body hold for a value."""
        if self._distinct is None or self._values is None:
            return ()
        try:
            return tuple(bool(one) for one in self._distinct(self._values[position]))
        except Exception:
            # The conditions are the program's, with whatever it compares; without them all values count as alike.
            self._distinct = None
            return ()

    def _jump(self):
        """Go to the next value for which other conditions hold than for those that were run; say whether there is one."""
        if self._distinct is None or self._values is None or self.progress is None:
            return False
        here = self.iterations() + self.skipped
        for position in range(here, min(len(self._values), here + _MOST_VALUES)):
            if self._shown(position) in self._seen or self._distinct is None:
                continue
            for _ in range(position - here):
                if next(self._source, self) is self:
                    return False
            self.course.skip(self, position - here)
            self.skipped += position - here
            self._note(position)
            self.progress.jumped()
            self.closed = False
            return True
        return False

    # -- batches of an unknown number ----------------------------------------------------------------------------

    def _larger(self):
        """The next batch that is larger than all before it, in a list, where nobody knows what comes; or None."""
        if self._skim is None:
            if not self.largest or not self.course.may_skim(self) or self.total is not None and not self._may_vary():
                return None
            self._skim = Skim(self._source, self.largest)
        larger = self._skim.next_larger()
        passed = self._skim.passed
        self.course.skip(self, passed)
        self.skipped += passed
        if larger is not None:
            self.closed = False
        elif self._skim.is_over:
            self.total = self.iterations() + self.skipped
        else:
            self.course.not_looked_at(self)
        return larger

    def _may_vary(self):
        """Whether batches that come may be larger than those that it had. For training the longest batch is made, except of texts."""
        if self._texts or self.kind != EVALUATION:
            return self._texts
        torch = sys.modules.get("torch")
        return self.varied or torch is not None and contents.may_vary(torch, self._loader)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self):
        if not self._over:
            self._over = True
            # Loading workers go with the iterator, as they do when a loop runs to its end.
            self._source = self._iterable = self._distinct = self._skim = self._loader = None
            if self.began:
                self.course.end(self)

    def left(self) -> None:
        """The loop has been left: at its end, or by `break`, `return` or an exception in its body."""
        self._end()


class _Handle:
    """What a `for` holds while it goes on: nobody else does, so that it goes when the loop is left, however that is."""

    __slots__ = ("_loop", "_next")

    def __init__(self, loop: ForLoop) -> None:
        self._loop = loop
        self._next = loop.__next__

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next()

    def __del__(self) -> None:
        try:
            self._loop.left()
        except Exception:
            # Python prints what `__del__` raises, at a time when the interpreter may be ending.
            pass


class WhileLoop(Loop):
    """A `while` of the user's whose condition can be made to fail."""

    key: tuple[int, int] | None

    _first: Any = None
    steps_left_out: int | None = None
    """Optimizer steps that its iterations would have made after it was ended; None where that is not known."""

    def counts_from(self, limited: tuple[Any, Any] | None) -> None:
        """The loop begins, with a number that it counts up to a limit, or None."""
        self._first = limited[0] if limited is not None and _are_numbers(limited) else None

    def leaves_out(self, limited: tuple[Any, Any] | None) -> None:
        """The loop is ended early, with that number where it is now."""
        if self._first is None or limited is None or not _are_numbers(limited):
            return
        now, limit = limited
        made = self.course.steps - self.steps_before
        if now > self._first and limit > now:
            self.steps_left_out = int((limit - now) * made / (now - self._first))


def _are_numbers(pair):
    return all(isinstance(one, (int, float)) for one in pair)


class LibraryLoop(Loop):
    """A loop inside a library, whose adapter reports its iterations and ends it in the library's own way."""

    def __init__(
        self,
        course: Course,
        file: str,
        line: int,
        total: int | None = None,
        batches: bool = False,
        endable: bool = True,
    ) -> None:
        Loop.__init__(self, course, file, line)
        self.total, self.batches, self.endable = total, batches, endable

    def ended(self) -> bool:
        """An iteration has ended; say whether the loop should end."""
        return self.course.iteration_ended(self)
