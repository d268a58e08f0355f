"""Collects what the hook saw in this process, and writes it to $OOMPH_RUN/hook/PID.json.

The file is replaced as a whole each time, so whoever reads it sees one consistent state, however the process dies.
"""

from __future__ import annotations

import os
import sys
import threading
import time

# The overlay replaces the public names of these; the record is written with the originals.
from io import open as _open

from oomph import _protocol as protocol
from oomph import forked, ranks, sites
from oomph.documents import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

    from oomph._protocol import (
        AppliedRemedy,
        HookAllowed,
        HookCompiled,
        HookFailure,
        HookFault,
        HookFollowedLoop,
        HookHeld,
        HookHostShortage,
        HookLimit,
        HookOom,
        HookSite,
        HookUnknownSize,
        HookUnreached,
        Moment,
        Stopped,
    )
    from oomph._types import Peaks
    from oomph.batches import Batches
    from oomph.catchers import Caught
    from oomph.guard import Guard
    from oomph.loops.course import Course
    from oomph.loops.unreached import Unreached
    from oomph.phases import Phases
    from oomph.work import Work

_replace = os.replace
_mkdir = os.makedirs

SELECTED = "the number of selected elements depends on a value that was never computed"
"""What is said where a size is not known."""
_MIN_INTERVAL = 0.2
_MOST_READS = 10000
"""How many functions that read values back are remembered."""
_current: Record | None = None


def _number(name):
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def _rank():
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0


class Record:
    """The record of one process. Every method may be called from any thread and none of them raises."""

    phases: Phases | None
    course: Course | None
    unreached: Unreached | None

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._memory: list[Callable[[], Peaks]] = []
        self._lock = threading.RLock()
        self._begin()

    def _begin(self):
        self.frameworks: dict[str, str] = {}
        self.architectures: list[str] = []
        """What the framework's own kernels were built for: `sm_90` is machine code, `compute_90` text that is compiled."""
        self.stopped: Stopped | None = None
        self.steps: int = 0
        self.oom: HookOom | None = None
        self.oom_at_step: int | None = None
        self.caught: Caught | None = None
        """Who catches the last error, as far as the stack showed it."""
        self.failed_in: int | None = None
        """The thread of the exception that ends the program."""
        self.refusal: HookOom | None = None
        """The allocator's newest refusal that no exception has reported."""
        self.refusal_caught: Caught | None = None
        self.warnings: list[str] = []
        self.unknown_sizes: dict[tuple[str, tuple[str, int] | None], HookUnknownSize] = {}
        """Sizes that hang on values that were never computed, by operation and place."""
        self.host: HookHostShortage | None = None
        """What the host could not give, where that ended the program."""
        self.peaks: dict[int, tuple[int, int]] = {}
        self.remedies: list[Callable[[], AppliedRemedy]] = []
        """Callables that each give the report of one remedy."""
        self.program: Any = None
        """What the program is (`oomph.program.Program`), once a framework is there."""
        self.batches: Batches | None = None
        """How the batches differ (`oomph.batches.Batches`), once a framework is there."""
        self.work: Work | None = None
        """What the steps compute and move (`oomph.work.Work`), once a framework is there."""
        self.current_memory: Callable[[], dict[int, tuple[int, int]]] | None = None
        """A callable that gives {device: (reserved peak, allocated peak)} as of now; set by the watcher of PyTorch."""
        self.phases = self.course = self.unreached = None
        """The phases of the program and its loops (`oomph.phases`, `oomph.loops`), once they are followed."""
        self.limits: dict[int, HookLimit] = {}
        """How much of a device a framework may take by its own settings: {device: {"bytes": n, "scales": how}}."""
        self.preallocates = False
        """Whether a framework took its pool at its start, so that the pool says nothing of the need."""
        self.fallback: str | None = None
        """Why something other than the cards did the work, in a sentence; None where nothing did."""
        self.asked_for_card: dict[str, bool] = {}
        """Libraries with a CUDA runtime of their own, by the start of the file's name: whether the program asked for a card."""
        self.shares: list[float | None] = []
        """The share of its card that each engine of vLLM's takes; None where its cache is not what is left of it."""
        self.cache: tuple[int, int] | None = None
        """What one request of the longest length needs of that cache, and what the cache has, in bytes."""
        self.failure: HookFailure | None = None
        """The exception that ended the program: {"kind": its class, "message": its words}."""
        self.shortened: list[HookFollowedLoop] = []
        """Loops of frameworks that were shortened, in addition to the user's own."""
        self.left_out: list[HookUnreached] = []
        """What frameworks without loops of the user's left out: {"phase", "why", "certain"}."""
        self.compiled: list[HookCompiled] = []
        """What XLA says that the largest compiled programs need."""
        self.faults: list[HookFault] = []
        """What died in oomph's own code (`oomph.faults`)."""
        self.guard: Guard | None = None
        """What follows the trainer of a run that counts (`oomph.guard.Guard`)."""
        self.memory_now: Callable[[Moment], list[HookHeld]] | None = None
        self.allowed: Callable[[int], HookAllowed | None] | None = None
        """What the program lets the allocator take of a card."""
        self._allowed: dict[int, HookAllowed] = {}
        """A callable that gives what PyTorch's allocator held at the last look, by moment; `oomph watch` reads it."""
        self.reads: dict[CodeType, tuple[int, HookSite | None]] = {}
        """Functions that read a value back that was never computed, or called what did: the last instruction that did, and
        the user's line of it."""
        self._written = 0.0

    def forked(self) -> None:
        """Begin again in a forked child: what the parent saw is the parent's."""
        frameworks, architectures, asked = self.frameworks, self.architectures, self.asked_for_card
        memory, remedies, program = self.current_memory, self.remedies, self.program
        phases, course, unreached = self.phases, self.course, self.unreached
        work, memory_now, allowed = self.work, self.memory_now, self.allowed
        self._lock = threading.RLock()
        self._begin()
        self.memory_now, self.allowed = memory_now, allowed
        self.frameworks, self.architectures, self.asked_for_card = dict(frameworks), architectures, dict(asked)
        self.current_memory, self.remedies, self.program = memory, remedies, program
        self.phases, self.course, self.unreached = phases, course, unreached
        self.work = work
        for followed in (phases, course, work):
            if followed is not None:
                followed.forked()

    def warn(self, sentence: str, instead_of: str | None = None) -> None:
        """Add one sentence for the report, perhaps in place of an earlier one; the same sentence is kept once."""
        with self._lock:
            if instead_of in self.warnings:
                self.warnings.remove(instead_of)
            if sentence not in self.warnings and len(self.warnings) < 50:
                self.warnings.append(sentence)

    def note_unknown_size(self, operation: str, site: HookSite | None, most: int, taken: int) -> None:
        """Remember that a result could have any number of elements up to `most`, and that `taken` stand for them."""
        with self._lock:
            key = (operation, site and (site["file"], site["line"]))
            known = self.unknown_sizes.get(key)
            if known is None:
                if len(self.unknown_sizes) < 50:
                    self.unknown_sizes[key] = {
                        "operation": operation, "site": site, "low": 0, "high": most, "taken": taken,
                    }
            elif most > known["high"]:
                known["high"], known["taken"] = most, taken

    def note_selected(self, operation: str, site: HookSite | None, most: int, least: bool) -> None:
        """Remember and say that all that an operation could select was taken, or, where the run asks for the `least`, nothing."""
        self.note_unknown_size(operation, site, most, 0 if least else most)
        place = "%s:%d" % (site["file"], site["line"]) if site else "in a library"
        taken = "none is taken" if least else "all are taken, the most there can be"
        self.warn("%s: %s; %s" % (place, SELECTED, taken))

    def add_memory(self, peaks: Callable[[], Peaks]) -> None:
        """Count the pools of a framework other than PyTorch: `peaks()` gives {device: (reserved or None, allocated)}."""
        self._memory.append(peaks)

    def all_peaks(self) -> Peaks:
        """The peaks of all frameworks of this process: {device: (reserved or None, allocated)}.

        Pools of several frameworks are separate, so they add up; a figure that one does not report is unknown for the sum.
        """
        total: Peaks = {**self.refresh_peaks()}
        for peaks in () if forked.is_away() else self._memory:
            try:
                found = peaks()
            except Exception:
                # The record is also written while a framework fails, and the peaks of the others are worth having.
                continue
            for device, (reserved, allocated) in found.items():
                before = total.get(device, (0, 0))
                both = None if reserved is None or before[0] is None else before[0] + reserved
                total[device] = (both, before[1] + allocated)
        return total

    def keep_peak(self, device: int, reserved: int, allocated: int) -> None:
        """Remember a peak that the framework is about to forget."""
        with self._lock:
            old = self.peaks.get(device, (0, 0))
            self.peaks[device] = (max(old[0], int(reserved)), max(old[1], int(allocated)))

    def refresh_peaks(self) -> dict[int, tuple[int, int]]:
        """Take over the framework's present peaks; give {device: (reserved, allocated)}."""
        memory = self.current_memory
        if memory is not None:
            try:
                for device, (reserved, allocated) in memory().items():
                    self.keep_peak(device, reserved, allocated)
            except Exception:
                # torch may fail at the question while it raises an error; the peaks known before stay.
                pass
        return self.peaks

    def note_oom(self, facts: HookOom, caught: Caught | None = None) -> None:
        """Remember the newest out-of-memory error, and who catches it; one that was followed by another was evidently survived."""
        with self._lock:
            if self.oom is not None and not self.oom["fatal"]:
                self._warn_caught(self.oom)
            self.oom = facts
            self.oom_at_step = self.steps
            self.caught = caught

    def note_refusal(self, facts: HookOom, caught: Caught | None = None) -> None:
        """Write that the allocator is about to raise an error, in case the process does not live to tell.

        PyTorch asks for a workspace, is refused, and tries another way of its own: then no error reaches the program.
        """
        with self._lock:
            self.refusal, self.refusal_caught = facts, caught
            before, self.oom = self.oom, facts
            try:
                self.write(moment=protocol.MOMENT_REFUSAL)
            finally:
                self.oom = before

    def refusal_was_raised(self) -> None:
        """An exception has reported the last refusal."""
        with self._lock:
            if self.refusal is not None:
                facts, self.refusal = self.refusal, None
                self.note_oom(facts, self.refusal_caught)

    def mark_fatal(self, message: str | None = None, site: HookSite | None = None) -> None:
        """Say that the last out-of-memory error ended the program."""
        with self._lock:
            if self.oom is None:
                return
            self.oom["fatal"] = True
            if message:
                self.oom["message"] = message
            if site:
                self.oom["site"] = site

    def mark_unread(self, error: BaseException | None) -> None:
        """Say that nobody catches the out-of-memory error that ends a thread."""
        with self._lock:
            if self.oom is not None and self.oom["fatal"] and sites.find_oom(error) is not None:
                self.oom["unread"] = True
                self.write()

    def note_share(self, share: float | None) -> None:
        """Remember that an engine starts, and which share of the card it takes."""
        self.shares.append(share)

    def note_cache(self, needed: int, available: int) -> None:
        """Remember what an engine's cache needs at least and has, in bytes; of several workers the one with the least room."""
        with self._lock:
            before = self.cache
            if before is None or available - needed < before[1] - before[0]:
                self.cache = needed, available

    def note_failure(self, error: BaseException) -> None:
        """Remember the exception that ends the program."""
        site = sites.site_of_traceback(error.__traceback__)
        try:
            message = str(error)[:2000]
        except Exception:
            # An exception of the program's may fail at its own text.
            message = ""
        read_at = self._read_before(error.__traceback__)
        self.failed_in = threading.get_ident()
        abridger = self.course.abridger if self.course is not None else None
        abridged = abridger.interrupted_in(error.__traceback__) if abridger is not None else None
        self.failure = {
            "kind": type(error).__name__, "message": message, "site": site, "read_at": read_at, "abridged": abridged,
            "asked_card": _asked_card(error.__traceback__),
        }  # fmt: skip

    def note_read(self, frame: FrameType | None) -> None:
        """Remember that the code of a frame read a value back that was never computed."""
        if frame is None or len(self.reads) > _MOST_READS or self.reads.get(frame.f_code, (None,))[0] == frame.f_lasti:
            return
        site = sites.site_of_frame(frame)
        for reader in (frame, frame.f_back):
            if reader is not None:
                self.reads[reader.f_code] = reader.f_lasti, site

    def _read_before(self, trace):
        """The user's line that read what was never computed, where the function that raised by its own decision did."""
        last = None
        while trace is not None:
            if not sites.is_own_file(trace.tb_frame.f_code.co_filename):
                last = trace
            trace = trace.tb_next
        if last is None or last.tb_frame.f_code not in self.reads:
            return None
        from oomph import flags

        code = last.tb_frame.f_code
        return self.reads[code][1] if flags.raises_at(code, last.tb_lineno) else None

    def _warn_caught(self, oom):
        site = oom.get("site")
        place = "%s:%d" % (site["file"], site["line"]) if site else "an unknown line"
        phase = "" if oom["phase"] == protocol.PHASE_OTHER else " in the %s phase" % oom["phase"]
        size = "%.2f GiB" % (oom["requested_bytes"] / 2.0**30) if oom["requested_bytes"] else "some memory"
        self.warn(
            "The program caught an out-of-memory error at %s (%s requested%s, step %d) and went on."
            % (place, size, phase, oom["step"])
        )

    def as_dict(self, moment: Moment = protocol.MOMENT_OTHER) -> dict[str, Any]:
        """The record in the form of docs/internals/run-folder.md. `moment` is where in the program it is made."""
        with self._lock:
            peaks = self.all_peaks()
            warnings = list(self.warnings)
            if self.oom is not None and not self.oom["fatal"]:
                self._warn_caught(self.oom)
                warnings, self.warnings = self.warnings, warnings
            return {
                "schema": protocol.SCHEMA_HOOK_REPORT,
                "pid": os.getpid(),
                "argv": [str(argument) for argument in getattr(sys, "argv", None) or []],
                "rank": _rank(),
                "ranks_run": ranks.running() or [],
                "world_size": _number("WORLD_SIZE"),
                "frameworks": dict(self.frameworks),
                "stopped": self.stopped,
                "optimizer_steps": self.steps,
                "devices": [
                    self._device(index, peaks.get(index, (None, 0))) for index in sorted({*peaks, *self.limits})
                ],
                "oom": self._oom(),
                "warnings": warnings,
                "unknown_sizes": list(self.unknown_sizes.values()),
                "host": self.host,
                "cells": _cells(),
                "remedies": [report() for report in self.remedies],
                "program": self._program(),
                "batches": self._batches(),
                "work": self._work(),
                "compiled": list(self.compiled),
                "architectures": list(self.architectures),
                "phases": _listed(self.phases),
                "loops": _listed(self.course) + list(self.shortened),
                "unreached": _listed(self.unreached) + list(self.left_out),
                "fallback": self.fallback,
                "asked_for_card": dict(self.asked_for_card),
                "engine": self._engine(),
                "failure": self.failure,
                "faults": list(self.faults),
                "reads": self._reads(),
                "progress": self._progress(),
                "memory_now": self._memory_now(moment),
            }

    def _oom(self):
        """The last error, with what became of it until now."""
        if self.oom is None:
            return None
        found = dict(self.oom)
        caught = self.caught
        # What another thread's handler did about its error says nothing of the one that failed.
        if caught is not None and caught.by_program and caught.names_it and self.failed_in in (None, caught.thread):
            found["meant"] = True
        if self.oom_at_step is not None and self.steps > self.oom_at_step:
            found["steps_since"] = self.steps - self.oom_at_step
        return found

    def _device(self, index, peaks):
        found = {"index": index, "reserved_peak_bytes": peaks[0], "allocated_peak_bytes": peaks[1]}
        if index in self.limits:
            found["limit"] = self.limits[index]
        if self.preallocates:
            found["preallocates"] = True
        if self._memory:
            found["beside_pool_bytes"] = self.peaks.get(index, (0, 0))[0]
        if self.allowed is not None:
            try:
                self._keep_allowed(index, self.allowed(index))
            except Exception:
                # torch may fail at the question while it raises an error; what was known before stays.
                pass
        if index in self._allowed:
            found["allowed"] = self._allowed[index]
        return found

    def _keep_allowed(self, index, allowed):
        # A process that can no longer ask keeps what it knew.
        if allowed is not None:
            self._allowed[index] = allowed

    def _engine(self):
        # Of several engines in one process it is not known which of them were there together.
        if len(self.shares) != 1 or self.shares[0] is None or self.cache is None:
            return None
        needed, available = self.cache
        return {"share": self.shares[0], "needed_bytes": needed, "available_bytes": available}

    def _reads(self):
        reads = sys.modules.get("oomph.reads")
        try:
            return reads.as_list() if reads is not None else None
        except Exception:
            # The rest of the record is worth having without this part of it.
            return None

    def _batches(self):
        try:
            return self.batches.as_dict() if self.batches is not None else None
        except Exception:
            # The rest of the record is worth having without this part of it.
            return None

    def _work(self):
        try:
            return self.work.as_dict() if self.work is not None else None
        except Exception:
            # The rest of the record is worth having without this part of it.
            return None

    def _progress(self):
        try:
            return self.guard.as_dict() if self.guard is not None else None
        except Exception:
            # The rest of the record is worth having without this part of it.
            return None

    def _memory_now(self, moment):
        """What is held now, in a run that counts. `all_peaks` has just asked the allocator."""
        if self.guard is None or self.memory_now is None:
            return None
        try:
            return {"moment": moment, "time": time.time(), "step": self.steps, "devices": self.memory_now(moment)}
        except Exception:
            # The rest of the record is worth having without this part of it.
            return None

    def _program(self):
        try:
            return self.program.as_dict() if self.program is not None else None
        except Exception:
            # The rest of the record is worth having without this part of it.
            return None

    def write(self, force: bool = True, moment: Moment = protocol.MOMENT_OTHER) -> None:
        """Write the file; without `force` at most a few times a second.

        `moment` is `start`, `step-end`, `refusal` or `other`: what is held at equal moments can be compared.
        """
        try:
            now = time.monotonic()
            if not force and now - self._written < _MIN_INTERVAL:
                return
            with self._lock:
                self._written = now
                text = as_json(self.as_dict(moment))
                folder = os.path.join(self.folder, protocol.PATH_HOOK)
                _mkdir(folder, exist_ok=True)
                path = os.path.join(folder, "%d%s" % (os.getpid(), protocol.PATH_REPORT_END))
                part = "%s.%d.part" % (path, threading.get_ident())
                with _open(part, "wb") as file:
                    file.write(text)
                _replace(part, path)
        except Exception:
            # The launcher may have removed the folder already, or the disk is full: the program goes on.
            pass

    def write_if_used(self) -> None:
        """Write the file unless this process never did anything worth reporting, like a data loading worker."""
        if self._written or self.steps or self.oom or self.faults or self.all_peaks():
            self.write()


def _listed(followed):
    try:
        return followed.as_list() if followed is not None else []
    except Exception:
        # The rest of the record is worth having without this part of it.
        return []


def current() -> Record:
    """The record of this process, made on first use; in a forked child a fresh one."""
    global _current
    if _current is None:
        _current = Record(os.environ.get(protocol.PATH_RUN_VARIABLE) or os.curdir)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_current.forked)
    return _current


def _cells():
    from oomph import notebook

    try:
        return notebook.cells()
    except Exception:
        # IPython's inner names change with its versions; without the cells, lines have the names of their files.
        return []


def _asked_card(trace):
    """The number of the card that torch.cuda refused itself, such as `get_device_properties(1)`; None for other errors."""
    last = None
    while trace is not None:
        last, trace = trace.tb_frame, trace.tb_next
    if last is None or not str(last.f_globals.get("__name__", "")).startswith("torch.cuda"):
        return None
    number = last.f_locals.get("device")
    number = getattr(number, "index", number)
    return number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None
