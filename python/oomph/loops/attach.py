"""Joins the loops of a program to torch: what is counted, what memory is left, and who decides among ranks."""

from __future__ import annotations

import sys

from oomph import hook, meter, phases, quiet
from oomph.loops import agreement, libraries, sources
from oomph.loops.abridged import Abridger
from oomph.loops.course import Course
from oomph.loops.loop import ForLoop, WhileLoop
from oomph.loops.unreached import Unreached
from oomph.loops.witness import Witness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from oomph._protocol import HookConfig
    from oomph._types import Torch
    from oomph.phases import Phases
    from oomph.record import Record

_UNLIMITED = 2 << 40
"""What the virtual GPU says of a card without a limit, in bytes (`oomph_ledger::UNBOUNDED_CAPACITY`)."""

_GENERATOR = 0x20
"""The flag of code that yields."""

_course: Course | None = None
_compiling: Callable[[], bool] = lambda: False


def loop(
    iterable: Iterable[Any], line: int, distinct: Callable[[Any], tuple[Any, ...]] | None = None, hands_out: bool = False
) -> Iterable[Any]:
    """What a `for` of the user's goes through: its own iterable, or one that reports to the course.

    `hands_out` says that it is one of a comprehension, whose results lie in a list that has no name yet.
    """
    if _course is None or not _is_followed():
        return iterable
    code = sys._getframe(1).f_code
    made = ForLoop(_course, iterable, code.co_filename, line, distinct)
    made.hands_out = hands_out or bool(code.co_flags & _GENERATOR)
    return made


def _is_followed():
    """Whether a loop that begins now reports to the course."""
    if _course is None or _compiling() or not _course.follows_here():
        return False
    return _course.abridger is None or not _course.abridger.replaces


def goes_on(line: int, place: int, limited: tuple[Any, Any] | None = None) -> bool:
    """Part of the condition of a `while` of the user's: False ends it. `limited` is a number and its limit."""
    if not _is_followed() and not _is_abridged(line, place):
        return True
    return _goes_on(_course, line, place, limited)


def _is_abridged(line, place):
    """Whether the loop that is abridged is this one."""
    if _course is None or not _course.follows_here():
        return False
    # A generator expression has a frame of its own: the program's is found outside it.
    key = id(sys._getframe(2)), place
    return any(isinstance(one, WhileLoop) and one.abridged is not None and one.key == key for one in _course.stack)


def _goes_on(course, line, place, limited):
    frame = sys._getframe(2)
    key = id(frame), place
    found = None
    for one in reversed(course.stack):
        if isinstance(one, WhileLoop) and one.key == key:
            found = one
            break
    if found is None:
        found = WhileLoop(course, frame.f_code.co_filename, line)
        found.key = key
        found.counts_from(limited)
        found.begin()
        return True
    if course.iteration_ended(found):
        found.leaves_out(limited)
        course.end(found)
        return False
    return True


def over(place: int) -> None:
    """A `while` of the user's has been left."""
    if _course is None or not _course.follows_here():
        return
    key = id(sys._getframe(1)), place
    for one in reversed(_course.stack):
        if isinstance(one, WhileLoop) and one.key == key:
            _course.end(one)
            return


def now(value: Any, line: int, counted: tuple[Any, Any, Any] | None = None) -> Any:
    """The condition of a branch that is taken every so often; `counted` is the number, the modulus and the remainder."""
    if _course is None or _compiling() or not _course.follows_here():
        return value
    return _course.now(value, (sys._getframe(1).f_code.co_filename, line), 0 if counted is None else _early(*counted))


def _early(number, modulus, remainder):
    try:
        return int(remainder - number) % int(modulus)
    except Exception:
        # The numbers are the program's: tensors, or objects with operators of their own.
        return 0


def prepare() -> None:
    """Before the program's first line: have its source instrumented."""
    sources.install(loop, goes_on, over, now)


def install(torch: Torch, record: Record, config: HookConfig, usable: Callable[[], bool]) -> tuple[Course, Phases]:
    """Follow the loops of a program from now on; gives the course and the phases."""
    global _course, _compiling
    compiler = getattr(torch, "compiler", None)
    _compiling = getattr(compiler, "is_compiling", None) or _compiling
    gauge = meter.Meter(torch, usable)
    course = Course(gauge, config["stop"])
    course.headroom = lambda: _headroom(torch, gauge)
    calm = quiet.Quiet(torch)
    found = phases.Phases(gauge, _compiling)
    course.on_iteration = found.iteration_ended
    course.warn = record.warn
    course.witness = lambda: Witness(torch)
    course.abridger = Abridger(torch, _compiling)
    phases.attach(torch, found, calm, hook.on_import)
    libraries.attach(course)
    record.unreached = Unreached(found, course.cut_short)
    record.unreached.attach(hook.on_import)
    _agree(torch, course, record)
    found.on_backward = course.ran_backward
    hook.in_new_run(lambda: _begin_again(torch, course, record, config))
    record.phases, record.course = found, course
    _course = course
    return course, found


def _begin_again(torch, course, record, config):
    course.configure(config["stop"])
    _agree(torch, course, record)


def _agree(torch, course, record):
    """Have the ranks of a job decide alike, by files in the folder of the run."""
    common = agreement.Lazily(torch, hook.run_folder() or record.folder)
    course.agree, course.is_alone = common, common.is_alone


def _headroom(torch, gauge):
    """What the fullest card has left for the framework: free on the card, or reserved and not allocated."""
    least = None
    for device, (reserved, allocated) in gauge.read().items():
        free, total = torch.cuda.mem_get_info(device)
        if total >= _UNLIMITED:
            continue
        left = free + reserved - allocated
        least = left if least is None else min(least, left)
    return least
