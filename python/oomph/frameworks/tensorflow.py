"""Watches TensorFlow: the peaks of its pool, the steps of a training, and the error that a full card raises."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time

from oomph import _protocol as protocol
from oomph import ends, frameworks, hook, stop
from oomph.frameworks import described, readback, tensorflow_values
from oomph.frameworks.keras import KerasLoops, keras_phase
from oomph.frameworks.watch import FrameworkWatcher, given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any

    from oomph._protocol import HookConfig, LimitScales, Phase
    from oomph._types import Library, Peaks
    from oomph.record import Record

_TEXTS = (
    "oom when allocating",
    "failed to allocate memory",
    "out of memory while trying to allocate",
    "cuda_error_out_of_memory",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
    # What an eager operation says whose input did not fit on the card.
    "dst tensor is not initialized",
)


class TensorFlowWatcher(FrameworkWatcher):
    """TensorFlow in one process."""

    def __init__(self, record: Record, config: HookConfig) -> None:
        super().__init__(record, _TEXTS)
        self.counter = stop.StepCounter()
        self.loops = KerasLoops(self)
        self.config = config
        self.new_run()
        self.growth = stop.Growth()
        self._began: float | None = None
        """When the first step of a loop of the program's own was done."""
        self._calls = threading.local()
        self._told = False
        self._forgotten: dict[int, int] = {}
        self.described = described.of(record)

    def new_run(self) -> None:
        """Take from the config how long a run goes on; a child of the fork server has a config of its own."""
        wanted = self.config["stop"]
        mode, steps = wanted["mode"], wanted.get("steps", 3)
        self.rule = stop.StopRule(mode, steps)
        self.loops.shorten(mode, steps)
        self.budget = float(wanted.get("budget_seconds") or 60.0)

    # -- memory ------------------------------------------------------------------------------------------------

    def _context(self):
        """What TensorFlow runs in, once it is there: asking one that is not would make it, and with it the pool."""
        module = sys.modules.get("tensorflow.python.eager.context")
        context = getattr(module, "_context", None)
        return context if getattr(context, "_initialized", False) else None

    def is_in_use(self) -> bool:
        context = self._context()
        return context is not None and bool(context.list_logical_devices("GPU"))

    def _read(self, key):
        context = self._context()
        if context is None:
            return {}
        found = {}
        for device in context.list_logical_devices("GPU"):
            index = int(device.name.rsplit(":", 1)[1])
            found[index] = (None, int(context.get_memory_info("GPU:%d" % index)[key]))
        if found:
            self._say_how_it_grows(context)
        return found

    def peaks(self) -> Peaks:
        found = self._read("peak")
        return {index: (None, max(own[1], self._forgotten.get(index, 0))) for index, own in found.items() if own[1]}

    def present(self) -> Peaks:
        return self._read("current")

    def keep_across_resets(self, module: Library) -> None:
        """Remember the peaks that the program makes TensorFlow forget."""
        original = module.Context.reset_memory_stats
        watcher = self

        @functools.wraps(original)
        def reset_memory_stats(self, *args, **kwargs):
            for index, (_, allocated) in (hook.guarded(watcher.peaks) or {}).items():
                watcher._forgotten[index] = allocated
            return original(self, *args, **kwargs)

        module.Context.reset_memory_stats = reset_memory_stats

    def _say_how_it_grows(self, context):
        if self._told:
            return
        self._told = True
        hook.guarded(self._note_limits, context)
        growth = given("TF_FORCE_GPU_ALLOW_GROWTH")
        if "TensorFlow" in frameworks.set_here and growth == "true":
            self.record.warn(
                "TensorFlow took memory as the program needed it (oomph set TF_FORCE_GPU_ALLOW_GROWTH=true); by default "
                "it takes nearly all of a card at its start, whatever the program needs."
            )
        elif growth is None:
            if not any(dict(getattr(context, "_memory_growth_map", None) or {}).values()):
                self.record.preallocates = True
                self.record.warn(
                    "TensorFlow took nearly all of the card at its start, as it does by default. What the program needs is the "
                    "allocated memory."
                )
        elif growth != "true":
            self.record.preallocates = True
            self.record.warn(
                "TensorFlow preallocated its pool because TF_FORCE_GPU_ALLOW_GROWTH=%s is set; what the program needs is "
                "the allocated memory." % growth
            )

    def _note_limits(self, context):
        """How much TensorFlow may take: of the whole card but what it leaves to the system, or what the program says."""
        given_limits = {}
        for card, devices in dict(getattr(context, "_virtual_device_map", None) or {}).items():
            limits = [device.memory_limit for device in devices if device.memory_limit]
            if limits and card.device_type == "GPU":
                given_limits[int(card.name.rsplit(":", 1)[1])] = int(sum(limits)) << 20
        native = sys.modules["tensorflow.python.client.pywrap_tf_session"]
        pywrap = sys.modules["tensorflow.python.pywrap_tfe"]
        devices = pywrap.TFE_ContextListDevices(context._context_handle)
        try:
            for place in range(pywrap.TF_DeviceListCount(devices)):
                if pywrap.TF_DeviceListType(devices, place) == "GPU":
                    index = int(pywrap.TF_DeviceListName(devices, place).rsplit(":", 1)[1])
                    limit = int(native.TF_DeviceListMemoryBytes(devices, place))
                    is_given = index in given_limits
                    scales: LimitScales = protocol.LIMIT_FIXED if is_given else protocol.LIMIT_RESERVE
                    self.record.limits[index] = {"bytes": limit, "scales": scales}
        finally:
            pywrap.TF_DeleteDeviceList(devices)

    # -- steps -------------------------------------------------------------------------------------------------

    def count_steps(self, module: Library) -> None:
        """Report each call from outside of a function in which an optimizer was traced to `stepped`."""
        function = module.Function
        original = function.__call__
        calls = self._calls
        watcher = self

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            if getattr(calls, "outermost", None) is not None:
                return original(self, *args, **kwargs)
            calls.outermost = self
            try:
                result = original(self, *args, **kwargs)
            finally:
                calls.outermost = None
            if getattr(self, "_oomph_trains", False):
                watcher.stepped(self)
            return result

        function.__call__ = __call__

    def watch_optimizers(self, module: Library) -> None:
        """Note in which function an optimizer is applied; outside of all, it steps at once."""
        base = module.BaseOptimizer
        original = base.apply
        calls = self._calls
        watcher = self

        @functools.wraps(original)
        def apply(self, *args, **kwargs):
            result = original(self, *args, **kwargs)
            hook.guarded(watcher.described.optimizer, self)
            outermost = getattr(calls, "outermost", None)
            if outermost is not None:
                outermost._oomph_trains = True
            elif sys.modules["tensorflow"].executing_eagerly():
                watcher.stepped(self)
            return result

        base.apply = apply

    def watch_tape(self, module: Library) -> None:
        """Who asks for gradients trains, with an optimizer of Keras' or by hand."""
        tape = module.GradientTape
        original = tape.gradient
        watcher = self

        @functools.wraps(original)
        def gradient(self, *args, **kwargs):
            watcher.described.training()
            return original(self, *args, **kwargs)

        tape.gradient = gradient

    def on_card(self, value: Any) -> Iterator[tuple[int, int]]:
        tensorflow = sys.modules["tensorflow"]
        for part in tensorflow.nest.flatten(value):
            if isinstance(part, tensorflow.Tensor) and "GPU" in (getattr(part, "device", None) or ""):
                yield id(part), (part.shape.num_elements() or 0) * part.dtype.size

    def phase(self, frames: Iterable[FrameType]) -> Phase:
        """An evaluation and a prediction are known by Keras' own methods on the way to the error."""
        return keras_phase(frames) or super().phase(())

    def stepped(self, what: object) -> None:
        """One step of a training is done: count, write, and stop when the peak has been seen."""
        try:
            if not self.counter.stepped(what):
                return
            self.record.steps = self.counter.steps
            if self.loops.under_way:
                self.record.write(force=False)
                return
            peaks = self.peaks()
            reason = self.rule.after_step(self.counter.steps, [peaks[index][1] for index in sorted(peaks)])
            self.growth.after_step(self.counter.steps, sum(held for _, held in self.present().values()))
            now = time.process_time()
            self._began = now if self._began is None else self._began
            # What comes after the loop may need more: it is left out only where the processor's time does not reach it.
            if reason == "peak-stable" and now - self._began < self.budget:
                reason = None
            if reason is None:
                self.record.write(force=False)
        except Exception:
            # A fault in counting must not end the program's step.
            return
        if reason is not None:
            if reason == "peak-stable":
                why = "the loop of the program's own cannot be shortened, so what comes after it was not run"
                self.record.left_out = [{"phase": "what follows the training loop", "why": why, "certain": True}]
                grown = self.growth.per_step()
                if grown:
                    why = (
                        "each step left %.2f MiB on the card, %d steps were run, and nothing says how many there are or "
                        "whether what keeps it has a bound" % (grown / 2.0**20, self.counter.steps)
                    )
                    self.record.left_out.insert(0, {"phase": "the rest of the training loop", "why": why, "certain": True})
            ends.stop(self.record, reason)


def _compute_sizes_on_the_host(tensorflow):
    """Have functions compute small integers on the host, where they have values.

    TensorFlow multiplies the sizes of a shape that is not known before the run by a kernel, and reads the result back. No
    kernel runs on a virtual card, so the shape would be 0 and the program would fail. The tensors have a few bytes each.
    """
    tensorflow.config.optimizer.set_experimental_options({"pin_to_host_optimization": True})


def _read_flags():
    """Have the virtual card give graphs flags, not any byte: TensorFlow reads a condition as the number of a branch."""
    ctypes.CDLL(None).oomph_bytes_are_flags()


def _pass_assertions(module):
    """Leave assertions out of functions: what the card would have to compute for them has no value here."""
    original = module.Assert

    @functools.wraps(original)
    def Assert(condition, *args, **kwargs):
        tensorflow = sys.modules["tensorflow"]
        return tensorflow.no_op() if tensorflow.is_symbolic_tensor(condition) else original(condition, *args, **kwargs)

    module.Assert = Assert


def install(tensorflow: Library, record: Record, config: HookConfig) -> TensorFlowWatcher:
    """Attach to a TensorFlow that has just been imported."""
    record.frameworks["tensorflow"] = str(tensorflow.__version__)
    watcher = TensorFlowWatcher(record, config)
    watcher.attach()
    hook.in_new_run(watcher.new_run)
    if hook.on_virtual_card():
        hook.guarded(_compute_sizes_on_the_host, tensorflow)
        hook.guarded(_read_flags)
        hook.guarded(tensorflow_values.install, tensorflow, record, config["unknown_sizes"])
        hook.on_import("tensorflow.python.ops.control_flow_assert", _pass_assertions)
        hook.on_import("tensorflow.python.framework.ops", lambda module: readback.watch_tensorflow(module, record))
    hook.on_import("tensorflow.python.framework.errors_impl", lambda errors: watcher.hear(errors.OpError))
    hook.on_import("tensorflow.python.eager.context", watcher.keep_across_resets)
    hook.on_import("tensorflow.python.eager.polymorphic_function.polymorphic_function", watcher.count_steps)
    hook.on_import("tensorflow.python.eager.backprop", watcher.watch_tape)
    hook.on_import("keras.src.optimizers.base_optimizer", watcher.watch_optimizers)
    hook.on_import("keras.src.trainers.epoch_iterator", watcher.loops.attach)
    if not config["allow_writes"]:
        from oomph.frameworks import tensorflow_files

        hook.guarded(tensorflow_files.install, tensorflow, record)
    return watcher
