"""Finds the owner of each block of the allocator, from inside the program.

Watches modules, optimizers and backward passes, notes addresses and names (never tensors), and leaves them next to
PyTorch's own history of its allocator. docs/internals/run-folder.md has the format.
"""

from __future__ import annotations

import json
import os
import threading
import time
from io import open as _open

from oomph import _protocol as protocol
from oomph import forked
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
    from typing import Any

    from oomph._protocol import HookConfig
    from oomph._types import Optimizer, Torch
    from oomph.record import Record

_mkdir = os.makedirs

_SEVERAL_THREADS = (
    "several threads of the program use models: where they do so at the same time, the peak depends on how they meet, here and "
    "on a real card"
)

DEFAULT_ENTRIES = 300000
"""Events that the allocator's history keeps per device when hook.json does not say."""


class Owners:
    """Everything that names bytes in this process. Its methods swallow their own errors."""

    def __init__(self, torch: Torch, record: Record, entries: int, names: bool = True) -> None:
        self.names = names
        """Whether the bytes are named; else the allocator's history is all that is kept."""
        self.torch = torch
        self.record = record
        self.history = History(torch, record, entries)
        self.tensors = Tensors(torch)
        self.notes = Notes(torch._C._cuda_memoryStats)
        self.share = Share()
        self.quiet = Quiet(torch)
        self.modules = Modules(torch, self.tensors, self.notes, self.share, self.quiet)
        self.modules.workers.on_several = lambda: record.warn(_SEVERAL_THREADS)
        self.optimizers = Optimizers(self.tensors, self.modules)
        self.graph = Graph(torch, self.tensors, self.quiet)
        self._stepping = False
        self._written_at: dict[int, int] | None = None
        self._wrote_until = self._write_seconds = 0.0
        self._busy = threading.RLock()

    def attach(self) -> None:
        """Hang everything on torch that has to be there before the program's first line."""
        self.history.attach()
        self._watch_resets()

    def forked(self) -> None:
        """A forked child has no use of CUDA; it neither observes nor writes."""
        self.history.on = False
        self.modules.forked()
        self._busy = threading.RLock()

    # -- the allocator -----------------------------------------------------------------------------------------

    def started(self) -> None:
        """CUDA is in use now: record, and begin to observe."""
        self.history.start()
        if not self.history.on:
            return
        for device in range(self.torch._C._cuda_getDeviceCount()):
            self.notes.starts[device] = self.notes.count(device)
        if not self.names:
            return
        self.modules.attach()
        self.graph.attach()
        self._watch_optimizers()
        self._watch_backward()

    def _watch_resets(self):
        native = self.torch._C
        notes = self.notes
        for name in ("_cuda_resetAccumulatedMemoryStats", "_accelerator_resetAccumulatedStats"):
            original = getattr(native, name, None)
            if original is None:
                continue

            def reset(*args, _original=original):
                for device in () if forked.is_away() else notes.starts:
                    notes.counts_reset(device)
                result = _original(*args)
                return result

            reset.__name__ = reset.__qualname__ = name
            setattr(native, name, reset)

    # -- optimizers --------------------------------------------------------------------------------------------

    def _watch_optimizers(self):
        import sys

        module = sys.modules["torch.optim.optimizer"]
        register = getattr(module, "register_optimizer_step_pre_hook", None)
        if register is not None:
            # The end of a step comes from the watcher, which may end the process there.
            begins = self.quiet.around(self.step_begins)
            compiling = getattr(getattr(self.torch, "compiler", None), "is_compiling", None) or (lambda: False)

            def oomph_step_begins(optimizer, args, kwargs):
                if not compiling():
                    begins(optimizer)

            register(self.quiet.skip(oomph_step_begins))

    def step_begins(self, optimizer: Optimizer) -> None:
        """An optimizer's step is about to run."""
        if not self.history.on:
            return
        since = self.share.start()
        try:
            self.modules.settle()
            self.modules.workers.works()
            moment = self.notes.moment()
            self._phase(moment, protocol.PHASE_OPTIMIZER, True)
            self._stepping = True
            self.optimizers.see_parameters(optimizer, moment)
        except Exception:
            # What cannot be seen goes without a name; the program's step goes on.
            _debug()
        finally:
            self.share.end(since)

    def step_ended(self, optimizer: Optimizer) -> None:
        """An optimizer's step has run."""
        if not self.history.on or not self.names:
            return
        since = self.share.start()
        try:
            moment = self.notes.moment()
            if self._stepping:
                # A compiled step does not say when it begins.
                self._stepping = False
                self._phase(moment, protocol.PHASE_OPTIMIZER, False)
            self.optimizers.see_state(optimizer, moment)
        except Exception:
            # What cannot be seen goes without a name; the program's step goes on.
            _debug()
        finally:
            self.share.end(since)

    def iteration_ended(self, steps: int) -> None:
        """The record counts one more step: what follows belongs to the next one."""
        if self.history.on:
            self.notes.close(steps + 1)

    def _phase(self, moment, phase, begin):
        for device in self.modules.devices:
            self.notes.phase(device, moment.at(device), phase, begin)

    # -- backward ----------------------------------------------------------------------------------------------

    def _watch_backward(self):
        """Every backward pass goes through one function of torch.autograd, or before 2.3 through the engine itself."""
        autograd = self.torch.autograd
        if hasattr(autograd, "_engine_run_backward"):
            run = self._observed(autograd._engine_run_backward)
            autograd._engine_run_backward = autograd.graph._engine_run_backward = run
        else:
            variable = autograd.Variable
            variable._execution_engine = _Engine(variable._execution_engine, self._observed)

    def _observed(self, original):
        begins, ended = self.quiet.around(self.backward_begins), self.quiet.around(self.backward_ended)

        def run_backward(t_outputs, *args, **kwargs):
            begins(t_outputs)
            try:
                return original(t_outputs, *args, **kwargs)
            finally:
                ended()

        run_backward.__name__ = run_backward.__qualname__ = "_engine_run_backward"
        run_backward.__wrapped__ = original  # type: ignore[attr-defined]
        return self.quiet.skip(run_backward)

    def backward_begins(self, outputs: Any) -> None:
        """A backward pass is about to run: see what was saved for it."""
        if not self.history.on or self.modules.workers.is_in_pass():
            return
        since = self.share.start()
        try:
            self.modules.settle()
            moment = self.notes.moment()
            self._phase(moment, protocol.PHASE_BACKWARD, True)
            if not self.share.left():
                self.notes.names_complete = False
                return
            outputs = (outputs,) if self.tensors.is_tensor(outputs) else tuple(outputs)
            if self.record.program is not None:
                self.record.program.see_backward(outputs)
            for index, tensor in enumerate(outputs):
                moment.see(self.tensors, tensor, protocol.OWNER_ACTIVATION, "backward.%d" % index)
            seen = set()
            for name, tensor in self.graph.saved(outputs):
                key = tensor.data_ptr() if self.tensors.kind(type(tensor)) == "plain" else id(tensor)
                if key not in seen:
                    seen.add(key)
                    moment.see(self.tensors, tensor, protocol.OWNER_ACTIVATION, name)
        except Exception:
            # What cannot be seen goes without a name; the backward pass goes on.
            _debug()
        finally:
            self.share.end(since)
            self.modules.workers.pass_begins()

    def backward_ended(self) -> None:
        """A backward pass has run, or failed: see the gradients that there are."""
        if not self.history.on or self.modules.workers.is_in_pass():
            return
        self.modules.workers.pass_ended()
        since = self.share.start()
        try:
            moment = self.notes.moment()
            self._phase(moment, protocol.PHASE_BACKWARD, False)
            self.modules.see_gradients(moment)
        except Exception:
            # What cannot be seen goes without a name; the backward pass goes on.
            _debug()
        finally:
            self.share.end(since)

    # -- leaving the files -------------------------------------------------------------------------------------

    def out_of_memory(self) -> None:
        """Memory ran out, and nothing has been freed yet: see all there is, and write."""
        # A program that looks for its batch size by trying runs out of memory many times.
        if self.history.on and time.perf_counter() - self._wrote_until > 10 * self._write_seconds:
            self._write()

    def finish(self) -> None:
        """The process, or its part in the run, ends."""
        # A run that counts is recorded for its death alone.
        if self.history.on and self.record.guard is None:
            self._write()
            self._note_caught()

    def end(self) -> None:
        """The interpreter is about to end: stop the recording, for which threads of PyTorch's still take its lock."""
        if self.history.on:
            self.history.stop()

    def _note_caught(self):
        """Note in the names that the program caught the last out-of-memory error: the recording may end with it."""
        oom = self.record.oom
        if oom is None or oom["fatal"]:
            return
        path = os.path.join(self.record.folder, protocol.PATH_HOOK, "%d%s" % (os.getpid(), protocol.PATH_NAMES_END))
        try:
            with _open(path, "rb") as file:
                names = json.loads(file.read())
            names["oom_caught"] = True
            text = as_json(names)
            write_whole(path, lambda file: file.write(text))
        except Exception:
            # The mark is an extra: the names are good without it.
            _debug()

    def _write(self):
        since = time.perf_counter()
        try:
            with self._busy:
                counts = {device: self.notes.count(device) for device in self.notes.starts}
                if any(counts.values()) and counts != self._written_at:
                    self._write_files()
                    self._written_at = counts
        except Exception:
            # Memory, or the disk, may be full in this moment, and the program's own error has to come through.
            _debug()
        self._wrote_until = time.perf_counter()
        self._write_seconds = self._wrote_until - since

    def _write_files(self):
        folder = os.path.join(self.record.folder, protocol.PATH_HOOK)
        _mkdir(folder, exist_ok=True)
        base = os.path.join(folder, str(os.getpid()))
        if not self.names:
            snapshot = self.history.snapshot()
            write_whole(base + protocol.PATH_SNAPSHOT_END, lambda file: self.history.save(snapshot, file))
            return
        moment = self.notes.moment()
        try:
            survey(self.torch, self.tensors, self.modules, self.optimizers, self.graph, moment)
        except Exception:
            # A walk through all objects meets code of the program's; what was named so far is kept.
            _debug()
        snapshot = self.history.snapshot()
        see_workspaces(self.torch, snapshot, self.notes)
        names = as_json(self.notes.as_dict(os.getpid()))
        write_whole(base + protocol.PATH_NAMES_END, lambda file: file.write(names))
        write_whole(base + protocol.PATH_SNAPSHOT_END, lambda file: self.history.save(snapshot, file))


class _Engine:
    """The engine of autograd with its `run_backward` observed; all else is the engine's own."""

    def __init__(self, engine, observed):
        self._engine = engine
        self.run_backward = observed(engine.run_backward)

    def __getattr__(self, name):
        return getattr(self._engine, name)


def _debug():
    if os.environ.get("OOMPH_HOOK_DEBUG"):
        import traceback

        traceback.print_exc()


def install(torch: Torch, record: Record, config: HookConfig) -> Owners:
    """Attach to a torch that has just been imported; nothing is recorded or observed before it uses a GPU."""
    owners = Owners(torch, record, config.get("history_entries") or DEFAULT_ENTRIES, config["names"])
    owners.attach()
    return owners
