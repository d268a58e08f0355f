"""Watches PyTorch: true peaks, optimizer steps, the end of a run that has shown its peak.

Nothing here initialises CUDA. What needs an initialised device waits in torch's own queue of lazy calls, which torch
empties when the program first uses a GPU.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time

from oomph import _protocol as protocol
from oomph import (
    catchers,
    ends,
    faults,
    forked,
    fraction,
    hook,
    hostmemory,
    module_path,
    quiet,
    sites,
    stop,
    weights,
    whereabouts,
    work,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._protocol import HookAllowed, HookConfig, HookHeld, Moment
    from oomph._types import Optimizer, Torch
    from oomph.loops.course import Course
    from oomph.meter import Meter
    from oomph.owners import Owners
    from oomph.record import Record


_STEP_TIMEOUT = 10.0
"""Seconds that one thread's step waits at most for another's to be counted."""

_REST = 0.03
"""Seconds in which PyTorch's threads come to rest at the end of a process."""


class Watcher:
    """Joins torch to the record of this process."""

    def __init__(self, torch: Torch, record: Record, config: HookConfig, owners: Owners | None = None) -> None:
        self.torch = torch
        self.record = record
        self.owners = owners
        """Names the bytes, where a history of the allocator is wanted; else None."""
        self.config = config
        self.counter = stop.StepCounter()
        self.rule = stop.StopRule(config["stop"]["mode"], config["stop"].get("steps", 3))
        self.ready: ends.Agreement | None = None
        self.course: Course | None = None
        """The loops of the program, where they are followed."""
        self.gauge: Meter | None = None
        self._observes = True
        """Whether the allocator reports what it was refused."""
        self._hears = False
        """Whether later errors are recorded as well."""
        self._outer = threading.local()
        self._stepping = threading.RLock()
        self.fractions = fraction.Fractions(torch)
        self._held: dict[int, tuple[int, int, dict[str, Any]]] = {}
        """What the allocator held at the last look at its peaks, by device."""

    def forked(self) -> None:
        """Begin again in a forked child."""
        self.counter = stop.StepCounter()
        self.rule = stop.StopRule(self.rule.mode, self.rule.steps)
        self.ready = None
        self._held = {}
        self._stepping = threading.RLock()
        if self.owners is not None:
            self.owners.forked()

    def new_run(self) -> None:
        """Begin again in a child of the fork server, whose config may differ."""
        self.rule = stop.StopRule(self.config["stop"]["mode"], self.config["stop"].get("steps", 3))
        if self.owners is None:
            # Nothing is observed before a card is used, so it is not too late.
            self.owners = hook.guarded(_owners, self.torch, self.record, self.config)
        if self.owners is not None:
            self.owners.share.begin()

    def finish(self) -> None:
        """The process ends, or its part in the run does: leave all that is known."""
        self.leave_history()
        self.record.write_if_used()

    def leave_history(self) -> None:
        """Leave the allocator's history and the names of its blocks, where they are wanted."""
        if self.owners is not None:
            self.owners.finish()

    def settle(self) -> None:
        """Let PyTorch's threads come to rest before the interpreter ends.

        A thread that asks for the interpreter's lock once it is gone is ended where it stands, in the middle of C++, which
        ends the process with SIGABRT: "terminate called without an active exception". The recording of the allocator has
        the threads of backward passes ask for it at every allocation.
        """
        if self._usable():
            if self.owners is not None:
                self.owners.end()
            time.sleep(_REST)

    # -- memory ------------------------------------------------------------------------------------------------

    def _usable(self):
        cuda = getattr(self.torch, "cuda", None)
        if cuda is None or not getattr(cuda, "_initialized", False) or forked.is_away():
            return False
        bad_fork = getattr(self.torch._C, "_cuda_isInBadFork", None)
        return bad_fork is None or not bad_fork()

    def peaks(self) -> dict[int, tuple[int, int]]:
        """The framework's present peaks: {device: (reserved, allocated)}; empty while CUDA is not in use."""
        if not self._usable():
            return {}
        result = {}
        for index in range(self.torch._C._cuda_getDeviceCount()):
            stats = self.torch._C._cuda_memoryStats(index)
            reserved = stats["reserved_bytes"]["all"]
            allocated = stats["allocated_bytes"]["all"]
            if reserved["peak"] or allocated["peak"]:
                result[index] = (reserved["peak"], allocated["peak"])
                # The same answer holds what is in use now, so that it costs no further call.
                self._held[index] = (allocated["current"], reserved["current"], stats)
        return result

    def allowed(self, device: int) -> HookAllowed | None:
        """What the program lets the allocator take of a card, where that is less than all of it."""
        known = self._held.get(device)
        if known is None or not self._usable() or self.torch.cuda.is_current_stream_capturing():
            return None
        return self.fractions.allowed(device, int(known[2].get("num_alloc_retries") or 0))

    def held(self, moment: Moment) -> list[HookHeld]:
        """What the allocator held when its peaks were read last, by device."""
        found: list[HookHeld] = []
        guard = self.record.guard
        cuda = self.torch.cuda
        # What is free belongs to the same moment. A capture of a graph must not see other calls, and where no card is in
        # use the question itself would start CUDA.
        asks = moment == "step-end" and self._held and not cuda.is_current_stream_capturing()
        for index, (allocated, reserved, stats) in sorted(self._held.items()):
            split = stats.get("inactive_split_bytes")
            found.append({
                "index": index,
                "uuid": guard.cards.get(index) if guard is not None else None,
                "allocated_bytes": allocated,
                "reserved_bytes": reserved,
                # Free pieces of segments that also hold something: they cannot be given back to the card.
                "fragments_bytes": split["all"]["current"] if split else None,
                "retries": stats.get("num_alloc_retries"),
                "free_bytes": self._left(index, reserved) if asks else None,
            })
        return found

    def _left(self, index, reserved):
        """What the allocator can still take of a card, in bytes."""
        free = self.torch.cuda.mem_get_info(index)[0]
        guard = self.record.guard
        most = guard.most.get(index) if guard is not None else None
        return free if most is None else max(0, min(free, most - reserved))

    def keep_across_resets(self) -> None:
        """Wrap the functions that make torch forget its peaks, so that they are remembered first."""
        native = self.torch._C
        for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
            original = getattr(native, name, None)
            if original is not None:
                setattr(native, name, self._remembering(original, name))

    def _remembering(self, original, name):
        record = self.record

        def reset(*args):
            record.refresh_peaks()
            if self.gauge is not None:
                hook.guarded(self.gauge.program_resets, *args)
            return original(*args)

        reset.__name__ = reset.__qualname__ = name
        return reset

    def follow(self) -> None:
        """Follow the program's loops and phases."""
        from oomph.loops import attach

        self.course, phases = attach.install(self.torch, self.record, self.config, self._usable)
        self.gauge = self.course.meter

    # -- the first use of a device -----------------------------------------------------------------------------

    def when_cuda_starts(self) -> None:
        """Arrange for `cuda_started` to be called when the program initialises CUDA, in this or a forked process."""
        cuda = self.torch.cuda
        if getattr(cuda, "_initialized", False):
            self.cuda_started()
            return
        queue = getattr(cuda, "_queued_calls", None)
        if isinstance(queue, list):
            # `_lazy_call` would format the present stack for a message that can never be needed.
            queue.append((self.cuda_started, []))
        else:
            cuda._lazy_call(self.cuda_started)

    def cuda_started(self) -> None:
        """CUDA has just been initialised: attach to the allocator and write the first record."""
        forked.card_is_used()
        try:
            attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(self.out_of_memory)
        except Exception:
            # cudaMallocAsync has no observers. Its errors report what it was refused.
            self._observes = False
        hook.guarded(self.hear_errors)
        hook.guarded(self._versions)
        if self.gauge is not None and self._observes:
            hook.needed(self.gauge.attach)
        if self.owners is not None:
            hook.guarded(self.owners.started)
        if self.record.guard is not None:
            hook.guarded(self.record.guard.cuda_started)
        self.record.write(moment=protocol.MOMENT_START)

    def hear_errors(self) -> None:
        """Learn of each out-of-memory error that Python code gets to see, whether it is caught or not."""
        kind = getattr(self.torch, "OutOfMemoryError", None) or self.torch.cuda.OutOfMemoryError
        raised = self._raised
        previous = kind.__init__

        def __init__(error, *args):
            previous(error, *args)
            hook.guarded(raised, error)

        kind.__init__ = __init__
        self._hears = True

    def _versions(self):
        """Name cuDNN by the number that the library itself gives, and what torch's kernels were built for.

        Nothing is loaded that torch has not loaded. Torch counts the second question as a use of CUDA, after which a
        forked child may not use it, so that it is not asked before the program itself uses CUDA.
        """
        self.record.architectures = (self.torch._C._cuda_getArchFlags() or "").split()
        native = getattr(self.torch._C, "_cudnn", None)
        if native is not None:
            self.record.frameworks["cudnn"] = format_cudnn(int(native.getVersionInt()))

    # -- out of memory -----------------------------------------------------------------------------------------

    def out_of_memory(self, device: int, requested: int, total: int, free: int) -> None:
        """The allocator's observer: called before the exception is raised, in whatever thread asked for memory."""
        try:
            facts = self._oom(int(device), int(requested), int(free), None)
            if self.record.program is not None:
                hook.guarded(self.record.program.out_of_memory)
            if self.record.phases is not None:
                hook.guarded(self.record.phases.failed, facts["phase"])
            caught = hook.guarded(self._catcher, facts["phase"])
            if self._hears:
                self.record.note_refusal(facts, caught)
            else:
                self.record.note_oom(facts, caught)
                self.record.write(moment=protocol.MOMENT_REFUSAL)
            if self.owners is not None:
                self.owners.out_of_memory()
        except Exception:
            # The allocator calls this in the middle of its error, which the program has to get.
            pass

    def _catcher(self, phase):
        """Who will catch the error that is about to be raised."""
        kind = getattr(self.torch, "OutOfMemoryError", None) or self.torch.cuda.OutOfMemoryError
        own = threading.get_ident()
        found = catchers.of_stack(sys._getframe(), kind)
        if found is not None or phase != protocol.PHASE_BACKWARD:
            return found
        # The engine's thread hands its error to the one that waits in `backward`.
        for thread, frame in sys._current_frames().items():
            if thread != own and sites.phase_of_stack(sites.pairs(frame)) == protocol.PHASE_BACKWARD:
                found = catchers.of_stack(frame, kind)
                if found is not None:
                    found.thread = thread
                return found
        return None

    def _raised(self, error):
        """An out-of-memory error was made, and is about to reach Python code."""
        if self._observes:
            self.record.refusal_was_raised()
        elif self._usable():
            self.record.note_oom(self._oom_outside_allocator(error))
            self.record.write()

    def engine_refused(self, error: BaseException, needed: int, available: int) -> None:
        """An engine of vLLM's has compared what it needs with what is left for it, and gives up without asking for it."""
        facts = self._oom(0, needed, available, error)
        facts.update(phase=protocol.PHASE_LOAD, fatal=True)
        self.record.note_oom(facts)
        self.record.write()

    def _oom_outside_allocator(self, error):
        """What is known of an error that no observer reported."""
        device = free = 0
        if self._usable():
            device = self.torch.cuda.current_device()
            free = int(self.torch.cuda.mem_get_info(device)[0])
        return self._oom(device, sites.requested_of(sites.message_of(error)), free, error)

    def _oom(self, device, requested, free, error):
        torch = self.torch
        program = self.record.program
        place = sites.where(torch.is_grad_enabled(), program.trains if program is not None else None)
        called = place.module
        if called is not None and place.phase == protocol.PHASE_BACKWARD:
            called = module_path.of_recomputation(called)
        module, model = called.names() if called is not None else (None, None)
        phase = place.phase
        if self._evaluates(phase) and not place.in_training_step:
            # A validation without `no_grad` looks like training.
            phase = protocol.PHASE_EVAL
        allocated = reserved = 0
        if self._usable():
            stats = torch._C._cuda_memoryStats(device)
            allocated = stats["allocated_bytes"]["all"]["current"]
            reserved = stats["reserved_bytes"]["all"]["current"]
        message = sites.message_of(error) if error is not None else (
            "CUDA out of memory. Tried to allocate %.2f MiB. GPU %d has %.2f MiB free."
            % (requested / 2.0**20, device, free / 2.0**20)
        )
        return {
            "device": device,
            "requested_bytes": requested,
            "allocated_bytes": int(allocated),
            "reserved_bytes": int(reserved),
            "free_bytes": free,
            "message": message,
            "step": self._step(),
            "phase": phase,
            "site": place.site,
            "library_site": place.library_site,
            "module": module,
            "model": model,
            "fatal": False,
            "unread": False,
        }

    def _step(self):
        """The optimizer step under way, from 1, as it would be of the whole program; 0 where that is not known."""
        return self.record.steps + 1 if self.course is None else self.course.step_now(self.record.steps)

    def _evaluates(self, phase):
        """Whether a forward pass, or a phase that no frame shows, belongs to an evaluation."""
        course, phases = self.course, self.record.phases
        if course is None or phases is None or phase not in (protocol.PHASE_FORWARD, protocol.PHASE_OTHER):
            return False
        return course.is_evaluating() or phase == protocol.PHASE_FORWARD and phases.is_evaluating() and not course.is_about_to_train()

    def failed(self, error: BaseException) -> None:
        """An exception ends the program (or a thread of it): if memory was the cause, say so in the record."""
        cause = sites.find_oom(error)
        if cause is not None:
            site = sites.site_of_traceback(cause.__traceback__) or sites.site_of_traceback(error.__traceback__)
            self.record.refusal_was_raised()
            known = self.record.oom
            from_allocator = type(cause).__name__ == "OutOfMemoryError" or sites.passes_on(cause, known)
            if known is None or known["fatal"] or not from_allocator:
                # The allocator was not asked: the driver or a library ran out of memory itself.
                fatal = self._oom_outside_allocator(cause)
                # This allocator would have reported it before it was raised.
                fatal["relayed"] = from_allocator and known is None and self._observes
                if known is not None and fatal["phase"] == protocol.PHASE_OTHER and known["step"] == fatal["step"]:
                    # The frames are gone by now; what was refused before lay in the same step.
                    fatal["phase"] = known["phase"]
                self.record.note_oom(fatal)
            self.record.mark_fatal(sites.message_of(cause), site)
        else:
            self.record.host = hostmemory.shortage(error) or self.record.host
        if cause is None and not self.config["random_weights"] and weights.are_missing(error):
            self.record.warn(
                "The model's weights are not on this machine; with --random-weights it is built from its config alone."
            )
        self.record.write()

    def leaving(self, code: object) -> None:
        """The program asks to end with `code`: a failure right after an out-of-memory error was caused by it."""
        oom = self.record.oom
        if code in (None, 0, False) or oom is None or oom["fatal"]:
            return
        handled = sites.find_oom(sys.exc_info()[1])
        if handled is not None:
            self.failed(handled)
        elif self.record.oom_at_step == self.record.steps:
            # It printed the traceback itself and left; no optimizer step has succeeded since.
            self.record.mark_fatal()
            self.record.write()

    # -- steps -------------------------------------------------------------------------------------------------

    def count_steps(self) -> None:
        """Have every optimizer's step reported to `stepped`."""
        # Not an attribute of torch.optim: the package deletes the names of its submodules.
        optimizer = sys.modules["torch.optim.optimizer"]
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)
        if register is not None:
            calm = quiet.Quiet(self.torch)
            stepped = calm.around(self.stepped)

            def oomph_stepped(optimizer, args, kwargs):
                stepped(optimizer)

            register(calm.skip(oomph_stepped))
        else:
            self._wrap_optimizer(optimizer.Optimizer)
        hook.on_import("deepspeed.runtime.engine", self._deepspeed)

    def _wrap_optimizer(self, base):
        original = base.__init__
        watcher = self

        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            watcher._wrap_step(type(self))

        base.__init__ = __init__

    def _wrap_step(self, cls):
        step = cls.step
        if getattr(step, "_oomph", False):
            return
        watcher = self

        def counted(self, *args, **kwargs):
            result = step(self, *args, **kwargs)
            watcher.stepped(self)
            return result

        counted.__name__ = "step"
        counted.__wrapped__ = step  # type: ignore[attr-defined]
        counted._oomph = True  # type: ignore[attr-defined]
        # torch marks a step that its profiler has wrapped already.
        counted.hooked = getattr(step, "hooked", None)  # type: ignore[attr-defined]
        cls.step = counted

    def _deepspeed(self, module):
        """DeepSpeed steps its inner optimizer once per parameter group; its own step is the one that counts."""
        engine = module.DeepSpeedEngine
        original = engine._take_model_step
        watcher = self

        def _take_model_step(self, *args, **kwargs):
            watcher._outer.busy = True
            try:
                result = original(self, *args, **kwargs)
            finally:
                watcher._outer.busy = False
            watcher.stepped(self)
            return result

        engine._take_model_step = _take_model_step

    def made(self, optimizer: Optimizer) -> None:
        """An optimizer was made."""
        hook.guarded(self.counter.made, optimizer)

    def stepped(self, optimizer: Optimizer) -> None:
        """One optimizer has stepped: count, write, and stop when the peak has been seen."""
        # Not without end: what is done at a step may wait for other ranks, which can be threads of one process.
        holds = self._stepping.acquire(timeout=_STEP_TIMEOUT)
        try:
            reason = self._stepped(optimizer)
        except Exception as error:
            # A fault in counting must not end the program's step; the answer hangs on it.
            faults.voids(error)
            return
        finally:
            if holds:
                self._stepping.release()
        if reason is not None:
            if self.owners is not None:
                self.owners.finish()
            ends.stop(self.record, reason)

    def _stepped(self, optimizer):
        """Count one step, of one thread at a time; give why the run stops here, or None."""
        counted = self.record.work
        if counted is not None:
            counted.optimized(optimizer)
        if self.owners is not None:
            self.owners.step_ended(optimizer)
        if getattr(self._outer, "busy", False) or not self.counter.stepped(optimizer):
            return None
        self.record.steps = self.counter.steps
        if self.record.guard is not None:
            self.record.guard.stepped(optimizer)
        if counted is not None:
            counted.stepped()
        if self.record.batches is not None:
            self.record.batches.stepped()
        if self.owners is not None:
            self.owners.iteration_ended(self.counter.steps)
        if self.course is not None:
            self.course.stepped()
        peaks = self.record.refresh_peaks()
        if self.record.guard is not None:
            hook.guarded(self.record.guard.look, self._held)
        reason = self.rule.after_step(self.counter.steps, [peaks[index][0] for index in sorted(peaks)])
        if reason == "peak-stable" and self.course is not None:
            reason = None if self.course.may_go_on() else protocol.STOPPED_BUDGET
        if reason in (protocol.STOPPED_PEAK_STABLE, protocol.STOPPED_BUDGET):
            self.ready = self.ready or ends.Agreement(hook.run_folder() or self.record.folder)
            if not self.ready.all_ready(self.counter.steps):
                reason = None
        elif self.ready is not None:
            self.ready.withdraw()
            self.ready = None
        if reason is None:
            self.record.write(force=False, moment=protocol.MOMENT_STEP_END)
        return reason


def format_cudnn(number: int) -> str:
    """92600 -> 9.26.0, and the older scheme 8902 -> 8.9.2."""
    if number >= 90000:
        return "%d.%d.%d" % (number // 10000, number % 10000 // 100, number % 100)
    return "%d.%d.%d" % (number // 1000, number % 1000 // 100, number % 100)


def _owners(torch, record, config):
    if not config.get("history"):
        return None
    from oomph import owners

    return owners.install(torch, record, config)


def install(torch: Torch, record: Record, config: HookConfig) -> Watcher:
    """Attach to a torch that has just been imported."""
    record.frameworks["torch"] = str(torch.__version__)
    watcher = Watcher(torch, record, config, hook.guarded(_owners, torch, record, config))
    record.current_memory = watcher.peaks
    record.memory_now = watcher.held
    record.allowed = watcher.allowed
    record.work = hook.guarded(work.Work)
    if config["follow"]:
        # Before the functions are wrapped that reset peaks: the meter resets them behind the program's back.
        hook.needed(watcher.follow)
    for attach in (watcher.keep_across_resets, watcher.when_cuda_starts, watcher.count_steps):
        hook.needed(attach)
    # What is registered first runs last.
    atexit.register(ends.safely, watcher.settle)
    ends.install(watcher)
    if config["follow"]:
        hook.guarded(whereabouts.install)
    atexit.register(ends.safely, watcher.leave_history)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=watcher.forked)
    hook.in_new_run(watcher.new_run)
    hook.on_import("vllm.v1.worker.gpu_worker", lambda module: _watch_vllm(module, watcher))
    hook.on_import("vllm.v1.core.kv_cache_utils", lambda module: _watch_vllm_cache(module, watcher))
    hook.on_import("vllm.v1.engine.core", lambda module: _watch_vllm_engine(module, watcher))
    return watcher


def _watch_vllm(module, watcher):
    from oomph import vllm

    vllm.watch_worker(module, lambda: vllm.ran(watcher.record), lambda: hook.guarded(watcher.finish))
    vllm.watch_start(module, lambda *refusal: hook.guarded(watcher.engine_refused, *refusal))


def _watch_vllm_cache(module, watcher):
    from oomph import vllm

    record = watcher.record
    vllm.watch_cache(
        module,
        lambda *refusal: hook.guarded(watcher.engine_refused, *refusal),
        lambda *sizes: hook.guarded(record.note_cache, *sizes),
    )
    vllm.watch_share(module, lambda share: hook.guarded(record.note_share, share))


def _watch_vllm_engine(module, watcher):
    from oomph import vllm

    died = lambda: hook.guarded(watcher.leaving, 1)
    vllm.watch_engine(module, died, lambda error: hook.guarded(watcher.record.note_failure, error))
