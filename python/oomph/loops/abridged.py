"""Lets a loop that has shown what it does go on to its end without its computations, so that it leaves behind what it would.

What comes after a loop depends on what it collected: results, labels, counts. The loop's body therefore runs as often as
in the whole program, and only what is dear is replaced by what it gave before (`stubs`). The last iterations run with
everything again, because memory is then the most. An abridged iteration has to leave as much behind as a whole one did;
where it does not, the loop goes on as it was.
"""

from __future__ import annotations

import sys
import time

from oomph import sites
from oomph.looking import attribute
from oomph.loops import census
from oomph.loops.loop import EPOCHS, WhileLoop
from oomph.loops.stubs import LEARNING, REAL, Stubs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from oomph._protocol import HookSite
    from oomph._types import Torch
    from oomph.loops.census import Path
    from oomph.loops.course import Course
    from oomph.loops.loop import Loop

_LEARNED = 2
"""Whole iterations whose calls are remembered, and that abridged ones are compared with."""
_CHECKED = 2
"""Abridged iterations that are compared with whole ones."""
_SETTLED_WITHIN = 16
"""Iterations after which no call of a module may be new any more."""
_TAIL = 2
"""Iterations at the end that run with everything: a full batch, and the last one."""
_NOISE = 64 << 10
"""Bytes by which an abridged iteration may differ from a whole one in what it leaves on the card, at least."""
_COUNTERS = 2.0
"""Seconds that abridged iterations may take where nothing but counters grows from which no size follows."""
_REFRESHED = 0.02
"""Where nobody knows the last iteration, one runs with everything each time memory has grown by this part of itself."""


class Abridger:
    """Makes abridged loops: one at a time in a process."""

    def __init__(self, torch: Torch, compiling: Callable[[], bool]) -> None:
        self.torch = torch
        self._compiling = compiling
        self._busy: Abridged | None = None
        self._interrupted: tuple[str, int, int] | None = None
        """The loop that was left while computations were replaced: its file, its line, and the frame that it was left in."""

    def begin(self, course: Course, loop: Loop, rate: float) -> Abridged | None:
        """Begin to abridge a loop whose iterations leave `rate` bytes each on the card; None where that is not possible."""
        # DeepSpeed's engine takes gradients and makes steps in ways of its own.
        unknown = loop.kind == EPOCHS and loop.remaining() is None
        if unknown or self._busy is not None or _somebody_listens() or "deepspeed" in sys.modules or not course.is_alone():
            return None
        self._busy = Abridged(self, course, loop, Stubs(self.torch, self._compiling), rate)
        return self._busy

    def look(self, loop: Loop) -> None:
        """Count what the program keeps, at the end of an iteration of a loop."""
        loop.kept.look(census.count(sys._getframe(1), self.torch.Tensor, self.torch.nn.Module), loop.iterations())

    def ended(self, loop: Loop, replaced: bool) -> None:
        """The loop that was abridged has ended, or goes on as it was; `replaced` says that it was left in the middle."""
        self._busy = None
        self._interrupted = None
        if replaced:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != loop.file:
                frame = frame.f_back
            self._interrupted = loop.file, loop.line, id(frame)

    def interrupted_in(self, traceback: TracebackType | None) -> HookSite | None:
        """The loop in whose abridged iteration an error was raised; None where it was raised elsewhere."""
        while traceback is not None and self._interrupted is not None:
            _, line, frame = self._interrupted
            if id(traceback.tb_frame) == frame:
                return sites.site_of_line(traceback.tb_frame.f_code, line)
            traceback = traceback.tb_next
        return None

    @property
    def replaces(self) -> bool:
        """Whether computations are replaced now."""
        return self._busy is not None and self._busy.replaces


def _somebody_listens():
    """Whether the program hears of every call of a module."""
    module = sys.modules.get("torch.nn.modules.module")
    hooks = (attribute(module, name, {}) for name in ("_global_forward_hooks", "_global_forward_pre_hooks"))
    return any(not attribute(hook, "__name__", "").startswith("oomph_") for one in hooks for hook in one.values())


class Abridged:
    """The abridged part of one loop."""

    def __init__(self, abridger: Abridger, course: Course, loop: Loop, stubs: Stubs, rate: float) -> None:
        self._abridger = abridger
        self._course = course
        self._loop = loop
        self._stubs = stubs
        self._rate = rate
        self._steps = loop.steps_of_one() if loop.training else 0
        self._learned: list[dict[Path, int]] = []
        self._whole: dict[Path, int] = {}
        """By how much what a whole iteration adds to grows, as far as two agree."""
        self._ran = self._clean = 0
        self._at = 0.0
        self._seconds = 0.0
        self._sized = loop.sized_by()
        grown = loop.hands_out or bool(loop.kept.grown() or self._sized)
        self._limit = course.budget / 2 if grown else _COUNTERS
        """Seconds of the processor that abridged iterations may take together."""
        self._ends = False
        """The last iterations have begun."""
        self.replaces = False
        """Whether computations are replaced now."""
        if loop.varied:
            stubs.loaders.varies()
        abridger.look(loop)
        self._window = course.meter.open()
        self._held = self._refreshed = self._read(reset=True)
        self._window.clear()
        self._transient = 0
        self._noise: float = _NOISE
        """Bytes by which what a whole iteration leaves differs from the rate: blocks of the allocator's are of several sizes."""
        self._largest = loop.largest
        self._epochs = loop.kind == EPOCHS
        self.done = False
        """All went well, and the rest of the loop runs as it was."""
        stubs.loaders.sized = self.next_is_of
        stubs.begin()
        if self._epochs:
            # What is left of the epoch before is what a whole one leaves; its calls are remembered as they come.
            self._whole = loop.kept.last()
            self._replace()

    def iteration_ended(self) -> bool:
        """An iteration has ended; say whether the loop goes on in here, or as it was from now on."""
        loop, mode = self._loop, self._stubs.mode
        if loop.progress is None:
            return False
        loop.progress.iterations += 1
        if self._ends:
            return True
        if mode == LEARNING:
            return self._learn()
        if mode == REAL:
            # It has shown how high memory rises now.
            self._held = self._refreshed = self._read()
            if self._clean < _CHECKED:
                # What the next one adds is seen by what was there before it.
                self._abridger.look(loop)
            self._replace()
            return True
        self._seconds += time.process_time() - self._at
        if self._epochs:
            return self._epoch_ended()
        self._count_steps()
        if self._clean < _CHECKED and not self._agrees() or self._seconds > self._limit:
            return False
        self._choose()
        return True

    def _epoch_ended(self):
        loop = self._loop
        self._abridger.look(loop)
        self._course.skip(loop, 1)
        self._ran += 1
        left = loop.remaining() or 0
        # The last epoch runs as the first ones did, because memory is then the most.
        self.done = self._is_as_whole() and left <= 1
        self._at = time.process_time()
        return not self.done and self._is_as_whole() and left * self._seconds / self._ran <= self._limit

    def next_is_of(self, size: int) -> None:
        """The next iteration has a batch of `size` elements: one that is larger than all before runs with everything."""
        if size > self._largest and not self._epochs:
            self._largest = size
            if self.replaces:
                self._run()

    # -- whole iterations at the beginning -----------------------------------------------------------------------------

    def _learn(self):
        before, self._held = self._held, self._read(reset=True)
        self._noise = max(self._noise, abs(self._held - before - self._rate))
        highest = sum(allocated for _, allocated in self._window.peaks.values())
        self._window.clear()
        self._transient = max(self._transient, highest - before)
        self._abridger.look(self._loop)
        self._learned.append(self._loop.kept.last())
        if len(self._learned) >= _LEARNED:
            first, last = self._learned[-2:]
            self._whole = {path: more for path, more in first.items() if last.get(path) == more}
            self._stubs.misses = 0
            self._replace()
        return True

    # -- abridged iterations -------------------------------------------------------------------------------------------

    def _replace(self):
        self._stubs.replace()
        self.replaces = True
        self._at = time.process_time()

    def _run(self):
        self._stubs.run()
        self.replaces = False

    def _agrees(self):
        """Whether an abridged iteration has left behind what a whole one leaves, in a time that allows for the rest."""
        self._ran += 1
        new, self._stubs.misses = self._stubs.misses, 0
        self._abridger.look(self._loop)
        before, self._held = self._held, self._read()
        if new:
            # Calls that were not seen before ran, and are known from now on.
            self._seconds = 0.0
            return self._ran < _SETTLED_WITHIN
        self._clean += 1
        if not self._is_as_whole():
            return False
        if self._rate > 0 and self._held - before < self._rate * 0.98 - self._noise:
            return False
        if self._clean < _CHECKED:
            return True
        left = self._left()
        return left is None or left * self._seconds / self._clean <= self._limit

    def _is_as_whole(self):
        """Whether the last iteration has made everything grow that a whole one makes grow."""
        added = self._loop.kept.last()
        numbers = self._loop.kept.counters().keys() - set(self._sized)
        return all(added.get(path, 0) >= more for path, more in self._whole.items() if path not in numbers)

    def _choose(self):
        """Whether the next iteration runs with everything."""
        left = self._left()
        if left is not None and left <= _TAIL:
            self._ends = True
            self._run()
        elif self._rate > 0:
            self._held = self._read()
            headroom = self._course.headroom()
            if headroom is not None and headroom < self._transient + 3 * self._rate:
                # The card may be full before the loop ends, and the iteration in which it is has to be run.
                self._ends = True
                self._run()
            elif left is None and self._held > self._refreshed * (1 + _REFRESHED):
                self._run()
        self._at = time.process_time()

    def _left(self):
        """Iterations that are left; None where nobody knows."""
        left = self._loop.remaining()
        return self._stubs.loaders.left() if left is None else left

    def _count_steps(self):
        others = (outer for outer in self._course.stack if outer is not self._loop)
        if self._steps and not any(isinstance(outer, WhileLoop) for outer in others):
            self._course.skipped_steps += self._steps

    def _read(self, reset=False):
        now = self._course.meter.read(reset=reset)
        return sum(allocated for _, allocated in now.values())

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self) -> bool:
        """The loop has ended, or goes on as it was; say whether its last iterations had begun."""
        left_in_the_middle = self.replaces and self._left() != 0
        self.replaces = False
        self._course.meter.close(self._window)
        self._stubs.end()
        self._abridger.ended(self._loop, left_in_the_middle)
        return self._ends
