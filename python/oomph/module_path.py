"""Finds which module of which model a stack is in, by the name that the model gives it: `model.layers.17.mlp`.

Only frames of PyTorch's own `Module.__call__` are read.
"""

from __future__ import annotations

import gc

from oomph.looking import with_locals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from oomph._types import Model

_CALLS = ("_call_impl", "_wrapped_call_impl", "_slow_forward")
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule", "DeepSpeedEngine")
_INFIXES = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_MOST_SEARCHES = 4
_searches = 0


class Called:
    """The innermost module of a stack and the model that it belongs to. It holds both: let go of it soon."""

    def __init__(self, inner: Model, root: Model) -> None:
        self.inner = inner
        self.root = root

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return bool(getattr(self.root, "training", False))

    def names(self) -> tuple[str | None, str]:
        """The module's path in its model, or None for the model itself, and the class of the model."""
        root = bare(self.root)
        path = path_in(root, self.inner)
        return path or None, type(root).__name__


def called(frame: FrameType | None) -> Called | None:
    """The modules whose calls are on the stack that ends in `frame`, as a `Called`; None where there is none."""
    inner = root = None
    while frame is not None:
        code = frame.f_code
        if code.co_name in _CALLS and code.co_filename.replace("\\", "/").endswith("/torch/nn/modules/module.py"):
            module = with_locals(frame, lambda names: names.get("self"))
            if module is not None:
                inner = module if inner is None else inner
                root = module
        frame = frame.f_back
    return None if inner is None else Called(inner, root)


def of_recomputation(found: Called | None) -> Called | None:
    """The same with the model that the outermost module is a part of: backward calls a layer again on its own.

    Every object of the process is looked at, so this is done for the first few errors of a process only.
    """
    global _searches
    if found is None or _searches >= _MOST_SEARCHES:
        return found
    _searches += 1
    kind = _module_class(type(found.root))
    if kind is None:
        return found
    parents: set[int] = set()
    models = []
    for thing in gc.get_objects():
        if issubclass(type(thing), kind):
            models.append(thing)
            parents.update(id(child) for child in thing._modules.values() if child is not None)
    for model in models:
        if id(model) not in parents and path_in(bare(model), found.inner):
            return Called(found.inner, model)
    return found


def bare(module: Model) -> Model:
    """A module without the wrappers that data parallelism and the compiler put around it."""
    while type(module).__name__ in _WRAPPERS and len(module._modules) == 1:
        module = next(iter(module._modules.values()))
    return module


def path_in(root: Model, module: Model) -> str:
    """The name of a module below a root; empty for the root itself and for what is not below it."""
    for path, member in root.named_modules():
        if member is module:
            for infix in _INFIXES:
                path = path.replace(infix, "")
            return path
    return ""


def _module_class(cls):
    for base in cls.__mro__:
        if base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module":
            return base
    return None
