"""Determines what a module is: its class, what is wrapped in what, where its parameters are."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomph._types import Model, Tensor, Torch

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "OptimizedModule", "FullyShardedDataParallel")


def is_a(thing: object, module: str, cls: str) -> bool:
    """Say whether something is of a class of a library, without importing the library."""
    kind = getattr(sys.modules.get(module), cls, None)
    return kind is not None and isinstance(thing, kind)


def unwrapped(model: Model) -> Model:
    """The model inside DDP, torch.compile and the like; of a PEFT model the one that it adapts."""
    for _ in range(8):
        name = type(model).__name__
        if name in _WRAPPERS:
            inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        elif name.startswith("PeftModel"):
            inner = getattr(getattr(model, "base_model", None), "model", None)
        else:
            break
        if inner is None:
            break
        model = inner
    return model


def name_of(model: Model) -> str:
    """The class of a model, for a sentence."""
    return type(model).__name__


def library_of(model: Model) -> str:
    """Whose model it is: transformers, diffusers, timm, torchvision or plain."""
    if is_a(model, "transformers.modeling_utils", "PreTrainedModel"):
        return "transformers"
    if is_a(model, "diffusers.models.modeling_utils", "ModelMixin"):
        return "diffusers"
    package = (type(model).__module__ or "").split(".")[0]
    return package if package in ("timm", "torchvision") else "plain"


def checkpoints_itself(model: Model) -> bool:
    """Say whether a model of a library is set to checkpoint its blocks; the name of the property has changed."""
    for name in ("is_activation_checkpointing", "is_gradient_checkpointing"):
        if hasattr(type(model), name):
            return bool(getattr(model, name))
    return bool(getattr(model, "grad_checkpointing", False))


def on_a_card(model: Model) -> bool:
    """Say whether any parameter of a model is on a card."""
    return any(parameter.is_cuda for parameter in model.parameters())


def largest_model(torch: Torch, parameters: Iterable[Tensor]) -> Model | None:
    """The outermost module that holds the most of these parameters, found among everything that is alive, or None."""
    import gc

    wanted = {id(parameter) for parameter in parameters}
    best, held = None, (0, 0)
    for thing in gc.get_objects():
        # `isinstance` would ask objects for their class, and some answer by importing a library.
        if issubclass(type(thing), torch.nn.Module):
            own = [parameter for parameter in thing.parameters() if id(parameter) in wanted]
            size = len(own), sum(1 for _ in thing.modules())
            if own and size > held:
                best, held = thing, size
    return best
