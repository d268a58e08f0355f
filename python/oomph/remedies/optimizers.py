"""Replaces optimizers by ones that need less: others than Adam, other ways of stepping, steps inside the backward pass.

In place of an optimizer that the program makes itself, `__new__` of its class gives another one, so that whatever name
the program has for the class leads there. The Trainer gets its argument `optim`.
"""

from __future__ import annotations

import functools
import inspect
import sys

from oomph import _protocol as protocol
from oomph.remedies.remedy import Refused, Remedy, require
from oomph.remedies.trainer import Argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from oomph._types import Optimizer, Torch
    from oomph.moments import Moments

_ADAMS = ("Adam", "AdamW")


class Replaced(Argument):
    """An optimizer of another class in place of torch's Adam or AdamW."""

    waits_for = "the program made no Adam or AdamW of torch"

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        optim: str | None,
        make: Callable[..., Optimizer],
        sources: tuple[str, ...] = _ADAMS,
    ) -> None:
        super().__init__(name, options)
        self.optim = optim
        self.make = make
        self.sources = sources
        self.made: list[Optimizer] = []

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        self.attach_trainer(moments)
        for name in self.sources:
            self._replace(getattr(moments.torch.optim, name))

    def fields(self, arguments: Any) -> dict[str, Any]:
        from oomph.remedies.trainer import plain

        known = {plain(name) for name in sys.modules["transformers.training_args"].OptimizerNames}
        if self.optim not in known:
            raise Refused("this version of transformers has no optimizer %s" % self.optim)
        self._needs()
        return {"optim": self.optim}

    def _needs(self):
        package = getattr(self.make, "package", None)
        if package is not None:
            require(package, "this optimizer")

    def _replace(self, cls):
        plain_new = cls.__new__
        signature = inspect.signature(cls.__init__)
        remedy = self

        def __new__(kind, *args, **kwargs):
            if kind is cls and (args or kwargs):
                other = remedy.careful(remedy._instead)(cls, signature, args, kwargs)
                if other is not None:
                    return other
            if getattr(plain_new, "replaces", False):
                # Another remedy's, which sees what is made only with its arguments.
                return plain_new(kind, *args, **kwargs)
            return plain_new(kind)

        __new__.replaces = True  # type: ignore[attr-defined]
        cls.__new__ = staticmethod(__new__)

    def _instead(self, cls, signature, args, kwargs):
        given = dict(signature.bind(None, *args, **kwargs).arguments)
        given.pop("self", None)
        self._needs()
        parameters = given.pop("params")
        parameters = parameters if isinstance(parameters, (list, tuple)) else list(parameters)
        other = self.make(self.torch, cls, parameters, given)
        self.made.append(other)
        self.applied("%s in place of %s" % (qualified(type(other)), qualified(cls)))
        return other

    def _trainer(self, trainer):
        super()._trainer(trainer)
        if self.state in (protocol.REMEDY_APPLIED, protocol.REMEDY_ALREADY):
            self.evidence = None
            self.trainer = trainer

    trainer: Any = None

    def verify(self) -> None:
        optimizers = list(self.made)
        if self.trainer is not None and getattr(self.trainer, "optimizer", None) is not None:
            optimizer = self.trainer.optimizer
            optimizers.append(getattr(optimizer, "optimizer", optimizer))
        for optimizer in optimizers:
            kept = state_of(optimizer)
            if kept:
                self.evidence = "the state of %s: %s" % (qualified(type(optimizer)), kept)
            elif kept is not None or self.moments.steps_seen:
                self.evidence = "%s keeps no state" % qualified(type(optimizer))


def qualified(cls: type) -> str:
    """`bitsandbytes.optim.AdamW8bit`: the package and the class, without what lies between."""
    module = (cls.__module__ or "").split(".")
    return ".".join(module[:2] + [cls.__name__])


def state_of(optimizer: Optimizer) -> str | None:
    """How many bytes an optimizer keeps per type: `uint8 248 MiB, float32 8 MiB`; None before its first step."""
    sizes: dict[str, int] = {}
    seen = False
    for state in optimizer.state.values():
        seen = True
        for value in state.values() if isinstance(state, dict) else ():
            if hasattr(value, "untyped_storage") and value.numel() > 1:
                name = str(value.dtype).replace("torch.", "")
                sizes[name] = sizes.get(name, 0) + value.nbytes
    if not seen:
        return None
    return ", ".join("%s %.1f MiB" % (name, size / 2.0**20) for name, size in sorted(sizes.items()))


def common(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Those arguments of torch's optimizer that the other one has too."""
    return {name: given[name] for name in names if name in given}


def of_bitsandbytes(suffix: str, paged: str = "") -> Callable[..., Optimizer]:
    """A maker of bitsandbytes' Adam or AdamW."""

    def make(torch, cls, parameters, given):
        import bitsandbytes

        kind = getattr(bitsandbytes.optim, paged + cls.__name__ + suffix)
        return kind(parameters, **common(given, "lr", "betas", "eps", "weight_decay", "amsgrad"))

    make.package = "bitsandbytes"  # type: ignore[attr-defined]
    return make


eight_bit = of_bitsandbytes("8bit")
paged_eight_bit = of_bitsandbytes("8bit", "Paged")


def four_bit(torch: Torch, cls: type, parameters: Sequence[Any], given: dict[str, Any]) -> Optimizer:
    """AdamW of torchao with states of 4 bits."""
    import torchao.optim

    kind = {"Adam": torchao.optim.Adam4bit, "AdamW": torchao.optim.AdamW4bit}[cls.__name__]
    return kind(parameters, **common(given, "lr", "betas", "eps", "weight_decay", "amsgrad"))


four_bit.package = "torchao"  # type: ignore[attr-defined]


def adafactor(torch: Torch, cls: type, parameters: Sequence[Any], given: dict[str, Any]) -> Optimizer:
    """Adafactor of torch, which keeps one row and one column of moments for each matrix."""
    if not hasattr(torch.optim, "Adafactor"):
        raise Refused("torch has Adafactor from 2.5 on")
    return torch.optim.Adafactor(parameters, **common(given, "lr", "weight_decay"))


def lion(torch: Torch, cls: type, parameters: Sequence[Any], given: dict[str, Any]) -> Optimizer:
    """Lion of bitsandbytes, one moment in 8 bits."""
    import bitsandbytes

    return bitsandbytes.optim.Lion8bit(parameters, **common(given, "lr", "weight_decay"))


lion.package = "bitsandbytes"  # type: ignore[attr-defined]


def sgd(torch: Torch, cls: type, parameters: Sequence[Any], given: dict[str, Any]) -> Optimizer:
    """SGD without momentum, which keeps nothing."""
    return torch.optim.SGD(parameters, lr=given.get("lr", 1e-3), weight_decay=given.get("weight_decay", 0.0))


class Stepping(Argument):
    """`fused-optimizer` and `foreach-off`: the same optimizer, another way of stepping."""

    waits_for = "the program made no optimizer that can step in another way"

    def __init__(self, name: str, options: dict[str, Any], wanted: dict[str, Any], optim: str | None) -> None:
        super().__init__(name, options)
        self.wanted = wanted
        self.optim = optim
        self.made: list[Optimizer] = []

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.attach_trainer(moments)
        for name in ("Adam", "AdamW", "SGD", "Adagrad", "NAdam", "RAdam", "RMSprop", "Adamax", "Adadelta", "ASGD", "Rprop"):
            cls = getattr(moments.torch.optim, name, None)
            if cls is not None:
                self._change(cls)

    def fields(self, arguments: Any) -> dict[str, Any]:
        from oomph.remedies.trainer import plain

        optim = plain(arguments.optim)
        if not optim.startswith("adamw_torch") or optim == "adamw_torch_4bit":
            return {}
        # Without a name of its own, the plain AdamW is asked for and made so below.
        return {"optim": self.optim or "adamw_torch"}

    def _change(self, cls):
        original = cls.__init__
        names = inspect.signature(original).parameters
        if not all(name in names for name in self.wanted):
            return
        remedy = self

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            if type(self) is cls:
                kwargs = dict(kwargs, **remedy.wanted)
                remedy.made.append(self)
            original(self, *args, **kwargs)
            if type(self) is cls:
                remedy.applied("%s is made with %s" % (qualified(cls), remedy._words()))

        cls.__init__ = __init__

    def _words(self):
        return ", ".join("%s=%s" % item for item in self.wanted.items())

    def verify(self) -> None:
        groups = [group for optimizer in self.made for group in optimizer.param_groups]
        if groups and all(group.get(name) == value for group in groups for name, value in self.wanted.items()):
            self.evidence = "all %d parameter groups have %s" % (len(groups), self._words())


class InBackward(Remedy):
    """`optimizer-in-backward`: each parameter steps as soon as its gradient is complete, and the gradient is freed."""

    waits_for = "the program made no optimizer of torch"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.handles: list[Any] = []
        self.steps = 0
        self.parameters = 0
        if not hasattr(self.torch.Tensor, "register_post_accumulate_grad_hook"):
            raise Refused("torch can do this from 2.1 on")
        moments.on_arguments(self._arguments)
        moments.on_optimizer(self.careful(self._optimizer))
        self._watch_scaler()

    def _arguments(self, arguments):
        if int(arguments.gradient_accumulation_steps) > 1:
            self._withdraw("gradients are accumulated over several steps")
        elif float(arguments.max_grad_norm or 0) > 0:
            self._withdraw("the Trainer clips the norm of all gradients, which then are never there together")

    def _watch_scaler(self):
        scaler = self.torch.amp.GradScaler if hasattr(self.torch, "amp") and hasattr(self.torch.amp, "GradScaler") else None
        if scaler is None:
            return
        original = scaler.scale
        remedy = self

        @functools.wraps(original)
        def scale(self, outputs):
            if self.is_enabled():
                remedy._withdraw("a GradScaler scales the gradients, which have to be there together")
            return original(self, outputs)

        scaler.scale = scale

    def _withdraw(self, why):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.failed(why)
        self._off = True

    _off = False
    _making = False

    def _optimizer(self, optimizer):
        cls = type(optimizer)
        if self._off or self._making or not (cls.__module__ or "").startswith("torch.optim") or not hasattr(optimizer, "param_groups"):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and parameter.is_leaf:
                    self._give_own(optimizer, cls, group, parameter)
        if self.handles:
            self.parameters = len(self.handles)
            self.applied("%d parameters step inside the backward pass" % self.parameters)

    def _give_own(self, optimizer, cls, group, parameter):
        taken = inspect.signature(cls.__init__).parameters
        self._making = True
        try:
            own = cls([parameter], **{name: value for name, value in group.items() if name in taken and name != "params"})
        finally:
            self._making = False
        inner = own.param_groups[0]
        # The plain function of the class, so that a parameter's step is not counted as the program's.
        step = getattr(cls.step, "__wrapped__", cls.step)

        def stepping(tensor):
            for name, value in group.items():
                if name != "params":
                    inner[name] = value
            step(own)
            tensor.grad = None
            self.steps += 1

        self.handles.append(parameter.register_post_accumulate_grad_hook(stepping))

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED and self.steps:
            self.evidence = "%d steps of single parameters in backward" % self.steps
