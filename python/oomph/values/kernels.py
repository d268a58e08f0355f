"""Kernels that run before CUDA's: they run the operation, then give its small results their values.

They are registered with PyTorch's dispatcher under a key of their own that lies right above the backends
(`CustomRNGKeyId`: built into every PyTorch, used by nothing) and that takes part only in threads that include it.
A `TorchDispatchMode` would be the documented way, and it is not used because it changes what is being measured: while
one is active, autograd adds gradients out of place instead of in place, dynamo declines to compile, and views pay for a
trip through Python.  Below autograd, below every mode and every tensor subclass, only real work on real tensors is seen.
"""

from __future__ import annotations

import operator

from oomph import faults
from oomph.values import copies, decoders, dynamic, fused, quick
from oomph.values.arithmetic import Arithmetic
from oomph.values.blocks import Blocks
from oomph.values.memory import readable
from oomph.values.operations import (
    BLANKS,
    FINITENESS,
    OPENED,
    OVERWRITES,
    OVERWRITES_PARTS,
    POSITIONS,
    PRIVATE,
    UNSCALING,
    UNTOUCHED,
    UNTOUCHED_PREFIXES,
    ZEROS,
    Operation,
    is_view,
    schema_of,
)
from oomph.values.standins import Standins
from oomph.values.unknown import BLANK, GUESS, KNOWN, UNKNOWN, Unknowns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from oomph._types import Tensor, Torch
    from oomph.values.unknown import Warner

KEY = "CustomRNGKeyId"
#: Tensors of at most this many elements are computed; integers and flags up to the size of a copy that the virtual
#: GPU carries out, because masks and token ids decide what a program does.
SMALL = 65536
SMALL_BYTES = 1 << 20
#: Operations with a kernel of their own, other than those in `dynamic`.
_SPECIAL = {
    "_to_copy": copies.copied, "copy_": copies.copied, "lift_fresh": copies.lifted, "lift": copies.lifted,
    "_local_scalar_dense": copies.read_back, "_amp_update_scale_": copies.scale_updated,
}


class Kernels:
    """Owns the registrations and everything that a call needs."""

    #: Whether a tensor lives on the virtual GPU.  Tests put something else here.
    on_device = staticmethod(operator.attrgetter("is_cuda"))

    def __init__(
        self, torch: Torch, mode: str, warn: Warner, routing: str = "balanced", unknown_sizes: str = "most"
    ) -> None:
        native = torch._C
        self.torch = torch
        self.warn = warn
        self.routing = routing
        self.unknown_sizes = unknown_sizes
        everything = self.everything = mode == "all-host"
        self.limit = (1 << 62) if everything else SMALL
        self.limit_bytes = (1 << 62) if everything else SMALL_BYTES
        self.copied_bytes = SMALL_BYTES
        # Not `_parse_dispatch_key`, which PyTorch 2.1 does not have.
        self.key = native._dispatch_key_parse(KEY)
        self.below = native._dispatch_keyset_full_after(self.key)
        self.floats = frozenset(
            value for value in vars(torch).values()
            if isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex)
        )
        low = frozenset(
            value for value in self.floats if value.is_floating_point and value.itemsize < 4
        ) if hasattr(torch.float16, "itemsize") else frozenset((torch.float16, torch.bfloat16))
        self.arithmetic = Arithmetic(torch, self.on_device, low, everything)
        self.memory = self.arithmetic.memory
        self.unknowns = Unknowns(Blocks(torch), self.large, self.most_bytes)
        self.standins = Standins(self)
        self.include = native._dispatch_tls_set_dispatch_key_included
        self.capturing = getattr(native, "_cuda_isCurrentStreamCapturing", lambda: False)
        self.undisturbed = native.DisableTorchFunction
        self.tensor_types = {torch.Tensor: True, torch.nn.Parameter: True}
        #: Whether the quick ways are taken. A test goes without them.
        self.with_quick_ways = True
        self.broken = False
        self.checked = False
        self.copied_quickly: dict[str, Any] = {}
        # The registrations last as long as these objects.
        self._libraries: dict[str, Any] = {}
        #: Operators of which the processor has no kernel. They are made of others where everything is computed.
        self.fused = fused.functions(torch) if everything else {}
        #: Operations whose results were to be computed and were not.
        self.left_out: set[str] = set()
        self._others: set[str] = set()

    def forked(self) -> None:
        """In a child that was forked from a process with CUDA nothing is computed, also where a kernel was under way."""
        self.broken, self.checked = True, False
        self.unknowns.forget()

    def begin(self, poison: bool = False) -> None:
        """Begins in a process with CUDA, before any operation is seen. With `poison` blocks begin with a test's pattern."""
        self.unknowns.of.follow(poison)
        self.copied_quickly = {"_to_copy": quick.copy(self, True), "copy_": quick.copy(self, False)}

    # -- which tensors ---------------------------------------------------------------------------------------------

    def plain(self, tensor: Tensor) -> bool:
        """Whether a tensor is a real one rather than a stand-in such as a FakeTensor."""
        kind = type(tensor)
        known = self.tensor_types.get(kind)
        if known is None:
            disabled = getattr(self.torch._C, "_disabled_torch_dispatch_impl", None)
            known = self.tensor_types[kind] = getattr(kind, "__torch_dispatch__", disabled) is disabled
        return known

    def large(self, tensor: Tensor) -> bool:
        """Whether a tensor is too large to be computed."""
        count = tensor.numel()
        if count <= self.limit:
            return False
        return tensor.dtype in self.floats or count * tensor.element_size() > self.limit_bytes

    def most_bytes(self, tensor: Tensor) -> int:
        """The bytes of the largest block of numbers like those of `tensor` that is computed."""
        numbers = self.limit * tensor.element_size()
        return numbers if tensor.dtype in self.floats else max(numbers, self.limit_bytes)

    # -- registration ----------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Puts a kernel in front of every operator of ATen that a GPU would run."""
        native = self.torch._C
        anything = self._libraries["_"] = native._dispatch_library("IMPL", "_", KEY)
        anything.fallback_fallthrough()
        aten = self._library("aten::")
        has = native._dispatch_has_kernel_for_dispatch_key
        for name in native._dispatch_get_all_op_names():
            if not name.startswith("aten::"):
                continue
            if has(name, "CompositeImplicitAutograd"):
                # Made of other operators, which are seen one by one.  The few with a CUDA kernel as well would take
                # the composite one under our key, which CUDA does not.
                if has(name, "CUDA"):
                    if name[6:] in self.fused:
                        self._put(aten, name, self._generic(name))
                    else:
                        self._pass(aten, name)
                continue
            if not (
                has(name, "CUDA")
                or has(name, "CompositeExplicitAutograd")
                or has(name, "CompositeExplicitAutogradNonFunctional")
            ):
                continue
            kernel = self._kernel_for(name)
            if kernel is None:
                self._pass(aten, name)
            else:
                self._put(aten, name, kernel)
        self.register_others()

    def register_others(self) -> None:
        """The operators of other libraries: seen where the size of a result depends on values, let through otherwise.

        Nothing is done for most of them.  But our key counts as a backend, and for an operator with a kernel for every
        backend it would take that one, past the kernel for CUDA, and past the one for meta tensors: dynamo would never
        come back from tracing a `transpose`, whose form in `prims` calls itself again.
        """
        native = self.torch._C
        has = native._dispatch_has_kernel_for_dispatch_key
        for name in native._dispatch_get_all_op_names():
            if name.startswith("aten::") or name in self._others or name in dynamic.OTHERS:
                continue
            if not native._dispatch_has_kernel(name):
                continue
            if has(name, "CompositeExplicitAutograd") or has(name, "CompositeImplicitAutograd") and has(name, "CUDA"):
                self._others.add(name)
                self._pass(self._library(name), name)
        for name, maker in dynamic.OTHERS.items():
            if name in self._others or not native._dispatch_has_kernel(name):
                continue
            self._others.add(name)
            self._put(self._library(name), name, self._special(maker, self.operation(name)))

    def register_other(self, space: str, named: Any) -> None:
        """Lets one operator through that has just got a kernel for every backend."""
        if not isinstance(named, str):
            named = str(getattr(named, "_name", named))
        name = named if "::" in named else space + "::" + named
        if name not in self._others and self.torch._C._dispatch_has_kernel(name):
            self._others.add(name)
            self._pass(self._library(name), name)

    def _library(self, name):
        space = name.partition("::")[0]
        library = self._libraries.get(space)
        if library is None:
            library = self._libraries[space] = self.torch._C._dispatch_library("IMPL", space, "")
        return library

    def _pass(self, library, name):
        library.impl(name, self.key, self.torch.library.fallthrough_kernel)

    def _put(self, library, name, kernel):
        if getattr(kernel, "with_keyset", False):
            library.impl(name, self.key, kernel, True)
        else:
            # PyTorch before 2.4 does not know the last argument.
            library.impl(name, self.key, kernel)

    def operation(self, name: str) -> Operation:
        operation = Operation(self.torch, name)
        if self.everything and operation.base in self.fused and not operation.mutated:
            operation.host_call, operation.computed = self.fused[operation.base], True
        return operation

    def _kernel_for(self, name):
        base = name.split("::", 1)[1].split(".", 1)[0]
        maker = dynamic.function_for(name[6:])
        if maker is not None:
            return self._special(maker, self.operation(name))
        if base == UNSCALING and self.everything:
            return self._generic(name)
        if base in UNTOUCHED or base.startswith(UNTOUCHED_PREFIXES):
            return None
        if base in OPENED:
            return self._opened(self.operation(name))
        if base in BLANKS or base in _SPECIAL:
            operation = self.operation(name)
            if base in BLANKS and not operation.mutated:
                return self._blank(operation)
            if base in _SPECIAL and not operation.out:
                return self._special(_SPECIAL[base], operation)
        if is_view(schema_of(self.torch, name)):
            return None
        if name == "aten::cat":
            return self._joining(self._generic(name))
        if base in FINITENESS:
            operation = self.operation(name)
            if not operation.out:
                return self._special(_compared, operation)
        return self._generic(name)

    # -- the kernels -----------------------------------------------------------------------------------------------

    def _generic(self, name):
        """Run, and let a large result go at once: that is most of the time of a training step."""
        key, include, undisturbed = self.key, self.include, self.undisturbed
        limit, floats, most = self.limit, self.floats, self.limit_bytes
        tensor_type, parameter_type = self.torch.Tensor, self.torch.nn.Parameter
        finish, on_device = self.finish, self.on_device
        operation: Any = None
        call: Any = None
        quickly = quickly_all = None

        def prepare():
            # There are two thousand operators, of which a program uses a hundred.
            nonlocal operation, call, quickly, quickly_all
            operation = self.operation(name)
            call = operation.call
            if self.with_quick_ways:
                quickly, quickly_all = quick.after(self, operation), quick.after_several(self, operation)

        def kernel(*args, **kwargs):
            try:
                include(key, False)
                with undisturbed():
                    if call is None:
                        prepare()
                    out = call(*args, **kwargs)
                    kind = type(out)
                    if kind is tensor_type or kind is parameter_type:
                        count = out.numel()
                        if count > limit and (count > most or out.dtype in floats):
                            return out
                        if not on_device(out):
                            return out
                        shortcut = quickly
                    else:
                        shortcut = quickly_all
                    try:
                        if shortcut is not None and shortcut(args, kwargs, out):
                            return out
                    except Exception:
                        # The long way says what is the matter.
                        pass
                    return finish(operation, args, kwargs, out)
            finally:
                include(key, True)

        return kernel

    def _joining(self, generic):
        """`cat`, which has a way of its own on the host."""
        on_device, joined = self.on_device, copies.joined

        def kernel(tensors, *args, **kwargs):
            if tensors and not on_device(tensors[0]):
                try:
                    out = joined(self, tensors, *args, **kwargs)
                except Exception:
                    # The operation itself says what is the matter.
                    out = None
                if out is not None:
                    return out
            return generic(tensors, *args, **kwargs)

        return kernel

    def _blank(self, operation):
        def kernel(self, operation, args, kwargs):
            out = operation.call(*args, **kwargs)
            if out.numel() <= SMALL and self.on_device(out) and self.usable(out):
                self.standins.fill(out, BLANK)
            return out

        return self._special(kernel, operation)

    def _opened(self, operation):
        """Run with the kernels in place for what the operation calls itself."""
        packet, _, overload = operation.name.partition(".")
        handle = self.torch._C._dispatch_find_schema_or_throw(packet, overload)
        instead = dynamic.drawn if operation.base == "multinomial" and not operation.out else None
        if not hasattr(handle, "redispatch_boxed"):
            return self._unopened(operation, instead)
        past = handle.redispatch_boxed
        below, key, include, undisturbed = self.below, self.key, self.include, self.undisturbed
        warn, then = self.warn, OPENED[operation.base]

        def kernel(keyset, *args, **kwargs):
            if instead is not None:
                include(key, False)
                try:
                    with undisturbed():
                        out = instead(self, operation, args, kwargs)
                        if out is not None:
                            return out
                finally:
                    include(key, True)
            warn.hush(1)
            try:
                with undisturbed():
                    out = past(keyset & below, *args, **kwargs)
            finally:
                warn.hush(-1)
            if not then:
                return out
            try:
                include(key, False)
                with undisturbed():
                    return self.finish(operation, args, kwargs, out)
            finally:
                include(key, True)

        kernel.with_keyset = True  # type: ignore[attr-defined]
        return kernel

    def _unopened(self, operation, instead):
        """The same for PyTorch before 2.4, which cannot call past a kernel: only its result is computed."""
        def function(self, operation, args, kwargs):
            if instead is not None:
                out = instead(self, operation, args, kwargs)
                if out is not None:
                    return out
            return self.finish(operation, args, kwargs, operation.call(*args, **kwargs))

        return self._special(function, operation)

    def _special(self, function, operation):
        """A kernel of its own; `function` calls the operation itself."""
        key, include, undisturbed = self.key, self.include, self.undisturbed

        def kernel(*args, **kwargs):
            try:
                include(key, False)
                # The operation was seen by the user's `__torch_function__` on its way here.
                with undisturbed():
                    return function(self, operation, args, kwargs)
            except Exception as error:
                # Whether the program's call or this code is to blame, the operation itself says.
                return self._despite(error, operation, args, kwargs)
            finally:
                include(key, True)

        return kernel

    def _despite(self, error, operation, args, kwargs):
        """What an operation gives where its kernel failed; its error, where it is the program's call that cannot be done."""
        if faults.place_of(error) is None:
            raise error
        try:
            out = operation.call(*args, **kwargs)
        except Exception:
            # The kernel has asked before the operation would have, and in the same words.
            raise faults.acquitted(error) from None
        faults.died(error)
        return out

    # -- after the operation ---------------------------------------------------------------------------------------

    def usable(self, tensor: Tensor) -> bool:
        """Whether values may be written: a plain tensor, outside a capture, in memory that is the host's own."""
        if self.broken or not self.plain(tensor):
            return False
        if not self.checked:
            address = tensor.data_ptr()
            if not address:
                return False
            self.checked = True
            if not readable(address):
                # A real GPU: nothing of this may ever run.
                self.broken, self.checked = True, False
                return False
        try:
            return not self.capturing()
        except Exception:
            # During a capture torch may refuse the question itself.
            return False

    def ready(self) -> bool:
        """The same for a tensor that is known to be plain."""
        return self.checked and not self.capturing()

    def finish(self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """Gives small results their values, or notes that they have none."""
        try:
            return self._finish(operation, args, kwargs, out)
        except Exception:
            # The operation itself has succeeded; what is missing is only its value.
            operation.failures += 1
            return out

    def _finish(self, operation, args, kwargs, out):
        tensors: list[Tensor] = []
        large = self.collect(args, tensors) or self.collect(kwargs.values(), tensors)
        outs = self.results(out)
        if not tensors and not outs:
            return out
        if not self.usable(tensors[0] if tensors else outs[0]):
            return out
        if operation.base in ZEROS and outs:
            self.standins.zero(operation, outs[0])
            return out
        if large and operation.base in PRIVATE:
            return out
        if large and operation.base in FINITENESS and self.asks_if_finite(operation, args):
            self.standins.finite(operation, args, outs)
            return out
        if large and operation.base in ("all", "any") and self.standins.of_finite(args, outs):
            return out
        if large or not operation.computed or operation.failures > 8:
            if not large:
                self.left_out.add(operation.base)
            self.standins.leave(operation, args, kwargs, outs)
            return out
        if not tensors and operation.mutated:
            return out
        written = list(operation.mutates(args, kwargs)) if operation.mutated else ()
        level = self.level_of(operation, tensors, written)
        if level and operation.base in FINITENESS and self.asks_if_finite(operation, args):
            # A run is healthy until it is shown not to be: the zeros that stand for its values are finite.
            level = KNOWN
        if level > GUESS and self.nothing_to_compute(operation, outs or written) and not self.decodes(operation, args, kwargs, outs):
            self.standins.leave(operation, args, kwargs, outs)
            if operation.base.startswith("_foreach"):
                self.changed(written, level)
            return out
        try:
            result = self.arithmetic.compute(operation, args, kwargs, outs)
        except Exception as error:
            # The operation has succeeded on the card. What the CPU cannot do is noted, and its value counts as unknown.
            self.arithmetic.note_failure(operation, error)
            self.left_out.add(operation.base)
            self.standins.leave(operation, args, kwargs, outs)
            return out
        if written:
            self.changed(written, level)
        else:
            for tensor in outs:
                self.unknowns.note(tensor, level)
            if level > GUESS and POSITIONS.get(operation.base, len(outs)) < len(outs):
                self.standins.chosen(operation, args, kwargs, outs)
        if operation.base == "equal":
            if level:
                healthy = self.warn.flag(level)
                if healthy is not None:
                    return healthy
                self.warn.branched()
            return result
        return out

    def nothing_to_compute(self, operation: Operation, outs: Sequence[Tensor]) -> bool:
        """Whether the results of an operation on something unknown are left at once.

        Flags and integers are computed all the same: the zeros that stand for what is unknown say that no error code
        was set and no limit passed.
        """
        if operation.base == "all" or operation.base in POSITIONS or operation.status:
            return True
        return bool(outs) and all(tensor.dtype in self.floats for tensor in outs)

    def decodes(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[Tensor]
    ) -> bool:
        """Whether what follows from something unknown is computed all the same, because a decoder loop goes by it."""
        # `max` of everything gives no position.
        if POSITIONS.get(operation.base, len(outs)) < len(outs) and operation.base != "topk":
            return False
        return decoders.asks()

    def changed(self, written: Iterable[Any], level: int) -> None:
        """Notes what is known of tensors that were written to."""
        for tensor in written:
            if isinstance(tensor, self.torch.Tensor) and self.on_device(tensor):
                self.unknowns.change(tensor, level)

    def collect(self, values: Iterable[Any], tensors: list[Tensor]) -> bool:
        """Adds the device tensors among `values`; True as soon as one is too large."""
        kind = self.torch.Tensor
        for value in values:
            if isinstance(value, kind):
                if self.on_device(value):
                    tensors.append(value)
                    if self.large(value):
                        return True
            elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], int):
                if self.collect(value, tensors):
                    return True
        return False

    def results(self, out: Any) -> Sequence[Tensor]:
        """The device tensors among what an operation returned."""
        if isinstance(out, self.torch.Tensor):
            return (out,) if self.on_device(out) else ()
        if isinstance(out, (list, tuple)):
            found: list[Tensor] = []
            for one in out:
                found.extend(self.results(one))
            return found
        return ()

    def level_of(self, operation: Operation, tensors: Sequence[Tensor], written: Sequence[Any]) -> int:
        """How much is known of a result, from what it is made of."""
        unknowns = self.unknowns
        worst = KNOWN
        overwrites = operation.out or operation.base in OVERWRITES
        overwrites_parts = operation.base.startswith(OVERWRITES_PARTS)
        for tensor in tensors:
            is_written = bool(written) and any(tensor is one for one in written)
            level = (unknowns.before if is_written and (overwrites or overwrites_parts) else unknowns.level)(tensor)
            if level and is_written:
                if level == BLANK and (overwrites or overwrites_parts):
                    continue
                if overwrites and unknowns.covers(tensor):
                    continue
            if level == BLANK:
                level = UNKNOWN
            if level > worst:
                worst = level
        return worst

    def asks_if_finite(self, operation: Operation, args: tuple[Any, ...]) -> bool:
        """Whether a comparison is one of those that `isnan`, `isinf` and `isfinite` are made of."""
        if operation.base in ("isnan", "isinf"):
            return True
        if len(args) < 2:
            return False
        other = args[1]
        if isinstance(other, float):
            return other in (float("inf"), float("-inf"))
        return self.same(other, args[0])

    def same(self, one: object, other: object) -> bool:
        """Whether two arguments are the same look at the same memory; in PyTorch 2.1 those are two objects."""
        tensor = self.torch.Tensor
        return one is other or (
            isinstance(one, tensor) and isinstance(other, tensor) and one.data_ptr() == other.data_ptr()
            and one.dtype == other.dtype and one.size() == other.size() and one.stride() == other.stride()
        )


def _compared(kernels, operation, args, kwargs):
    """Comparisons: whether something is finite has an answer even where the flags are too many to be written."""
    return kernels.finish(operation, args, kwargs, operation.call(*args, **kwargs))
