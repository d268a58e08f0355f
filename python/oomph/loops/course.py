"""Tracks the loops that a program is in, and decides to end one early.

There is one `Course` in a process. The loops of the main thread lie on its stack, outermost first. A loop reports each
iteration that ends; the course reads the memory then, and says whether the loop may end.
"""

from __future__ import annotations

import threading
import time

from oomph import sites
from oomph.loops.loop import EPOCHS, EVALUATION, OTHER, TRAINING, LibraryLoop, WhileLoop
from oomph.loops.progress import GROWING, UNKNOWN, fills_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

    from oomph._protocol import Stop
    from oomph.loops.abridged import Abridger
    from oomph.loops.loop import Loop
    from oomph.loops.witness import Witness
    from oomph.meter import Meter

_QUICK = 0.0002
"""An iteration shorter than this, in seconds, without an optimizer step cannot have run a model."""
_CHEAP = 0.3
"""What is left of a loop runs on when it takes no more than this many seconds."""
_BRIEF_WHOLE = 1.0
"""What is left of a loop that grows is run whole, rather than abridged, when it takes no more than this many seconds."""
_COUNTED = 6
"""Iterations of a loop at whose ends what the program keeps is counted."""
_SHORTENED = (TRAINING, EVALUATION, EPOCHS)
"""Kinds of loops that are abridged where they collect."""
_CLOSING = 3
"""Iterations in which conditions that hold every so often are taken to hold, before a loop ends."""


_SKIMMED = 2
"""Runs of a loop in which the rest of its batches is read."""


class LeftOut:
    """What iterations that were left out would have added and would still be there."""

    def __init__(self) -> None:
        self.bytes: float = 0
        self.steps = 0
        """Optimizer steps among those iterations: the program would have come this far with fewer of them."""
        self._runs: dict[tuple[str, int], dict[str, Any]] = {}

    def began(self, loop: Loop, held: int) -> None:
        """The first iteration of a loop has ended with `held` bytes; what an earlier run of it added may be among them."""
        loop.first_held = held
        before = self._runs.pop((loop.file, loop.line), None)
        if before is not None and held - before["first"] >= before["added"] / 2:
            self.bytes += before["bytes"]
            self.steps += before["steps"]

    def ended(self, loop: Loop) -> None:
        """A loop has ended; one whose memory grows is remembered until it is run again."""
        if loop.growth and loop.is_shortened():
            rate, left, run = loop.growth["bytes_per_iteration"], loop.remaining() or 0, loop.iterations()
            steps = left * loop.steps_of_one() if loop.training else 0
            growing = loop.growing_for(left) or 0
            self._runs[loop.file, loop.line] = {
                "first": loop.first_held, "added": rate * run, "bytes": rate * growing, "steps": steps,
            }  # fmt: skip


class Course:
    """All loops of a process, and what they have in common."""

    def __init__(self, meter: Meter, stop: Stop) -> None:
        self.meter = meter
        self.whole = meter.open()
        """The peaks of the whole run."""
        self.configure(stop)
        self.stack: list[Loop] = []
        self.trained: set[tuple[str, int]] = set()
        """Where loops stand that have trained: {(file, line)}."""
        self._runs: dict[tuple[str, int], int] = {}
        """How often each loop was entered, by file and line."""
        self._around: LibraryLoop | None = None
        self.ended: list[Loop] = []
        """Loops that were shortened or whose memory grows, once they have ended."""
        self.steps = self.backwards = 0
        self.left_out = LeftOut()
        self.skipped_steps = 0
        """Optimizer steps that the whole program would have made by now and that were left out."""
        self.ahead = 0
        """Optimizer steps by which what is being done now comes early: an evaluation that is due every so many steps."""
        self.lost_count = False
        """Whether loops were shortened of which nobody knows how many steps they would have made."""
        self.cut_short: dict[str, tuple[str, int]] = {}
        """Lists that are shorter than they would be, because the loops that fill them were shortened: {name: place}."""
        self.loops_ended = 0
        """Loops that trained and have ended: the program goes on."""
        self._settled_at: float | None = None
        self._settled_steps = 0
        self.fresh = True
        """No loop has trained yet."""
        self.most_steps: int | None = None
        """The optimizer step after which a trainer ends whatever its loops say, by our count; None where there is none."""
        self.headroom: Callable[[], int | None] = lambda: None
        """Gives the bytes that the fullest card has left for the framework, or None for cards without a limit."""
        self.witness: Callable[[], Witness] | None = None
        """Makes an object whose `look()`, called at the ends of iterations, finds what holds memory that grows."""
        self.abridger: Abridger | None = None
        """Lets loops go on without their computations where what comes after them depends on their length."""
        self.warn: Callable[[str], None] = lambda sentence: None
        """Takes a sentence for the report."""
        self.on_iteration: Callable[[Loop], None] | None = None
        """Called with a loop whose iteration has ended, before the memory is read."""
        self.is_alone: Callable[[], bool] = lambda: True
        """Whether the process does not belong to a job of several ranks, which go through their loaders together."""
        self.agree: Callable[[Loop, bool], bool] = lambda loop, ends: ends
        """Has the ranks of a job decide alike."""
        self._thread = threading.main_thread().ident

    def configure(self, stop: Stop) -> None:
        """Take over what the launcher says of the end of a run."""
        self.ends_loops = stop.get("mode") == "peak-stable"
        self.stable = max(1, int(stop.get("steps", 3)))
        self.budget = float(stop.get("budget_seconds") or 60.0)

    def forked(self) -> None:
        """Begin again in a forked child, whose loops are its own."""
        self.stack, self.ended, self._around = [], [], None
        self.left_out = LeftOut()
        self.skipped_steps = self.ahead = 0
        self.lost_count = False
        self.cut_short.clear()
        self.steps = self.backwards = 0
        self.fresh = True
        self._thread = threading.get_ident()

    def follows_here(self) -> bool:
        """Whether loops of this thread are followed."""
        return threading.get_ident() == self._thread

    # -- events ------------------------------------------------------------------------------------------------

    def stepped(self) -> None:
        """An optimizer has stepped, which counts as an iteration's step."""
        self.steps += 1
        if not self.stack and self.follows_here():
            # Nothing is known of the loop around it, which cannot be ended; whether its memory grows can be seen.
            self._around = LibraryLoop(self, "", 0, endable=False)
            self._around.begin()
        elif self._around is not None and self.stack[-1:] == [self._around]:
            self.iteration_ended(self._around)

    def ran_backward(self) -> None:
        """A backward pass begins."""
        self.backwards += 1

    def may_go_on(self) -> bool:
        """Whether a run whose peak has settled goes on, because its loops will end or its time is not up."""
        now = time.perf_counter()
        if self._settled_at is None or self._settled_steps < self.loops_ended:
            self._settled_at, self._settled_steps = now, self.loops_ended
        return now - self._settled_at <= self.budget

    # -- loops -------------------------------------------------------------------------------------------------

    def begin(self, loop: Loop) -> None:
        """A loop is entered."""
        place = loop.file, loop.line
        loop.run = self._runs[place] = self._runs.get(place, 0) + 1
        self.stack.append(loop)

    def end(self, loop: Loop) -> None:
        """A loop has ended, at its own end or early."""
        if loop not in self.stack:
            return
        while self.stack.pop() is not loop:
            pass
        # A loop that was left by `break` has made steps in an iteration that did not end.
        unfinished = self.steps - loop.steps - loop.child_steps
        for outer in self.stack:
            outer.child_steps += unfinished
        if loop.progress is None:
            return
        if loop.window is not None:
            self.meter.close(loop.window)
            loop.window = None
        if loop.abridged is not None:
            self._end_abridged(loop)
        if loop.training:
            self.ahead = 0
            self.trained.add((loop.file, loop.line))
            self.fresh = False
            self.loops_ended += 1
        if self.stack:
            parent = self.stack[-1]
            # One step may be the end of an accumulation, which is part of the step around it.
            if loop.training + loop.epochs > 1:
                parent.child_trained = True
            if loop.growth is not None:
                parent.child_growth += loop.growth["bytes_per_iteration"] * loop.growing_for(loop.remaining() or 0)
        self.left_out.ended(loop)
        if loop.is_shortened():
            self.skip(loop, loop.remaining() or 0)
            # Where nobody knows how long it would have been, nobody knows the step that the program is in.
            left_out = getattr(loop, "steps_left_out", None)
            if left_out is not None:
                self.skipped_steps += left_out
            elif loop.remaining() is None and (loop.training or loop.epochs):
                self.lost_count = True
        if loop.is_shortened() or loop.growth is not None:
            self.ended.append(loop)

    def skip(self, loop: Loop, iterations: int) -> None:
        """Iterations of a loop are left out, with the steps that they would have made."""
        if any(isinstance(outer, WhileLoop) for outer in self.stack):
            # The program counts its own steps, and makes up for those that were left out.
            return
        made = self.steps - loop.steps_before + self.skipped_steps - loop.skipped_before
        if loop.training:
            self.skipped_steps += iterations * loop.steps_of_one()
        elif loop.epochs:
            self.skipped_steps += iterations * (made // max(1, loop.iterations()))

    def iteration_ended(self, loop: Loop) -> bool:
        """An iteration has ended; say whether the loop has shown all that it does, and may end."""
        if loop.abridged is not None:
            return self._abridged_iteration_ended(loop)
        now = time.perf_counter()
        took = now - loop.at
        steps = self.steps - loop.steps
        if loop not in self.stack:
            return False
        if loop.progress is None:
            if took < _QUICK and not steps or not self.meter.usable() or not self.follows_here():
                loop.quick += 1
                loop.at = now
                return False
            loop.prepare()
        if loop.progress is not None:
            loop.progress.iterations += 1
        if took < _QUICK and not steps:
            loop.at = now
            return False
        loop.at = now
        while self.stack[-1] is not loop:
            self.end(self.stack[-1])
        ends = self._read(loop, steps)
        if steps:
            self.ahead = 0
        loop.begin_iteration()
        return ends

    def _read(self, loop, steps):
        if steps > loop.child_steps:
            loop.training += 1
        elif steps:
            loop.epochs += loop.child_trained
            loop.training += not loop.child_trained
        if steps and loop.training + loop.epochs == 1:
            # Until its first step an accumulation looks like an evaluation.
            loop.progress.begin_again()
        for outer in self.stack[:-1]:
            outer.child_steps += steps - loop.child_steps
        if self.on_iteration is not None:
            self.on_iteration(loop)
        now = self.meter.read()
        ends = False
        # Between the steps of an accumulation gradients come and go.
        if now and (steps or not loop.training):
            held = sum(allocated for _, allocated in now.values())
            if not loop.progress.readings:
                self.left_out.began(loop, held)
            loop.progress.read(held, sum(reserved for reserved, _ in self.whole.peaks.values()))
            if self.ends_loops and self.abridger is not None and loop.kept.counts < _COUNTED and loop.kind in _SHORTENED:
                self.abridger.look(loop)
            if self.ends_loops:
                ends = self.agree(loop, self._has_shown(loop, held))
        if loop.window is not None:
            loop.window.clear()
        return ends

    def is_evaluating(self) -> bool:
        """Whether the program has trained and is in a loop over batches that makes no backward pass."""
        known = [loop for loop in self.stack if loop.progress is not None]
        return bool(self.backwards and known) and known[-1].batches and known[-1].backwards_before == self.backwards

    def is_about_to_train(self) -> bool:
        """Whether the program is in a loop that trained when it was run before."""
        return any((loop.file, loop.line) in self.trained for loop in self.stack)

    # -- the decision --------------------------------------------------------------------------------------------

    def _has_shown(self, loop, held):
        kind = loop.kind
        if kind == OTHER or kind != TRAINING and not loop.endable:
            return False
        progress = loop.progress
        trend, rate = progress.trend_of_epochs() if kind == EPOCHS else progress.trend()
        if trend == GROWING:
            return self._grows(loop, rate, held)
        if trend == UNKNOWN:
            return False
        # What has grown and does so no more is full: a buffer that holds so many things and no more.
        loop.growth = None
        if kind == EPOCHS:
            if progress.unmoved < 1 or self.steps <= self.stable:
                return False
        else:
            if progress.unmoved < self.stable:
                return False
            left = loop.remaining()
            if left is not None and left * loop.pace() <= _CHEAP:
                return False
        return self._close(loop) and not self._goes_on(loop, 0.0)

    # -- what comes after a loop depends on its length -----------------------------------------------------------------

    def _goes_on(self, loop, rate):
        """Whether a loop that has shown all that it does goes on, because the code after it finds what it collects.

        `rate` is what each iteration leaves on the card, in bytes.
        """
        if loop.kind not in _SHORTENED or not loop.collects() or loop.remaining() == 0:
            return False
        if not loop.cannot_abridge and self.abridger is not None:
            loop.abridged = self.abridger.begin(self, loop, rate)
            if loop.abridged is not None:
                loop.closed = False
                return True
        return loop.collected() is not None and not self._may_cut(loop, loop.remaining())

    def _abridged_iteration_ended(self, loop):
        while self.stack[-1] is not loop:
            self.end(self.stack[-1])
        if not loop.abridged.iteration_ended():
            loop.cannot_abridge = not loop.abridged.done
            self._end_abridged(loop)
            loop.begin_iteration()
        return False

    def _end_abridged(self, loop):
        """A loop that was abridged ends, or goes on with everything."""
        ended = loop.abridged.end()
        loop.abridged, loop.closed = None, False
        if ended and loop.growth is not None:
            # All that grows has grown.
            held = sum(allocated for _, allocated in self.meter.read(reset=False).values())
            loop.growth.update(held_bytes=held, at_end_bytes=held, grows_for=0)

    def _may_cut(self, loop, left):
        """Whether a loop that collects data ends all the same, because the whole of it takes too long."""
        if left is not None and left * loop.pace() <= self.budget / 2:
            return False
        if left is None and time.process_time() - loop.began_at <= self.budget / 2:
            return False
        self.cut_short[loop.collected()] = loop.file, loop.line
        return True

    def may_skim(self, loop: Loop) -> bool:
        """Whether what is left of a loop is read in search of larger batches."""
        return self.ends_loops and loop.run <= _SKIMMED and self.is_alone() and loop.kind in (TRAINING, EVALUATION)

    def not_looked_at(self, loop: Loop) -> None:
        """The rest of a loop was not all read in search of larger batches."""
        left = loop.remaining()
        # A stream of unknown length may have no end.
        if left and loop.total is not None:
            self.warn("%s: %d of %d batches were not looked at, because reading them takes too long; a larger one would need more" % (
                sites.shown(loop.file, loop.line), left, loop.total))

    def step_now(self, made: int) -> int:
        """The optimizer step that the whole program would be in, from 1, where `made` were made; 0 where it is not known.

        Where memory grows, the card is full after as many steps of growth, whichever of them were left out.
        """
        return 0 if self.lost_count else made + 1 + self.skipped_steps - self.left_out.steps + self.ahead

    def _close(self, loop):
        """Before a loop ends, what it does every so often is done once."""
        if not loop.endable:
            return False
        pending = not all(loop.periodic.values())
        if loop.closing:
            loop.closing -= 1
            if loop.closing and pending:
                return False
        elif pending and not loop.closed:
            loop.closing = _CLOSING
            return False
        loop.closing = 0
        loop.closed = True
        return True

    def _grows(self, loop, rate, held):
        """Memory grows: go on to where the card is full if that is near, else say when it would be."""
        if loop.window is None:
            loop.window = self.meter.open()
            loop.grows_since = time.process_time()
            loop.witness = self.witness() if self.witness is not None else None
        if loop.witness is not None and not loop.witness.is_done():
            loop.witness.look(loop.iterations())
            # It takes three iterations to tell what stays of the first.
            return False
        loop.growth = loop.growth or {}
        if loop.witness is not None:
            loop.growth.update(loop.witness.seen())
        run = rate
        if loop.kind == EPOCHS:
            # What inner loops that were shortened would have added stays as what they did add stays.
            rate += loop.child_growth
        left = loop.remaining()
        grows_for = loop.witness.room(loop.iterations(), run, rate) if loop.witness is not None else None
        missing = self.left_out.bytes
        peak = max(held, sum(allocated for _, allocated in loop.window.peaks.values())) + missing
        loop.growth.update(
            bytes_per_iteration=int(rate), held_bytes=int(held + missing), peak_bytes=int(peak),
            steps=self.steps + self.skipped_steps, grows_for=grows_for,
            iterations_of_step=round(loop.progress.iterations_of_reading()) if loop.kind == TRAINING else 1,
        )  # fmt: skip
        headroom = self.headroom()
        still = loop.growing_for(left)
        loop.growth["at_end_bytes"] = None if still is None else int(peak + rate * still)
        fills = None if headroom is None else fills_after(rate, headroom - missing)
        if fills is not None and grows_for is not None and fills > grows_for:
            fills = None
        in_all = left if loop.kind == EPOCHS else self._left_in_all(loop)
        if fills is not None and (left is None or fills < left):
            # It dies here: let it, and the step, the line and the traceback are the real ones.
            runs_on = not missing and fills * loop.pace() <= self.budget
        elif fills is not None and in_all is not None and fills < in_all:
            # It dies in a later epoch, where the growth outlives this one.
            runs_on = not missing and fills * loop.pace() <= self.budget / 2
        elif left is not None:
            runs_on = left * loop.pace() <= min(self.budget / 4, 10.0)
        else:
            runs_on = time.process_time() - loop.grows_since <= self.budget / 4
        holds_all = fills is None or left is None or fills >= left
        brief = runs_on and left is not None and left * loop.pace() <= _BRIEF_WHOLE
        if holds_all and not brief and (runs_on or self._close(loop)) and self._goes_on(loop, rate):
            return False
        return not runs_on and self._close(loop)

    def _left_in_all(self, loop):
        """Iterations of a loop that are left in this run of it and in those that the loops around it will make, or None."""
        left = loop.remaining()
        for outer in reversed(self.stack[: self.stack.index(loop)]):
            length = outer.length()
            if left is None or length is None or loop.total is None:
                return None
            left += max(0, length - outer.iterations() - 1) * loop.total
        return left

    # -- conditions that hold every so often ---------------------------------------------------------------------

    def now(self, value: Any, place: Hashable, early: int = 0) -> Any:
        """The value of a condition such as `step % 500 == 0`, which is taken to hold once before its loop ends.

        `early` is by how many iterations that is too early.
        """
        if self.abridger is not None and self.abridger.replaces:
            return value
        # Inside a loop over micro-batches it is the loop around it that ends.
        known = [loop for loop in reversed(self.stack) if loop.progress is not None]
        loop = next((loop for loop in known if loop.closing or loop.kind != OTHER), None)
        if loop is None:
            return value
        if not value and loop.closing and not loop.periodic.get(place):
            value = True
            left = loop.remaining()
            if loop.training and early and (left is None or early <= left):
                self.ahead = max(self.ahead, early * loop.steps_of_one())
        loop.periodic[place] = loop.periodic.get(place, False) or bool(value)
        return value

    # -- the report --------------------------------------------------------------------------------------------

    def as_list(self) -> list[dict[str, Any]]:
        """The loops that were shortened or grow, in the form of docs/internals/run-folder.md."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for loop in self.ended + [loop for loop in self.stack if loop.progress is not None and loop.growth]:
            one = {
                "file": loop.file, "line": loop.line, "kind": loop.kind, "iterations": loop.iterations(), "of": loop.total,
                "shortened": loop.is_shortened(), "growth": loop.growth,
            }  # fmt: skip
            key = loop.file, loop.line
            # Of a loop that is run in each epoch, the run that says most speaks for all.
            if key not in found or _says(one) >= _says(found[key]):
                found[key] = one
        return list(found.values())


def _says(one):
    """How much the run of a loop has to say: how far its memory would have grown, how long it went on."""
    growth = one["growth"] or {}
    return bool(growth), growth.get("at_end_bytes") or 0, one["iterations"]
