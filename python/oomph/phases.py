"""Follows the phases of a program and the peak of each: loading, forward, backward, optimizer, evaluation, and others.

Time is cut into intervals. An interval gets its name from the event that ends it: what ends with the begin of a backward
pass was a forward pass. Inside an evaluation, a generation or a saving the name is that of the whole.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from oomph._types import Torch
    from oomph.loops.loop import Loop
    from oomph.meter import Meter
    from oomph.quiet import Quiet

LOAD, FORWARD, BACKWARD = protocol.PHASE_LOAD, protocol.PHASE_FORWARD, protocol.PHASE_BACKWARD
OPTIMIZER, EVALUATION, GENERATION = protocol.PHASE_OPTIMIZER, protocol.PHASE_EVAL, protocol.PHASE_GENERATE
SAVING, ENCODING = protocol.PHASE_SAVING, protocol.PHASE_TEXT_ENCODING
DENOISING, DECODING = protocol.PHASE_DENOISING, protocol.PHASE_DECODING

_BRIEF = 0.0005
"""An interval shorter than this, in seconds, is joined to the one before where both have the same name."""


class Phases:
    """The peaks of a process by phase."""

    def __init__(self, meter: Meter, compiling: Callable[[], bool]) -> None:
        self._meter = meter
        self._compiling = compiling
        self._window = meter.open()
        self._found: dict[str, list[Any]] = {}
        self._last: str | None = None
        self._at = 0.0
        self._around: list[str] = []
        self._thread = threading.main_thread().ident
        self.trains = False
        """A backward pass has run: what comes after `model.eval()` is an evaluation."""
        self._evaluates = False
        self._called = False
        self._backward = 0
        self._failed: str | None = None
        self.on_backward: Callable[[], object] = lambda: None
        """Called when a backward pass of the program's begins."""

    def forked(self) -> None:
        """Begin again in a forked child."""
        self._found, self._last, self._around, self._failed = {}, None, [], None
        self._thread = threading.get_ident()

    # -- events ------------------------------------------------------------------------------------------------

    def close(self, name: str) -> None:
        """The present interval ends, and was `name` unless something around it says more."""
        if not self._meter.on or threading.get_ident() != self._thread:
            return
        if self._failed is not None:
            # The event that should have ended this phase never came.
            name, self._failed = self._failed, None
        else:
            name = self._around[-1] if self._around else EVALUATION if self._evaluates else name
        now = time.perf_counter()
        if name == self._last and now - self._at < _BRIEF:
            return
        self._meter.read()
        self._fold(name)
        self._last, self._at = name, now

    def _fold(self, name):
        found = self._found.setdefault(name, [0, {}])
        found[0] += name != self._last
        for device, (reserved, allocated) in self._window.peaks.items():
            known = found[1].setdefault(device, [0, 0])
            known[0], known[1] = max(known[0], reserved), max(known[1], allocated)
        self._window.clear()

    def failed(self, name: str) -> None:
        """Memory ran out in the phase `name`, which the program may catch and go on from."""
        if name != protocol.PHASE_OTHER and threading.get_ident() == self._thread:
            self._failed = name

    def model_called(self) -> None:
        """A model is called for the first time: until now the program loaded."""
        if not self._called:
            self._called = True
            self.close(LOAD)

    def backward_begins(self) -> None:
        """A backward pass begins; what led to it was a forward pass."""
        if threading.get_ident() != self._thread:
            # A thread that trains, or autograd's own with a pass in a pass. The phases are those of the program's own thread.
            if not self._backward:
                self.trains = self._called = True
                self.on_backward()
            return
        self._backward += 1
        if self._backward == 1:
            self._evaluates = False
            self.trains = self._called = True
            self.on_backward()
            self.close(FORWARD)

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        if threading.get_ident() != self._thread:
            return
        self._backward = max(0, self._backward - 1)
        if not self._backward:
            self.close(BACKWARD)

    def mode_changed(self, training: bool) -> None:
        """The program called `model.train()` or `model.eval()`."""
        if threading.get_ident() == self._thread and self.trains and self._evaluates == training:
            self.close(EVALUATION if training else FORWARD)
            self._evaluates = not training

    def iteration_ended(self, loop: Loop) -> None:
        """An iteration of a loop has ended; one without a backward pass, in a program that trains, evaluates."""
        if loop.kind == protocol.LOOP_EVALUATION and self.trains:
            self.close(EVALUATION)

    @contextlib.contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Name all that happens inside."""
        if threading.get_ident() != self._thread:
            yield
            return
        self.close(FORWARD if self._called else LOAD)
        self._around.append(name)
        try:
            yield
        finally:
            self.close(name)
            self._around.pop()

    def around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A function that does the same as a phase of its own."""

        @functools.wraps(function)
        def phase(*args, **kwargs):
            if self._compiling() or self._around and self._around[-1] == name:
                return function(*args, **kwargs)
            with self.during(name):
                return function(*args, **kwargs)

        return phase

    def is_evaluating(self) -> bool:
        """Whether the program trains and is in an evaluation now."""
        return self.trains and (self._evaluates or EVALUATION in self._around)

    def has_seen(self, name: str) -> bool:
        """Whether the program has been in a phase."""
        return name in self._found

    # -- the report --------------------------------------------------------------------------------------------

    def as_list(self) -> list[dict[str, Any]]:
        """The phases in the order in which they came first, in the form of docs/internals/run-folder.md."""
        if self._meter.on and self._meter.usable():
            self._meter.read(reset=False)
            if self._window.peaks:
                last = self._around[-1] if self._around else EVALUATION if self._evaluates else self._open_name()
                self._fold(last)
                self._last = last
        return [
            {
                "phase": name,
                "times": times,
                "devices": [
                    {"index": index, "reserved_peak_bytes": reserved, "allocated_peak_bytes": allocated}
                    for index, (reserved, allocated) in sorted(devices.items())
                ],
            }
            for name, (times, devices) in self._found.items()
        ]

    def _open_name(self):
        """What the interval that nothing has ended is taken for."""
        if self._backward:
            return BACKWARD
        return FORWARD if self._called else LOAD


def attach(
    torch: Torch, phases: Phases, quiet: Quiet, on_import: Callable[[str, Callable[[Any], object]], None]
) -> None:
    """Hang the phases on torch and, once they are imported, on the libraries that generate and save."""
    _watch_backward(torch, phases, quiet)
    _watch_modes(torch, phases, quiet)
    _watch_optimizers(phases, quiet)
    torch.save = phases.around(torch.save, SAVING)
    on_import("safetensors.torch", lambda module: _wrap(module, "save_file", phases, SAVING))
    on_import("transformers.generation.utils", lambda module: _wrap(module.GenerationMixin, "generate", phases, GENERATION))
    on_import("transformers.modeling_utils", lambda module: _wrap(module.PreTrainedModel, "save_pretrained", phases, SAVING))
    on_import("transformers.trainer", lambda module: _watch_trainer(module.Trainer, phases))
    on_import("diffusers.pipelines.pipeline_utils", lambda module: _watch_pipelines(module.DiffusionPipeline, phases))


def _wrap(owner, name, phases, phase):
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, phases.around(original, phase))


def _watch_trainer(trainer, phases):
    for name, phase in (("evaluation_loop", EVALUATION), ("_save_checkpoint", SAVING), ("save_model", SAVING)):
        _wrap(trainer, name, phases, phase)


_PARTS = {
    "unet": ("forward", DENOISING), "transformer": ("forward", DENOISING), "transformer_2": ("forward", DENOISING),
    "prior": ("forward", DENOISING), "vae": ("decode", DECODING), "vqvae": ("decode", DECODING),
}  # fmt: skip
"""What the parts of a pipeline do, by the names that diffusers gives them."""


def _watch_pipelines(pipeline, phases):
    original = pipeline.register_modules
    known = set()

    def wrap_once(cls, method, phase):
        if (cls, method) not in known:
            known.add((cls, method))
            _wrap(cls, method, phases, phase)

    @functools.wraps(original)
    def register_modules(self, **kwargs):
        original(self, **kwargs)
        wrap_once(type(self), "encode_prompt", ENCODING)
        for name, part in kwargs.items():
            if name in _PARTS and part is not None and not isinstance(part, tuple):
                wrap_once(type(part), *_PARTS[name])

    pipeline.register_modules = register_modules


def _watch_backward(torch, phases, quiet):
    """Every backward pass goes through one function of torch.autograd, or before 2.3 through the engine itself."""
    autograd = torch.autograd
    original = getattr(autograd, "_engine_run_backward", None)
    if original is None:
        return
    begins, ended = quiet.around(phases.backward_begins), quiet.around(phases.backward_ended)

    def run_backward(*args, **kwargs):
        begins()
        try:
            return original(*args, **kwargs)
        finally:
            ended()

    run_backward.__name__ = run_backward.__qualname__ = "_engine_run_backward"
    run_backward.__wrapped__ = original  # type: ignore[attr-defined]
    autograd._engine_run_backward = autograd.graph._engine_run_backward = quiet.skip(run_backward)


def _watch_modes(torch, phases, quiet):
    module = torch.nn.Module
    original = module.train
    changed = quiet.around(phases.mode_changed)
    local = threading.local()

    @functools.wraps(original)
    def train(self, mode=True):
        if getattr(local, "inside", False):
            return original(self, mode)
        local.inside = True
        try:
            result = original(self, mode)
        finally:
            local.inside = False
        if next(self.parameters(), None) is not None:
            changed(bool(mode))
        return result

    module.train = train


def _watch_optimizers(phases, quiet):
    # Not an attribute of torch.optim: the package deletes the names of its submodules.
    module = sys.modules["torch.optim.optimizer"]
    for name in ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"):
        register = getattr(module, name, None)
        if register is None:
            continue
        closes = quiet.around(phases.close)

        def oomph_optimizer(optimizer, args, kwargs, closes=closes):
            closes(OPTIMIZER)

        register(quiet.skip(oomph_optimizer))
