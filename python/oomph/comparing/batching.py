"""Makes the batch smaller of a program that has no loader and makes its tensors itself.

How many samples it takes is seen at the first call of a model in training, where the run ends; it begins again with the number, and
each tensor that the program makes with so many rows gets fewer.
"""

from __future__ import annotations

import functools
import sys

from oomph import sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._protocol import Compare
    from oomph._types import Torch

#: Functions whose first arguments, or first tuple, are a size.
_SIZED = ("randn", "rand", "zeros", "ones", "empty", "full", "randint", "normal")


def watch(torch: Torch, wanted: Compare, is_loaded: Callable[[], bool], seen: Callable[[int], None]) -> None:
    """Has `seen` called with the samples of the first call of a model in training, if no loader gives them and they are many."""
    if wanted["batch"]:
        _make_fewer(torch, wanted["batch"], wanted["few"])
        return
    optimizer = sys.modules["torch.optim.optimizer"].Optimizer
    module = torch.nn.modules.module
    handles: list[Any] = []

    def before(called, args):
        first = next((one for one in args if isinstance(one, torch.Tensor)), None)
        if first is None or not called.training or not torch.is_grad_enabled():
            return
        while handles:
            handles.pop().remove()
        if first.dim() and len(first) > wanted["few"] and not is_loaded():
            seen(len(first))

    original = optimizer.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not handles:
            handles.append(module.register_module_forward_pre_hook(before))

    optimizer.__init__ = __init__


def _make_fewer(torch, batch, few):
    """Gives what the program itself makes with `batch` rows `few`."""

    def fewer(size):
        return (few, *size[1:]) if size and size[0] == batch else size

    def sized(original):
        @functools.wraps(original)
        def make(*args, **kwargs):
            if sites.is_user_file(sys._getframe(1).f_code.co_filename):
                args, kwargs = _resized(args, kwargs, fewer)
            return original(*args, **kwargs)

        return make

    for name in _SIZED:
        setattr(torch, name, sized(getattr(torch, name)))
    counting = torch.arange

    @functools.wraps(counting)
    def arange(*args, **kwargs):
        if args == (batch,) and sites.is_user_file(sys._getframe(1).f_code.co_filename):
            args = (few,)
        return counting(*args, **kwargs)

    torch.arange = arange


def _resized(args, kwargs, fewer):
    """The arguments with another size, wherever they have it."""
    if isinstance(kwargs.get("size"), (tuple, list)):
        return args, {**kwargs, "size": fewer(tuple(kwargs["size"]))}
    for place, one in enumerate(args):
        if isinstance(one, (tuple, list)):
            return (*args[:place], fewer(tuple(one)), *args[place + 1 :]), kwargs
    if args and all(isinstance(one, int) for one in args):
        return fewer(args), kwargs
    return args, kwargs
