"""Uses fewer bytes for each number: autocast, and models held in 16 bits."""

from __future__ import annotations

from oomph import _protocol as protocol
from oomph import forked
from oomph.program.kinds import name_of, on_a_card
from oomph.remedies.remedy import Refused, Remedy
from oomph.remedies.trainer import Argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from oomph._types import Dtype, Model, Torch
    from oomph.moments import Moments


def chosen_type(torch: Torch, name: str | None) -> Dtype:
    """`bfloat16` or `float16` as a type; without a name, bfloat16 where the card computes in it."""
    if name is None:
        available = not forked.is_away() and torch.cuda.is_available()
        name = "bfloat16" if not available or torch.cuda.get_device_capability()[0] >= 8 else "float16"
    name = {"bf16": "bfloat16", "fp16": "float16"}.get(name, name)
    if name not in ("bfloat16", "float16"):
        raise Refused("%s is not a 16-bit type" % name)
    return getattr(torch, name)


class Autocast(Argument):
    """`autocast` (option `dtype`): from the call of the model to the backward pass, as in

    `with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)`.
    """

    waits_for = "no model was called with gradients"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        self.open: str | Literal[False] = False
        self.calls = 0
        self.types: set[str] = set()
        self._known: set[int] = set()
        self.attach_trainer(moments)
        moments.before_model(self.careful(self._begin))
        moments.around_model(self.careful(self._around))
        moments.on_backward(self._end)
        moments.on_optimizer(lambda optimizer: None)
        moments.on_step(lambda optimizer: self._end())

    def fields(self, arguments: Any) -> dict[str, Any]:
        wanted = "bf16" if chosen_type(self.torch, self.option("dtype", None)) is self.torch.bfloat16 else "fp16"
        other = "fp16" if wanted == "bf16" else "bf16"
        return {wanted: True, other: False}

    # -- plain loops -------------------------------------------------------------------------------------------

    def _begin(self, model, args, kwargs):
        torch = self.torch
        if not model.training or not torch.is_grad_enabled():
            return
        self._see(model)
        if self.moments.trainer_seen or self.open:
            return
        if torch.is_autocast_enabled():
            self.already("the program runs its models in torch.autocast")
            return
        dtype = chosen_type(torch, self.option("dtype", None))
        torch.set_autocast_enabled(self._device(model), True)
        torch.set_autocast_dtype(self._device(model), dtype)
        torch.autocast_increment_nesting()
        self.open = self._device(model)
        self.calls += 1
        self.applied("%s and its loss run in torch.autocast with %s" % (name_of(model), str(dtype).replace("torch.", "")))

    def _device(self, model):
        return "cuda" if on_a_card(model) else "cpu"

    def _end(self):
        if self.open:
            torch = self.torch
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
            torch.set_autocast_enabled(self.open, False)
            self.open = False

    def _around(self, model):
        """A call that no backward pass follows ends its autocast itself."""
        if self.open and not (model.training and self.torch.is_grad_enabled()):
            self._end()
        return None

    # -- verification ------------------------------------------------------------------------------------------

    def _see(self, model):
        """Look once at what a linear or convolutional layer of the model gives."""
        if id(model) in self._known:
            return
        self._known.add(id(model))
        torch = self.torch
        kinds = (torch.nn.Linear, torch.nn.Conv2d, torch.nn.Conv1d)
        for module in model.modules():
            if isinstance(module, kinds) or type(module).__name__ == "Conv1D":

                def gave(module, args, result):
                    handle.remove()  # noqa: B023 (the loop ends with the first such layer)
                    if hasattr(result, "dtype"):
                        self.types.add(str(result.dtype).replace("torch.", ""))

                handle = module.register_forward_hook(gave)
                return

    def verify(self) -> None:
        if self.state in (protocol.REMEDY_APPLIED, protocol.REMEDY_ALREADY) and self.types:
            if self.types & {"float16", "bfloat16"}:
                self.evidence = "a layer's result was %s" % ", ".join(sorted(self.types))
            elif self.state == protocol.REMEDY_APPLIED:
                self.failed("a layer's result was still %s" % ", ".join(sorted(self.types)))


class HalfModel(Remedy):
    """`pure-bf16` and `half-weights` (option `dtype`): the model is loaded or converted in 16 bits."""

    waits_for = "no model was moved to a card or called"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.converted: list[Model] = []
        self._seen: set[int] = set()
        self._asked: set[type] = set()
        """Classes that the program loads in more bits."""
        moments.on_pretrained(before=self.careful(self._loading), after=self.careful(self._loaded))
        moments.before_move(self.careful(self._convert))
        moments.before_model(self.careful(self._called))

    def dtype(self) -> Dtype:
        """The type to hold the model in."""
        return chosen_type(self.torch, self.option("dtype", "bfloat16" if self.name == "pure-bf16" else None))

    def _loading(self, cls, kwargs):
        name = "torch_dtype" if "torch_dtype" in kwargs or not takes_dtype(cls) else "dtype"
        given = str(kwargs.get(name)).replace("torch.", "")
        if given in ("None", "auto") and kwargs.get("device_map") is None:
            # It comes into host memory as its checkpoint is, and what is wide in it is converted there.
            return
        kwargs[name] = self.dtype()
        if given in ("float32", "float64"):
            self._asked.add(cls)

    def _loaded(self, model, kwargs):
        if type(model) in self._asked and id(model) not in self._seen:
            self._seen.add(id(model))
            self.converted.append(model)
            self.applied("%s is loaded in %s" % (name_of(model), str(self.dtype()).replace("torch.", "")))
        self._convert(model)

    def _convert(self, model):
        dtype = self.dtype()
        wide = [parameter for parameter in model.parameters() if parameter.dtype == self.torch.float32]
        if id(model) in self._seen:
            return
        self._seen.add(id(model))
        self.converted.append(model)
        if not wide:
            if any(parameter.dtype == dtype for parameter in model.parameters()):
                self.already("%s is in %s" % (name_of(model), str(dtype).replace("torch.", "")))
            return
        model.to(dtype)
        self.applied("%s is held in %s" % (name_of(model), str(dtype).replace("torch.", "")))

    def _called(self, model, args, kwargs):
        self._convert(model)
        dtype = self.dtype()
        cast = lambda value: value.to(dtype) if is_wide(self.torch, value) else value
        return tuple(cast(value) for value in args), {name: cast(value) for name, value in kwargs.items()}

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED:
            sizes: dict[str, int] = {}
            for model in self.converted:
                for parameter in model.parameters():
                    name = str(parameter.dtype).replace("torch.", "")
                    sizes[name] = sizes.get(name, 0) + parameter.nbytes
            self.evidence = "parameters: " + ", ".join("%s %.1f MiB" % (name, size / 2.0**20) for name, size in sorted(sizes.items()))


def is_wide(torch: Torch, value: object) -> bool:
    """Say whether a value is a tensor of fp32."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def takes_dtype(cls: type) -> bool:
    """Say whether this library's `from_pretrained` calls the type `dtype`, as transformers does from 4.56 on."""
    import sys

    from oomph.remedies.remedy import version_of

    return cls.__module__.startswith("transformers.") and version_of(sys.modules["transformers"]) >= (4, 56)
