"""Looks at every tensor that Python can reach: for an out-of-memory error, when nothing else may have been seen."""

from __future__ import annotations

import gc

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Torch
    from oomph.owners.graph import Graph
    from oomph.owners.modules import Modules
    from oomph.owners.notes import Moment
    from oomph.owners.optimizers import Optimizers
    from oomph.owners.tensors import Tensors


def survey(
    torch: Torch, tensors: Tensors, modules: Modules, optimizers: Optimizers, graph: Graph, moment: Moment
) -> None:
    """Observe modules and optimizers that were never called, and all other tensors on a device.

    Objects are distinguished by their class alone, because asking a proxy what it is can load or compute something. Where
    other threads work with torch, neither graphs nor gradients of theirs are read.
    """
    alone = not modules.workers.others()
    found, roots, steppers = [], [], []
    below: set[int] = set()
    optimizer_class = torch.optim.Optimizer
    kinds: dict[type, str] = {}
    for thing in gc.get_objects():
        cls = type(thing)
        kind = kinds.get(cls)
        if kind is None:
            kind = kinds[cls] = _kind(cls, torch, optimizer_class, tensors)
        if kind == "tensor":
            found.append(thing)
        elif kind == "module":
            roots.append(thing)
            below.update(id(child) for child in thing._modules.values() if child is not None)
        elif kind == "optimizer":
            steppers.append(thing)
    for module in roots:
        if id(module) not in below and (module._parameters or module._modules):
            modules.see_root(modules.root_of(module), moment)
    for optimizer in steppers:
        optimizers.see_parameters(optimizer, moment, gradients=alone)
        optimizers.see_state(optimizer, moment)
    modules.see_gradients(moment)
    if alone:
        for name, tensor in graph.saved(found):
            moment.see(tensors, tensor, protocol.OWNER_ACTIVATION, name)
    for tensor in found:
        if isinstance(tensor, torch.nn.Parameter):
            moment.see(tensors, tensor, protocol.OWNER_PARAMETER, "(%s)" % type(tensor).__name__)
        elif not tensor.is_leaf:
            name = tensor.grad_fn.name() if alone else "(%s)" % type(tensor).__name__
            moment.see(tensors, tensor, protocol.OWNER_ACTIVATION, name)
        else:
            moment.see(tensors, tensor, "other", "(%s)" % type(tensor).__name__)


def _kind(cls, torch, optimizer_class, tensors):
    try:
        if tensors.kind(cls) in ("plain", "inner"):
            return "tensor"
        if issubclass(cls, torch.nn.Module) and not issubclass(cls, torch.jit.ScriptModule):
            return "module"
        if issubclass(cls, optimizer_class):
            return "optimizer"
    except TypeError:
        pass
    return "none"
