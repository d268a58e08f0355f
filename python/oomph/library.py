"""What a program may use of oomph itself: `oomph.watch()`, `oomph.report()` and `oomph.scalars()`.

It is the observer of `oomph run` without the command around it: the same signs, the same recording, the same explanation by
`oomph explain`. In a program that runs under oomph already, there is nothing to start.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from oomph import _protocol as protocol
from oomph import hook, installed
from oomph.signs import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal

_RECORDS = ("off", "light", "full")

_RING = 100000
"""Events that PyTorch's recording keeps per card, as in `oomph run`."""

_current: Watch | None = None
"""The watch of this process: it has one record."""


class Watch:
    """Watches the memory of this process until `stop()`, or the end of the `with` block or of the process."""

    def __init__(self, record: str = "light", keep: str = "oomph-run", quiet: bool = False) -> None:
        if record not in _RECORDS:
            raise ValueError("record is %r; it may be 'off', 'light' or 'full'" % (record,))
        self.record = record
        self.keep = keep
        self.quiet = quiet
        self.folder: str | None = None
        self.recording: str | None = None
        """Where the recording of a death is, once there was one."""
        self._lock: int | None = None
        self._explained: set[int] = set()

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        if error is not None:
            self.explain(error)
        self.stop()
        return False

    def start(self) -> Watch:
        """Begin to watch; at once if CUDA is in use, else from its first use on."""
        global _current
        if hook._installed:
            # Under `oomph run`, or a second watch: the first one watches for both.
            return self
        _current = self
        self.folder, self._lock = _run_folder(
            {
                "schema": protocol.SCHEMA_HOOK_CONFIG,
                "stop": {"mode": "exit", "steps": 0},
                "follow": False,
                "values": "off",
                "allow_writes": True,
                "network": "all",
                "random_weights": False,
                "program_root": os.getcwd(),
                "history": self.record != "off",
                "history_entries": _RING,
                "names": self.record == "full",
                "guard": {"quiet": self.quiet},
            }
        )
        before = os.environ.get(protocol.PATH_RUN_VARIABLE)
        os.environ[protocol.PATH_RUN_VARIABLE] = self.folder
        try:
            hook.install()
            from oomph import record

            record.current()
        finally:
            # A child that this program starts is not watched.
            if before is None:
                del os.environ[protocol.PATH_RUN_VARIABLE]
            else:
                os.environ[protocol.PATH_RUN_VARIABLE] = before
        self._hear_the_end()
        return self

    def stop(self) -> None:
        """Stop the recording and the warnings. What was counted stays for `oomph.report()`."""
        if self.folder is None:
            return
        from oomph import record

        guard = record.current().guard
        if guard is not None:
            guard.quiet = True
        torch = sys.modules.get("torch")
        if self.record != "off" and torch is not None and torch.cuda.is_initialized():
            torch.cuda.memory._record_memory_history(None)
        # What is still written at the end of the process must not make the folder again.
        record.current().folder = os.devnull
        shutil.rmtree(self.folder, True)
        self.folder = None
        if self._lock is not None:
            os.close(self._lock)

    def explain(self, error: BaseException) -> None:
        """After an out-of-memory error: keep the recording, and say whose the memory was."""
        torch = sys.modules.get("torch")
        if self.folder is None or torch is None or id(error) in self._explained:
            return
        if not isinstance(error, getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)):
            return
        self._explained.add(id(error))
        self.recording = hook.guarded(self._kept)
        program = installed.find()
        if self.recording is None or program is None:
            return
        sys.stderr.flush()
        explained = subprocess.run(
            [program, "explain", self.recording], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        text = explained.stdout.decode("utf-8", "replace")
        sys.stderr.write("%s\noomph: the recording is %s\n" % (text, self.recording))

    def _kept(self):
        """Copy what the hook left of the death to where it stays."""
        if self.folder is None:
            return None
        recorded = os.path.join(self.folder, protocol.PATH_HOOK, str(os.getpid()))
        if not os.path.exists(recorded + protocol.PATH_SNAPSHOT_END):
            return None
        os.makedirs(self.keep, exist_ok=True)
        name = "%s-%d" % (time.strftime("%Y%m%d-%H%M%S"), os.getpid())
        path = os.path.join(self.keep, name)
        shutil.copyfile(recorded + protocol.PATH_SNAPSHOT_END, path + ".pickle")
        if os.path.exists(recorded + protocol.PATH_NAMES_END):
            shutil.copyfile(recorded + protocol.PATH_NAMES_END, path + protocol.PATH_NAMES_END)
        return path + ".pickle"

    def _hear_the_end(self):
        import atexit

        previous = sys.excepthook

        def excepthook(kind, error, traceback):
            previous(kind, error, traceback)
            hook.guarded(self.explain, error)

        sys.excepthook = excepthook
        atexit.register(self.stop)


def watch(record: str = "light", keep: str = "oomph-run", quiet: bool = False) -> Watch:
    """Watch the memory of this process: `with oomph.watch():`, or `oomph.watch().start()`.

    It warns once when what is held grows with each step or the allocator runs short, with a forecast; and after an
    out-of-memory error it says whose the memory was. `record` is 'off', 'light' or 'full', as in `oomph run`; recordings of
    a death are kept in the folder `keep`. `oomph watch` in another terminal shows the process.
    """
    return Watch(record, keep, quiet)


class Report(dict):
    """What the cards hold now, as `oomph.report()` gives it; printed, it is a few lines for people."""

    def __str__(self) -> str:
        lines = []
        for card in self["devices"]:
            lines.append("GPU %d, %s: %s of %s free" % (
                card["index"], card["name"], size(card["free_bytes"]), size(card["total_bytes"])))
            lines.append("  PyTorch: %s allocated (peak %s), %s reserved (peak %s)" % (
                size(card["allocated_bytes"]), size(card["allocated_peak_bytes"]),
                size(card["reserved_bytes"]), size(card["reserved_peak_bytes"])))
            if card["fragments_bytes"]:
                lines.append("  of the reserved %s are pinned by fragments" % size(card["fragments_bytes"]))
            if card["outside_bytes"] is not None:
                lines.append("  this process holds %s outside PyTorch" % size(card["outside_bytes"]))
            if card["retries"]:
                lines.append("  PyTorch gave its cache back %d times to get memory" % card["retries"])
        lines.extend("warning: %s" % sign for sign in self["signs"])
        return "\n".join(lines) or "no GPU is in use yet"


def report() -> Report:
    """What the cards hold now: of each the card, this process, and PyTorch, in bytes; None where a figure is not to be had."""
    found = _seen()
    if found["devices"]:
        outside = _outside()
        for card in found["devices"]:
            card["outside_bytes"] = outside.get(card["uuid"])
    return found


def scalars() -> dict[str, float]:
    """The figures of `report()` for a logger: names as `oomph/allocated_gib/0`, values in GiB."""
    figures = {}
    for card in _seen()["devices"]:
        for what in ("allocated", "reserved", "allocated_peak", "reserved_peak", "free"):
            figures["oomph/%s_gib/%d" % (what, card["index"])] = card[what + "_bytes"] / 2.0**30
        figures["oomph/retries/%d" % card["index"]] = float(card["retries"] or 0)
    return figures


def _seen():
    """What is known without asking the driver for processes."""
    from oomph import record

    torch = sys.modules.get("torch")
    found = Report(steps=0, devices=[], signs=[])
    if torch is None or not torch.cuda.is_initialized():
        return found
    current = record._current
    if current is not None:
        found["steps"] = current.steps
        found["signs"] = list(current.guard.signs) if current.guard is not None else []
        peaks = current.refresh_peaks()
        current.write()
    else:
        peaks = {}
    for index in range(torch.cuda.device_count()):
        stats = torch._C._cuda_memoryStats(index)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        if not reserved["peak"] and index not in peaks:
            continue
        free, total = torch.cuda.mem_get_info(index)
        before = peaks.get(index, (0, 0))
        properties = torch.cuda.get_device_properties(index)
        split = stats.get("inactive_split_bytes")
        found["devices"].append({
            "index": index,
            "name": properties.name,
            "uuid": str(properties.uuid) if hasattr(properties, "uuid") else None,
            "total_bytes": total,
            "free_bytes": free,
            "allocated_bytes": allocated["current"],
            "reserved_bytes": reserved["current"],
            "allocated_peak_bytes": max(before[1], allocated["peak"]),
            "reserved_peak_bytes": max(before[0], reserved["peak"]),
            "fragments_bytes": split["all"]["current"] if split else None,
            "retries": stats.get("num_alloc_retries"),
            "outside_bytes": None,
        })
    return found


def _outside():
    """What this process holds outside PyTorch's allocator, by card, as `oomph watch` reads it from the driver."""
    program = installed.find()
    if program is None or _current is None and not hook._installed:
        return {}
    try:
        listed = subprocess.run(
            [program, "watch", "--once", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, timeout=10,
        )
        cards = json.loads(listed.stdout.decode("utf-8"))["cards"]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return {}
    found = {}
    for card in cards:
        for process in card["processes"]:
            if process["pid"] == os.getpid() and process["outside_bytes"] is not None:
                found[(card["uuid"] or "").replace("GPU-", "")] = process["outside_bytes"]
    return found


def _run_folder(config):
    """A folder where `oomph watch` finds this process, and the descriptor whose lock says that it lives."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", tempfile.gettempdir()):
        if not base or not os.path.isabs(base):
            continue
        path = os.path.join(base, "oomph-%d-%s" % (os.getpid(), os.urandom(8).hex()))
        try:
            os.mkdir(path, 0o700)
        except OSError:
            continue
        lock = os.open(os.path.join(path, protocol.PATH_LAUNCHER_LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(os.path.join(path, protocol.PATH_HOOK_CONFIG), "w") as file:
            json.dump(config, file)
        return path, lock
    raise OSError("cannot make a folder in %s" % tempfile.gettempdir())
