"""Computes an operation on the CPU over the memory of the virtual GPU."""

from __future__ import annotations

from oomph.comparing import drawing
from oomph.values.memory import HostMemory, OneThread
from oomph.values.operations import Variants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from oomph._types import Dtype, Tensor, Torch
    from oomph.values.operations import Operation

#: Up to this many elements no kernel of the CPU shares its work among threads.
ALONE = 1024


class Arithmetic:
    """Runs operators of the CPU on device tensors."""

    def __init__(
        self, torch: Torch, on_device: Callable[[Tensor], bool], low: frozenset[Dtype], everything: bool
    ) -> None:
        self.torch = torch
        self.memory = HostMemory(torch)
        self._on_device = on_device
        self._low = low
        self._everything = everything
        self._one_thread = OneThread(torch)
        self._variants = Variants(torch)
        self._generator = torch.Generator(device="cpu")
        self._generator.manual_seed(0)

    def host(self, value: Any, widen: bool = False, shadows: list[tuple[Tensor, Tensor, Tensor]] | None = None) -> Any:
        """An argument as the CPU's kernel should see it."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            if not self._on_device(value):
                return value.float() if widen and value.dtype in self._low else value
            alias = self.memory.alias(value)
            if widen and value.dtype in self._low:
                shadow = alias.float()
                if shadows is not None:
                    shadows.append((value, alias, shadow))
                return shadow
            return alias
        if isinstance(value, (list, tuple)):
            if value and isinstance(value[0], (int, float)):
                return value
            return [self.host(one, widen, shadows) for one in value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, torch.Generator):
            return self._generator
        if widen and isinstance(value, torch.dtype) and value in self._low:
            return torch.float32
        return value

    def into(self, operation: Operation, args: Sequence[Any], kwargs: dict[str, Any], out: Tensor, count: int) -> bool:
        """Computes an ordinary operation, whose arguments are the CPU's already, right into `out`.

        `count` is the number of elements of the largest tensor.  Says whether it could be done.
        """
        function = operation.into
        if function is None:
            function = operation.into = self._variants.find(operation)
        if function is False or out.dtype in operation.upcast:
            return False
        try:
            if count <= ALONE or self._everything:
                function(*args, **kwargs, out=out)
                return True
            before = self._one_thread.enter()
            try:
                function(*args, **kwargs, out=out)
            finally:
                self._one_thread.leave(before)
            return True
        except Exception:
            # What the CPU's kernel refuses is done the long way, which says what is the matter.
            if out.dtype not in self._low:
                operation.into = False
            return False

    def compute(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[Tensor]
    ) -> Any:
        """Runs the operation on the CPU over the same memory; returns what the CPU's kernel returned."""
        widen = bool(operation.upcast) and any(tensor.dtype in operation.upcast for tensor in outs)
        if not operation.upcast:
            try:
                return self._compute(operation, args, kwargs, outs, False)
            except (RuntimeError, NotImplementedError) as error:
                dtypes = {tensor.dtype for tensor in outs if tensor.dtype in self._low}
                if not dtypes and not self._any_low(args):
                    raise
                if "not implemented" not in str(error) and "expected scalar type" not in str(error):
                    raise
                result = self._compute(operation, args, kwargs, outs, True)
                operation.upcast |= dtypes
                return result
        return self._compute(operation, args, kwargs, outs, widen)

    def _any_low(self, values):
        for value in values:
            if isinstance(value, self.torch.Tensor):
                if value.dtype in self._low:
                    return True
            elif isinstance(value, (list, tuple)) and self._any_low(value):
                return True
        return False

    def _compute(self, operation, args, kwargs, outs, widen):
        if self._everything:
            return self._computed(operation, args, kwargs, outs, widen)
        before = self._one_thread.enter()
        try:
            return self._computed(operation, args, kwargs, outs, widen)
        finally:
            self._one_thread.leave(before)

    def _computed(self, operation, args, kwargs, outs, widen):
        shadows: list[tuple[Tensor, Tensor, Tensor]] | None = [] if widen and operation.mutated else None
        host_args = [self.host(value, widen, shadows) for value in args]
        host_kwargs = {}
        for name, value in kwargs.items():
            if name != "pin_memory":
                host_kwargs[name] = self.host(value, widen, shadows)
        draws = drawing.current() if operation.has_generator or operation.seeded else None
        if draws is not None:
            asked = next((one for one in (*args, *kwargs.values()) if isinstance(one, self.torch.Generator)), None)
            result = draws.draw(operation, host_args, host_kwargs, operation.host_call, asked)
        elif operation.has_generator and len(args) < len(operation.arguments):
            given = any(isinstance(one, self.torch.Generator) for one in host_args)
            if host_kwargs.get("generator") is None and not given:
                host_kwargs["generator"] = self._generator
            result = operation.host_call(*host_args, **host_kwargs)
        elif operation.seeded:
            # The seeds of the user's program belong to the user.
            default = self.torch.default_generator
            state = default.get_state()
            try:
                result = operation.host_call(*host_args, **host_kwargs)
            finally:
                default.set_state(state)
        else:
            result = operation.host_call(*host_args, **host_kwargs)
        if operation.mutated:
            if shadows:
                for _, alias, shadow in shadows:
                    alias.copy_(shadow)
            return result
        made = self._flat(result)
        if len(made) == len(outs):
            for out, one in zip(outs, made):
                if out.size() == one.size():
                    if out.numel():
                        self.memory.alias(out).copy_(one)
                else:
                    # The CPU's kernel keeps other things for backward than CUDA's does.
                    self.memory.zero(out)
        elif made or outs:
            for out in outs:
                self.memory.zero(out)
        return result

    def _flat(self, result):
        if isinstance(result, self.torch.Tensor):
            return [result]
        if isinstance(result, (list, tuple)):
            found = []
            for one in result:
                found.extend(self._flat(one))
            return found
        return []

    @staticmethod
    def note_failure(operation: Operation, error: BaseException) -> None:
        """Remembers an operation that the CPU cannot do, so that it is not tried again and again."""
        text = str(error)
        if "Could not run" in text or "no CPU" in text:
            operation.computed = False
        operation.failures += 1
