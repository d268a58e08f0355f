"""Carries out `oomph attach` inside a program: look, record some steps, wait for an out-of-memory error, stop.

Only the standard library and a torch that the program has imported are used. Nothing is imported for the program,
nothing is allocated on a card, and nothing stays behind but what was asked for: while a recording goes on or a watch is
kept, `sys._oomph_attached` holds it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from io import open as _open

from oomph import _protocol as protocol
from oomph.documents import as_json
from oomph.history import History, write_whole
from oomph.owners.graph import Graph
from oomph.owners.modules import Modules
from oomph.owners.notes import Notes
from oomph.owners.optimizers import Optimizers
from oomph.owners.share import Share
from oomph.owners.survey import survey
from oomph.owners.tensors import Tensors
from oomph.owners.workspaces import see_workspaces
from oomph.quiet import Quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from oomph._types import Library, Optimizer, Torch

KEPT = "_oomph_attached"
"""The attribute of `sys` that holds what goes on."""

MOST_DUMPS = 10
"""How many out-of-memory errors are written out by one watch; a program that looks for its batch size has many."""


class Warnings:
    """What the history wants to say, kept for the answer."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


def carry_out(folder: str, write: Callable[[str], None]) -> str | None:
    """Carry out the order in a folder. Give the answer as text, or None where it is written later with `write`."""
    began = time.perf_counter()
    with _open(os.path.join(folder, "taken.json"), "rb") as file:
        order = json.loads(file.read().decode("utf-8"))
    answer = {"pid": os.getpid(), "python": platform.python_version(), "torch": None, "devices": [], "notes": []}
    answer["in_main_thread"] = threading.current_thread() is threading.main_thread()
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "__version__") or not hasattr(torch, "cuda"):
        answer["why"] = "it has not imported PyTorch" if torch is None else "it is importing PyTorch now"
        return json.dumps(answer)
    answer["torch"] = str(torch.__version__)
    if not torch.cuda.is_initialized():
        answer["why"] = "PyTorch has not used CUDA in it yet"
        return json.dumps(answer)
    action = order["action"]
    if action == "look":
        look(torch, folder, order, answer)
    elif action == "record":
        return record(torch, folder, order, answer, write)
    elif action == "watch":
        watch(torch, folder, order, answer)
    elif action in ("finish", "stop"):
        stop(torch, folder, order, answer, action)
    answer["seconds"] = time.perf_counter() - began
    return json.dumps(answer)


# -- looking -------------------------------------------------------------------------------------------------------


def look(
    torch: Torch, folder: str, order: dict[str, Any], answer: dict[str, Any], history: History | None = None
) -> None:
    """The allocator's figures, a snapshot, and names for its blocks."""
    answer["devices"] = devices(torch)
    kept = getattr(sys, KEPT, None)
    enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    answer["recording"] = "ours" if kept is not None else "theirs" if enabled is not None and enabled() else "off"
    if order.get("snapshot", True):
        write_files(torch, os.path.join(folder, "snapshot"), answer, history)


def devices(torch: Torch) -> list[dict[str, Any]]:
    """The figures of each card that PyTorch has memory of, and of the current one."""
    found = []
    current = torch.cuda.current_device()
    capturing = getattr(torch.cuda, "is_current_stream_capturing", lambda: False)()
    for index in range(torch._C._cuda_getDeviceCount()):
        stats = torch._C._cuda_memoryStats(index)
        bytes_of = lambda name, part="current", stats=stats: stats[name]["all"][part]
        if index != current and not bytes_of("reserved_bytes", "peak"):
            # To ask the driver about a card that the program does not use would begin to use it.
            continue
        properties = torch.cuda.get_device_properties(index)
        free = total = None
        if not capturing:
            free, total = torch.cuda.mem_get_info(index)
        found.append({
            "index": index,
            "name": properties.name,
            "uuid": str(properties.uuid) if hasattr(properties, "uuid") else None,
            "total_bytes": total if total is not None else properties.total_memory,
            "free_bytes": free,
            "allocated_bytes": bytes_of("allocated_bytes"),
            "reserved_bytes": bytes_of("reserved_bytes"),
            "allocated_peak_bytes": bytes_of("allocated_bytes", "peak"),
            "reserved_peak_bytes": bytes_of("reserved_bytes", "peak"),
            "allocations": stats["allocation"]["all"]["current"],
            "retries": stats.get("num_alloc_retries", 0),
            "refusals": stats.get("num_ooms", 0),
        })
    return found


def write_files(torch: Torch, base: str, answer: dict[str, Any], history: History | None = None) -> None:
    """Write a snapshot and the names of its blocks, as the hook does (docs/internals/run-folder.md)."""
    if history is None:
        history = History(torch, Warnings(), 1)
    tensors, notes, share, quiet = Tensors(torch), Notes(torch._C._cuda_memoryStats), Share(), Quiet(torch)
    for device in range(torch._C._cuda_getDeviceCount()):
        notes.starts[device] = notes.count(device)
    modules = Modules(torch, tensors, notes, share, quiet)
    graph = Graph(torch, tensors, quiet)
    # A walk through the graph of autograd can run what the program hung on it, like a checkpoint's recomputation.
    graph._blocked = True
    moment = notes.moment()
    try:
        survey(torch, tensors, modules, Optimizers(tensors, modules), graph, moment)
    except Exception as error:
        # The walk reads attributes of the program's objects, whose code may raise anything. What was named so far is kept.
        answer["notes"].append("not all blocks were named: %s: %s" % (type(error).__name__, error))
    snapshot = history.snapshot()
    try:
        see_workspaces(torch, snapshot, notes)
    except Exception:
        # Names of workspaces are an extra; the snapshot is worth having without them.
        pass
    names = as_json(notes.as_dict(os.getpid()))
    before = os.umask(0o077)
    try:
        write_whole(base + protocol.PATH_NAMES_END, lambda file: file.write(names))
        write_whole(base + ".pickle", lambda file: history.save(snapshot, file))
    finally:
        os.umask(before)
    answer["snapshot"] = True


# -- recording -----------------------------------------------------------------------------------------------------


class Session:
    """A recording or a watch that goes on in this program."""

    def __init__(self, torch: Torch, folder: str, entries: int) -> None:
        self.torch = torch
        self.folder = folder
        self.warnings = Warnings()
        self.history = History(torch, self.warnings, entries)
        self.handle: Any = None
        self.steps: dict[int, int] = {}
        self.wanted: int | None = None
        self.began = time.time()
        self.on = True
        self.finish: Callable[[], None] | None = None
        self.dump: str | None = None
        self.dumps = 0

    def start(self) -> None:
        """Begin to record, unless the program does so itself."""
        self.history.start()
        setattr(sys, KEPT, self)

    def seen(self) -> int:
        """How many steps the optimizer that made most has made."""
        return max(self.steps.values(), default=0)

    def count(self) -> bool | None:
        """Have optimizers say when they have made a step. False where this torch cannot, or is doing one now."""
        module = sys.modules.get("torch.optim.optimizer")
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            return None
        if is_stepping(module):
            return False
        self.handle = register(self.stepped)
        return True

    def stepped(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An optimizer has made a step. The table of hooks is being iterated over, so it is left unchanged."""
        if not self.on or self.wanted is None:
            return
        try:
            self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
            if not is_waited_for(self.folder):
                self.close()
            elif self.seen() >= self.wanted and self.finish is not None:
                self.finish()
        except Exception:
            # A fault here would end the program's own optimizer step: end the recording instead.
            self.close()

    def close(self) -> None:
        """Stop the recording; its hooks on optimizers and on the allocator do nothing from now on."""
        self.on = False
        if self.history.on:
            self.history.stop()

    def remove(self) -> bool:
        """Take the hook off. False where an optimizer is going through the hooks now."""
        if self.handle is not None:
            if is_stepping(sys.modules.get("torch.optim.optimizer")):
                return False
            self.handle.remove()
            self.handle = None
        if getattr(sys, KEPT, None) is self:
            delattr(sys, KEPT)
        return True


def is_stepping(module: Library) -> bool:
    """Whether some thread is in a step of an optimizer, which goes through the table of hooks."""
    path = getattr(module, "__file__", None)
    # No other name may hold a frame: this function's own is among them, and one that held itself would keep the locals of
    # the program's functions until the garbage is collected.
    frame: FrameType | None
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_filename == path and frame.f_code.co_name == "wrapper":
                return True
            frame = frame.f_back
    return False


def is_waited_for(folder: str) -> bool:
    """Whether `oomph attach` lives, by the lock that it holds."""
    import fcntl

    try:
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared one, so that two threads that ask at once do not take each other for `oomph attach`.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # A child that was forked meanwhile has the lock as well; this ends it for both.
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def record(
    torch: Torch, folder: str, order: dict[str, Any], answer: dict[str, Any], write: Callable[[str], None]
) -> str | None:
    """Record some steps; the answer is written at the end of the last one, in the thread that makes it."""
    refused = discarded()
    if refused:
        return json.dumps({**answer, **refused})
    session = Session(torch, folder, order["entries"])
    counted = session.count()
    if counted is False:
        return json.dumps({**answer, "again": True})
    session.wanted = order["steps"]

    def finish():
        began = time.perf_counter()
        describe(session, answer)
        look(torch, folder, order, answer, session.history)
        session.close()
        answer["seconds"] = time.perf_counter() - began
        write(json.dumps(answer))

    session.finish = finish
    session.start()
    started = {"counts_steps": counted is not None, "theirs": session.history.aside}
    with _open(os.path.join(folder, "started.json"), "w") as file:
        file.write(json.dumps(started))
    return None


def describe(session: Session, answer: dict[str, Any]) -> None:
    """What a recording has seen so far."""
    answer["recorded"] = {
        "steps": session.seen(),
        "seconds": time.time() - session.began,
        "entries": session.history.entries,
        "theirs": session.history.aside,
    }


def discarded() -> dict[str, Any]:
    """End a session that nobody waits for any more, if there is one. The reason why not, for the answer: somebody who waits, or
    an optimizer's step, which is over soon.
    """
    kept = getattr(sys, KEPT, None)
    if kept is None:
        return {}
    if kept.on and (kept.dump is not None or is_waited_for(kept.folder)):
        return {"busy": "another oomph attach records or watches it; end that with --stop"}
    kept.close()
    return {} if kept.remove() else {"again": True}


def watch(torch: Torch, folder: str, order: dict[str, Any], answer: dict[str, Any]) -> None:
    """Leave a recording running, and write it out when memory runs out."""
    refused = discarded()
    if refused:
        answer.update(refused)
        return
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        answer["busy"] = "this PyTorch cannot say that memory ran out"
        return
    session = Session(torch, folder, order["entries"])
    dump = session.dump = str(order["dump"])
    # Now rather than when it is too late.
    with _open(dump + ".part", "wb"):
        pass
    os.unlink(dump + ".part")

    def out_of_memory(device, requested, allocated, free):
        if not session.on or session.dumps >= MOST_DUMPS:
            return
        session.dumps += 1
        try:
            base = dump[: -len(".pickle")] if dump.endswith(".pickle") else dump
            write_files(torch, base, {"notes": []}, session.history)
            if base == dump:
                os.replace(base + ".pickle", dump)
        except Exception:
            # The allocator calls this in the middle of its error, which the program has to get.
            pass

    attach(out_of_memory)
    session.start()
    answer["devices"] = devices(torch)
    answer["watching"] = {"dump": dump, "entries": session.history.entries, "theirs": session.history.aside}


def stop(torch: Torch, folder: str, order: dict[str, Any], answer: dict[str, Any], action: str) -> None:
    """End what goes on. A recording whose steps did not come is written out as far as it went."""
    session = getattr(sys, KEPT, None)
    if session is None:
        answer["stopped"] = False
        if action == "finish":
            look(torch, folder, order, answer)
        return
    describe(session, answer)
    if action == "finish" and session.on:
        look(torch, folder, order, answer, session.history)
    answer["devices"] = answer["devices"] or devices(torch)
    answer["dumps"] = session.dumps
    session.close()
    try:
        # Its folder may be removed now.
        os.unlink(os.path.join(session.folder, "in-use"))
    except OSError:
        pass
    if session.dump is not None:
        answer["notes"].append("PyTorch keeps the observer of out-of-memory errors; it does nothing any more")
    answer["again"] = not session.remove()
    answer["stopped"] = True
