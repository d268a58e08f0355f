"""Finds what optimizers hold: parameters that no module names, gradients when a step begins, state when it has ended."""

from __future__ import annotations

import weakref

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Optimizer
    from oomph.owners.modules import Modules
    from oomph.owners.notes import Moment
    from oomph.owners.tensors import Tensors


class Optimizers:
    """Watches the steps of optimizers, torch's own and those that derive from them."""

    def __init__(self, tensors: Tensors, modules: Modules) -> None:
        self.tensors = tensors
        self.modules = modules
        self.seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def see_parameters(self, optimizer: Optimizer, moment: Moment, gradients: bool = True) -> None:
        """Observe the parameters of the groups and, at the begin of a step, which reads them as well, their gradients."""
        self.seen.add(optimizer)
        for group, index, parameter in self._parameters(optimizer):
            name = self.modules.name_of_parameter(parameter)
            if name is None:
                name = "optimizer.%d.%d" % (group, index)
                moment.see(self.tensors, parameter, protocol.OWNER_PARAMETER, name, lasting=("parameter", name, id(optimizer)))
            if gradients and parameter.grad is not None:
                moment.see(self.tensors, parameter.grad, protocol.OWNER_GRADIENT, name)

    def see_state(self, optimizer: Optimizer, moment: Moment) -> None:
        """Observe the state per parameter, and tensors that the optimizer keeps elsewhere."""
        self.seen.add(optimizer)
        names = {}
        for group, index, parameter in self._parameters(optimizer):
            names[id(parameter)] = self.modules.name_of_parameter(parameter) or "optimizer.%d.%d" % (group, index)
        state = getattr(optimizer, "state", None) or {}
        for key, value in list(state.items()):
            self._see(value, names.get(id(key)) or (str(key)[:80] if isinstance(key, (str, int)) else "optimizer.state"), optimizer, moment)
        own = {name: value for name, value in vars(optimizer).items() if name not in ("state", "param_groups")}
        parameters = set(names)
        for path, tensor in self.tensors.inside(own, "optimizer", objects=True):
            if id(tensor) not in parameters and not tensor.requires_grad:
                self._note(tensor, path, optimizer, moment)
        for index, group in enumerate(optimizer.param_groups):
            rest = {name: value for name, value in group.items() if name != "params"}
            self._see(rest, "optimizer.%d" % index, optimizer, moment)

    def _see(self, value, path, optimizer, moment):
        for inner, tensor in self.tensors.inside(value, path, objects=True):
            self._note(tensor, inner, optimizer, moment)

    def _note(self, tensor, path, optimizer, moment):
        key = ("optimizer-state", path, id(optimizer))
        moment.see(self.tensors, tensor, protocol.OWNER_OPTIMIZER_STATE, path, lasting=key)

    def _parameters(self, optimizer):
        for number, group in enumerate(getattr(optimizer, "param_groups", None) or ()):
            for index, parameter in enumerate(group.get("params", ())):
                if self.tensors.is_tensor(parameter):
                    yield number, index, parameter
