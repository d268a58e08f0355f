"""The base of the watchers of these frameworks: peaks while the program runs, and the error that ended it."""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import threading
import weakref

from oomph import _protocol as protocol
from oomph import ends, forked, hook, sites
from oomph.frameworks import kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any

    from oomph._protocol import HookOom, HookSite, Phase
    from oomph._types import Peaks
    from oomph.record import Record

_SAMPLE_SECONDS = 0.5
_LONGEST_MESSAGE = 2000
"""How many characters of an error's message are kept."""

DTYPE_BYTES = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1, "int16": 2,
                "int32": 4, "int64": 8, "complex64": 8, "complex128": 16}  # fmt: skip
"""Bytes of an element, by what TensorFlow and ONNX Runtime call its type."""
_SCALE = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class FrameworkWatcher:
    """Joins a framework to the record of this process. A framework's own watcher says how its memory is read."""

    owners: None = None
    """Nobody names the blocks of these frameworks' pools; `oomph.ends` asks."""

    def __init__(self, record: Record, texts: tuple[str, ...]) -> None:
        self.record = record
        self.texts = texts
        """What the framework's out-of-memory errors say, in small letters."""
        self.kept: list[dict[str, Any]] = []
        """What the program keeps on the card, more with every iteration, when it ran out of memory."""
        self._met: weakref.ref[BaseException] | None = None
        """The last error that was made."""
        self._hearing = threading.local()
        """`one` while an error is looked at that was just made."""
        self._ended = threading.Event()

    def attach(self) -> None:
        """Begin: read the peaks when the record is written, now and then, and when the process ends."""
        ends.install(self)
        if type(self).peaks is FrameworkWatcher.peaks:
            return
        self.record.add_memory(self.peaks)
        forked.ask_at_fork(self.is_in_use)
        hook.in_each_run(self._begin_sampling)

    def _begin_sampling(self):
        import atexit

        # A process that is killed leaves what was written last.
        sampler = threading.Thread(target=self._sample, name="oomph", daemon=True)
        sampler.start()
        atexit.register(ends.safely, self._end, sampler)

    def is_in_use(self) -> bool:
        """Whether the framework has begun with a card, by what Python knows: a forked child asks this of its parent."""
        return False

    def peaks(self) -> Peaks:
        """The framework's peaks: {device: (reserved or None, allocated)}; empty while it has not used a card."""
        return {}

    def present(self) -> Peaks:
        """What is in use now: {device: (reserved or None, allocated)}."""
        return self.peaks()

    def _sample(self):
        known = None
        while not self._ended.wait(_SAMPLE_SECONDS):
            try:
                peaks = self.peaks()
            except Exception:
                # The thread samples while the framework is at work, and tries again a little later.
                continue
            if peaks and peaks != known:
                known = peaks
                self.record.write()

    def _end(self, sampler):
        # A thread inside of the framework would be in the way of its own end.
        self._ended.set()
        sampler.join(1.0)

    def finish(self) -> None:
        """The process leaves by `os._exit`."""
        self.record.write_if_used()

    # -- out of memory -----------------------------------------------------------------------------------------

    def is_oom(self, error: BaseException) -> bool:
        """Say whether an exception is this framework's word for a card that is full."""
        try:
            text = str(error).lower()
        except Exception:
            # Another library's exception may fail at its own text.
            return False
        return any(known in text for known in self.texts)

    def failed(self, error: BaseException) -> None:
        """An exception ends the program: if the card was full, say so in the record."""
        cause = sites.find_oom(error, self.is_oom)
        if cause is not None:
            self._note(cause, error)
        self.record.write()

    def hear(self, *kinds: type[BaseException]) -> None:
        """Learn of each out-of-memory error of these classes that Python code gets to see, whether it is caught or not."""
        for kind in kinds:
            self._hear(kind)

    def _hear(self, kind):
        previous = kind.__init__

        def __init__(error, *args, **kwargs):
            previous(error, *args, **kwargs)
            # TensorFlow makes a whole error to give another one its text.
            if not getattr(self._hearing, "one", False):
                self._hearing.one = True
                try:
                    hook.guarded(self.raised, error)
                finally:
                    self._hearing.one = False

        kind.__init__ = __init__

    def raised(self, error: BaseException) -> None:
        """An exception was made, and is about to reach Python code. The program may catch it."""
        if not self.is_oom(error):
            return
        known = self.record.oom
        handled = sys.exc_info()[1]
        # What fails while the first error is on its way is a consequence of it.
        if known is not None and handled is not None and self._is_that(known, handled):
            return
        if known is None or not (known["fatal"] or self.is_met_again(known, error)):
            self._met = weakref.ref(error)
            self.record.note_oom(self._facts(error, sites.site_of_frame(sys._getframe()), _frames_around(sys._getframe())))
            self.record.write()

    def is_met_again(self, known: HookOom, error: BaseException) -> bool:
        """Whether it is the error that is known: it comes from all that was computed of what was refused, and wrapped."""
        return known["message"] in sites.message_of(error)

    def leaving(self, code: object) -> None:
        """The program asks to end with `code`, perhaps because of the error that it is handling."""
        if code not in (None, 0, False):
            handled = sys.exc_info()[1]
            if handled is not None and not isinstance(handled, SystemExit):
                self.failed(handled)

    def _note(self, cause, error):
        known = self.record.oom
        if known is not None and known["fatal"]:
            return
        site = sites.site_of_traceback(cause.__traceback__) or sites.site_of_traceback(error.__traceback__)
        if known is not None and self._is_that(known, error):
            # It was not caught after all. What is known of the moment when it was made is better than what is left of it now.
            known["fatal"] = True
            known["site"] = known["site"] or site
        else:
            known = self._facts(cause, site, _frames_of(cause.__traceback__))
            known["fatal"] = True
            self.record.note_oom(known)
        hook.guarded(self._note_kept, [error.__traceback__, cause.__traceback__], known["device"])

    def _is_that(self, known, error):
        """Whether an exception is, or came out of, the error that is known. Frameworks change the words of one on its way."""
        met = self._met() if self._met is not None else None
        return sites.find_oom(error, lambda one: one is met or self.is_oom(one) and self.is_met_again(known, one)) is not None

    def _facts(self, cause: BaseException, site: HookSite | None, frames: Iterable[FrameType]) -> HookOom:
        program, site = self.place(sites.message_of(cause), site)
        device, (reserved, allocated) = self._fullest()
        return {
            "device": device,
            "requested_bytes": requested_of(str(cause)),
            "allocated_bytes": None if allocated is None else int(allocated),
            "reserved_bytes": None if reserved is None else int(reserved),
            "free_bytes": free_on(device),
            "message": _message_of(cause),
            "step": self.record.steps + 1 if self.record.steps else 0,
            "phase": self.phase(frames),
            "site": site,
            "library_site": None,
            "module": None,
            "model": program,
            "fatal": False,
            "unread": False,
        }

    def on_card(self, value: Any) -> Iterable[tuple[int, int]]:
        """The arrays on a card in a value: pairs of what identifies each, and its bytes."""
        return ()

    def _note_kept(self, traces, device):
        """Say which container of the program's holds more of the card with every iteration of the loop that died."""
        total = total_of(device)
        for trace in traces:
            for found in kept.growing(trace, self.on_card):
                if found["bytes"] * kept.WEIGHS < total or any(known["name"] == found["name"] for known in self.kept):
                    continue
                self.kept.append(found)
                self.record.warn(
                    "`%s` keeps %d values on the card, %.2f GiB, and %s:%d adds to it in every iteration."
                    % (found["name"], found["count"], found["bytes"] / 2.0**30, os.path.basename(found["file"]), found["line"])
                )
        described = self.record.program
        if self.kept and hasattr(described, "kept"):
            described.kept = list(self.kept)

    def phase(self, frames: Iterable[FrameType]) -> Phase:
        """What the program was doing, in the words of `hook/PID.json`, by the frames of a stack."""
        return protocol.PHASE_OTHER

    def place(self, message: str, site: HookSite | None) -> tuple[str | None, HookSite | None]:
        """The compiled program that an error names, if any, and the line of the user's that it belongs to."""
        return None, site

    def _fullest(self):
        """The device whose memory was the most used: the errors do not name it."""
        try:
            present = self.present()
        except Exception:
            # The framework has just failed and may fail at the question too.
            present = {}
        if not present:
            return 0, (None, None)
        return max(present.items(), key=lambda item: (item[1][1], -item[0]))


def _frames_of(trace):
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _frames_around(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def _message_of(error):
    return sites.message_of(error)[:_LONGEST_MESSAGE]


def requested_of(message: str) -> int:
    """The bytes that an error says were asked for; 0 where it does not say."""
    found = re.search(r"smaller than requested bytes of (\d+)", message)
    if found:
        return int(found.group(1))
    found = re.search(r"(?:allocat\w+|buffer of size)\s+([0-9.]+)\s*([kmgt]?)(?:i?b\b|bytes)?", message, re.IGNORECASE)
    if found and found.group(1).strip("."):
        return int(float(found.group(1)) * _SCALE[found.group(2).lower()])
    found = re.search(r"tensor with shape\[([0-9,]*)\] and type (\w+)", message)
    if found:
        sizes = [int(size) for size in found.group(1).split(",") if size]
        return math.prod(sizes) * DTYPE_BYTES.get(found.group(2), 0)
    return 0


def free_on(device: int) -> int:
    """What the card has left, in bytes; 0 where the CUDA runtime cannot be asked."""
    return _memory_of(device)[0]


def total_of(device: int) -> int:
    """What the card has in all, in bytes; 0 where the CUDA runtime cannot be asked."""
    return _memory_of(device)[1]


def _memory_of(device):
    if forked.is_away():
        return 0, 0
    try:
        runtime = ctypes.CDLL(None)
        before = ctypes.c_int()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if runtime.cudaGetDevice(ctypes.byref(before)) or runtime.cudaSetDevice(device):
            return 0, 0
        failed = runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        runtime.cudaSetDevice(before)
        return (0, 0) if failed else (free.value, total.value)
    except (AttributeError, OSError):
        return 0, 0


def given(variable: str) -> str | None:
    """A variable of the environment; None where it is not set or empty."""
    return os.environ.get(variable) or None
