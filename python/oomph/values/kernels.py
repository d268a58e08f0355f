"""The kernels that stand in front of CUDA's: run the operation, then give its small results their values.

They are registered with PyTorch's dispatcher under a key of their own that lies right above the backends
(`CustomRNGKeyId`: built into every PyTorch, used by nothing) and that takes part only in threads that include it.
A `TorchDispatchMode` would be the documented way, and it is not used because it changes what is being measured: while
one is active, autograd adds gradients out of place instead of in place, dynamo declines to compile, and views pay for a
trip through Python.  Below autograd, below every mode and every tensor subclass, only real work on real tensors is seen.
"""

from oomph.values.memory import HostMemory, OneThread, readable
from oomph.values.unknown import BLANK, GUESS, KNOWN, UNKNOWN, Unknowns

KEY = "CustomRNGKeyId"
#: Tensors of at most this many elements are computed; integers and flags up to the size of a copy that the virtual
#: GPU carries out, because masks and token ids decide what a program does.
SMALL = 65536
SMALL_BYTES = 1 << 20

#: Operations that only rearrange metadata although their schema does not say so, or that must never be repeated.
_UNTOUCHED = {
    "set_", "resize_", "resize_as_", "_resize_output_", "_resize_output", "as_strided_", "squeeze_", "unsqueeze_", "t_",
    "transpose_", "swapaxes_", "swapdims_", "detach_", "rename_", "record_stream", "_pin_memory", "pin_memory",
    "is_pinned", "_unsafe_view", "_lazy_clone", "is_same_size", "is_set_to", "_fused_sdp_choice",
    "_debug_has_internal_overlap", "_assert_async", "_functional_assert_async",
    "_use_cudnn_ctc_loss", "_use_cudnn_rnn_flatten_weight", "_cudnn_init_dropout_state", "_version", "_foobar",
    "requires_grad_", "retain_grad", "_backward", "_has_same_storage_numel", "dense_dim", "sparse_dim", "_dimI", "_dimV",
    "_print", "_cslt_sparse_mm_search", "_async_error", "_amp_foreach_non_finite_check_and_unscale_",
}
_UNTOUCHED_PREFIXES = ("_nested_", "_sparse", "sparse_", "_jagged", "_padded_dense", "sym_", "_to_sparse", "to_sparse",
                       "_cuda_", "mkldnn", "_mkldnn", "quantize", "_quantize", "q_", "miopen", "_mps", "_assert")
#: Operations whose CPU form differs or does not exist: their results are unknown.
_NOT_COMPUTED = ("cudnn_", "_cudnn", "_flash_attention", "_scaled_dot_product_flash", "_scaled_dot_product_efficient",
                 "_scaled_dot_product_cudnn", "_scaled_dot_product_fused", "_efficient_attention", "_thnn_fused",
                 "_fused_rms", "_flash", "_triton", "_grouped_mm", "_scaled_grouped", "_weight_int", "_cslt")
#: Operations whose own code reads values back: what they are made of is seen and computed.  True for those that end in
#: a kernel of their own as well.
_OPENED = {"multinomial": True, "_ctc_loss": True, "normal": False, "isin": False, "allclose": False,
           "linalg_matrix_exp": False, "_linalg_check_errors": False, "segment_reduce": True}
_ZEROS = {"zero_", "zeros", "zeros_like", "new_zeros"}
#: Operations whose small results serve their own backward alone when the input is large.
_PRIVATE = {"native_layer_norm", "native_group_norm", "_fused_rms_norm", "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_flash_attention_forward",
            "_efficient_attention_forward"}
_BLANKS = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
#: Operations that set every element of their first argument, so that what was there does not matter.
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
               "log_normal_", "cauchy_", "eye_", "_foreach_copy_", "_foreach_zero_"}
#: Results that are positions in something unknown: `spread` makes them, and which result holds them.
_POSITIONS = {"argmax": 0, "argmin": 0, "multinomial": 0, "topk": 1, "max": 1, "min": 1, "mode": 1, "kthvalue": 1}
#: A vocabulary is at least this large.  Guessed token ids then stay clear of both ends, where padding and end-of-text
#: are: a generation runs to the length that the program allows, which is the most memory it can need.
_VOCABULARY = 1024


def schema_of(torch, name):
    """The schema of an operator overload such as `aten::add.Tensor`."""
    packet, _, overload = name.partition(".")
    schema = torch._C._dispatch_find_schema_or_throw(packet, overload).schema
    return schema() if callable(schema) else schema


class Operation:
    """What is known of one operator overload."""

    __slots__ = ("name", "base", "call", "host_call", "mutated", "seeded", "failures", "upcast", "computed", "out",
                 "has_generator", "arguments", "view")

    def __init__(self, torch, name):
        packet, _, overload = name.partition(".")
        schema = schema_of(torch, name)
        self.name = name
        self.base = name.split("::", 1)[1].split(".", 1)[0]
        # The operator as C++ has it: one dispatch, without the layers of `torch.ops`.
        self.call, _, tags = torch._C._get_operation_overload(packet, overload)
        self.host_call = self.call
        self.seeded = torch.Tag.nondeterministic_seeded in tags
        self.arguments = [argument.name for argument in schema.arguments]
        self.mutated = tuple(
            (index, argument.name)
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        self.out = any(argument.is_out for argument in schema.arguments) if self.mutated else False
        self.has_generator = "generator" in self.arguments
        self.view = not self.mutated and any(result.alias_info is not None for result in schema.returns)
        self.failures = 0
        self.upcast = set()
        self.computed = not self.base.startswith(_NOT_COMPUTED)

    def mutates(self, args, kwargs):
        """The tensors that a call writes to."""
        for index, name in self.mutated:
            value = args[index] if index < len(args) else kwargs.get(name)
            if isinstance(value, (list, tuple)):
                yield from value
            elif value is not None:
                yield value


class Kernels:
    """Owns the registrations and everything that a call needs."""

    def __init__(self, torch, mode, warn):
        native = torch._C
        self.torch = torch
        self.warn = warn
        self.everything = mode == "all-host"
        self.limit = (1 << 62) if self.everything else SMALL
        self.limit_bytes = (1 << 62) if self.everything else SMALL_BYTES
        self.memory = HostMemory(torch)
        self.one_thread = OneThread(torch)
        self.unknowns = Unknowns(self.large)
        self.key = native._parse_dispatch_key(KEY)
        self.below = native._dispatch_keyset_full_after(self.key)
        self.floats = frozenset(
            value for value in vars(torch).values()
            if isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex)
        )
        self.low = frozenset(
            value for value in self.floats if value.is_floating_point and value.itemsize < 4
        ) if hasattr(torch.float16, "itemsize") else frozenset((torch.float16, torch.bfloat16))
        self.generator = torch.Generator(device="cpu")
        self.generator.manual_seed(0)
        self.include = native._dispatch_tls_set_dispatch_key_included
        self.capturing = getattr(native, "_cuda_isCurrentStreamCapturing", lambda: False)
        self.undisturbed = native.DisableTorchFunction
        self.tensor_types = {torch.Tensor: True, torch.nn.Parameter: True}
        self.broken = False
        self.checked = False
        self._held = []
        self._others = set()

    # -- which tensors ---------------------------------------------------------------------------------------------

    def on_device(self, tensor):
        """Whether a tensor lives on the virtual GPU.  Tests put something else here."""
        return tensor.is_cuda

    def plain(self, tensor):
        """Whether a tensor is a real one rather than a stand-in such as a FakeTensor."""
        kind = type(tensor)
        known = self.tensor_types.get(kind)
        if known is None:
            disabled = getattr(self.torch._C, "_disabled_torch_dispatch_impl", None)
            known = self.tensor_types[kind] = getattr(kind, "__torch_dispatch__", disabled) is disabled
        return known

    def large(self, tensor):
        """Whether a tensor is too large to be computed."""
        count = tensor.numel()
        if count <= self.limit:
            return False
        return tensor.dtype in self.floats or count * tensor.element_size() > self.limit_bytes

    # -- registration ----------------------------------------------------------------------------------------------

    def register(self):
        """Puts a kernel in front of every operator of ATen that a GPU would run."""
        native = self.torch._C
        anything = native._dispatch_library("IMPL", "_", KEY)
        anything.fallback_fallthrough()
        aten = native._dispatch_library("IMPL", "aten", "")
        prims = native._dispatch_library("IMPL", "prims", "")
        self._held += [anything, aten, prims]
        has = native._dispatch_has_kernel_for_dispatch_key
        for name in native._dispatch_get_all_op_names():
            if name.startswith("prims::") and has(name, "CompositeExplicitAutograd"):
                # Their kernels for all backends would count for our key too and win over that for meta tensors, which
                # calls them again: dynamo would never come back from tracing a `transpose`.
                self._pass(prims, name)
            if not name.startswith("aten::"):
                continue
            if has(name, "CompositeImplicitAutograd"):
                # Made of other operators, which are seen one by one.  The few with a CUDA kernel as well would take
                # the composite one under our key, which CUDA does not.
                if has(name, "CUDA"):
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

    def register_others(self):
        """The same for operators of other libraries whose results have a size that depends on values."""
        from oomph.values import dynamic

        native = self.torch._C
        for name, maker in dynamic.OTHERS.items():
            library, _, rest = name.partition("::")
            if name in self._others or not native._dispatch_has_kernel(name):
                continue
            self._others.add(name)
            held = native._dispatch_library("IMPL", library, "")
            self._held.append(held)
            self._put(held, name, self._special(maker, self._operation(name)))

    def _pass(self, library, name):
        library.impl(name, self.key, self.torch.library.fallthrough_kernel)

    def _put(self, library, name, kernel):
        library.impl(name, self.key, kernel, getattr(kernel, "with_keyset", False))

    def _operation(self, name):
        return Operation(self.torch, name)

    def _kernel_for(self, name):
        from oomph.values import dynamic

        base = name.split("::", 1)[1].split(".", 1)[0]
        if base == "_local_scalar_dense":
            return self._special(read_back, self._operation(name))
        maker = dynamic.ATEN.get(name[6:])
        if maker is not None:
            return self._special(maker, self._operation(name))
        if base in _UNTOUCHED or base.startswith(_UNTOUCHED_PREFIXES):
            return None
        operation = self._operation(name)
        if base in _OPENED:
            return self._opened(operation)
        if base in _BLANKS and not operation.mutated:
            return self._blank(operation)
        if base in ("_to_copy", "copy_") and not operation.out:
            return self._special(copied, operation)
        if base == "_amp_update_scale_":
            return self._special(scale_updated, operation)
        if base in ("lift_fresh", "lift") and not operation.out:
            return self._special(lifted, operation)
        if operation.view:
            return None
        return self._generic(operation)

    # -- the kernels -----------------------------------------------------------------------------------------------

    def _generic(self, operation):
        """Run, and let a large result go at once: that is most of the time of a training step."""
        call, key, include, undisturbed = operation.call, self.key, self.include, self.undisturbed
        limit, floats, most = self.limit, self.floats, self.limit_bytes
        tensor_type, finish, on_device = self.torch.Tensor, self.finish, self.on_device

        def kernel(*args, **kwargs):
            try:
                include(key, False)
                with undisturbed():
                    out = call(*args, **kwargs)
                    if type(out) is tensor_type:
                        count = out.numel()
                        if count > limit and (count > most or out.dtype in floats):
                            return out
                        if not on_device(out):
                            return out
                    return finish(operation, args, kwargs, out)
            finally:
                include(key, True)

        return kernel

    def _blank(self, operation):
        def kernel(self, operation, args, kwargs):
            out = operation.call(*args, **kwargs)
            if out.numel() <= SMALL and self.on_device(out) and self.usable(out):
                self.fill_unknown(out, BLANK)
            return out

        return self._special(kernel, operation)

    def _opened(self, operation):
        """Run with the kernels in place for what the operation calls itself."""
        from oomph.values import dynamic

        packet, _, overload = operation.name.partition(".")
        past = self.torch._C._dispatch_find_schema_or_throw(packet, overload).redispatch_boxed
        below, key, include, undisturbed = self.below, self.key, self.include, self.undisturbed
        warn, then = self.warn, _OPENED[operation.base]

        instead = dynamic.drawn if operation.base == "multinomial" and not operation.out else None

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

        kernel.with_keyset = True
        return kernel

    def _special(self, function, operation):
        """A kernel of its own; `function` calls the operation itself."""
        key, include, undisturbed = self.key, self.include, self.undisturbed

        def kernel(*args, **kwargs):
            try:
                include(key, False)
                # The operation was seen by the user's `__torch_function__` on its way here.
                with undisturbed():
                    return function(self, operation, args, kwargs)
            finally:
                include(key, True)

        return kernel

    # -- after the operation ---------------------------------------------------------------------------------------

    def usable(self, tensor):
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
                self.broken = True
                return False
        try:
            return not self.capturing()
        except Exception:
            return False

    def finish(self, operation, args, kwargs, out):
        """Gives small results their values, or notes that they have none."""
        try:
            return self._finish(operation, args, kwargs, out)
        except Exception:
            # The operation itself has succeeded; what is missing is only its value.
            operation.failures += 1
            return out

    def _finish(self, operation, args, kwargs, out):
        tensors = []
        large = self.collect(args, tensors) or self.collect(kwargs.values(), tensors)
        outs = self.results(out)
        if not tensors and not outs:
            return out
        if not self.usable(tensors[0] if tensors else outs[0]):
            return out
        if operation.base in _ZEROS and outs:
            self.zero(operation, outs[0])
            return out
        if large and operation.base in _PRIVATE:
            return out
        if large or not operation.computed or operation.failures > 8:
            self.leave_unknown(operation, args, kwargs, outs, tensors)
            return out
        if not tensors and operation.mutated:
            return out
        written = list(operation.mutates(args, kwargs)) if operation.mutated else ()
        level = self.level_of(operation, tensors, written)
        if level and operation.base in ("eq", "ne", "isnan", "isinf") and self.asks_if_finite(operation, args):
            # A run is healthy until it is shown not to be: the zeros that stand for its values are finite.
            level = KNOWN
        try:
            result = self.compute(operation, args, kwargs, outs)
        except Exception as error:
            self.note_failure(operation, error)
            self.leave_unknown(operation, args, kwargs, outs, tensors)
            return out
        if written:
            for tensor in written:
                if isinstance(tensor, self.torch.Tensor) and self.on_device(tensor):
                    self.unknowns.change(tensor, level)
        else:
            for tensor in outs:
                self.unknowns.note(tensor, level)
        if level > GUESS and operation.base in _POSITIONS:
            self.guess_positions(operation, args, kwargs, outs)
        if operation.base == "equal":
            if level:
                self.warn.branched()
            return result
        return out

    def collect(self, values, tensors):
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

    def results(self, out):
        """The device tensors among what an operation returned."""
        if isinstance(out, self.torch.Tensor):
            return (out,) if self.on_device(out) else ()
        if isinstance(out, (list, tuple)):
            found = []
            for one in out:
                found.extend(self.results(one))
            return found
        return ()

    def level_of(self, operation, tensors, written):
        """How much is known of a result, from what it is made of."""
        unknowns = self.unknowns
        worst = KNOWN
        overwrites = operation.out or operation.base in _OVERWRITES
        for tensor in tensors:
            level = unknowns.level(tensor)
            if level and written and any(tensor is one for one in written):
                if level == BLANK and (overwrites or operation.base.startswith(("index_put", "_index_put", "scatter",
                                                                                "index_copy", "masked_fill"))):
                    continue
                if overwrites and unknowns.covers(tensor):
                    continue
            if level == BLANK:
                level = UNKNOWN
            if level > worst:
                worst = level
        return worst

    def asks_if_finite(self, operation, args):
        """Whether a comparison is one of those that `isnan`, `isinf` and `isfinite` are made of."""
        if operation.base in ("isnan", "isinf"):
            return True
        if len(args) < 2:
            return False
        other = args[1]
        if isinstance(other, float):
            return other in (float("inf"), float("-inf"))
        return other is args[0]

    # -- computing -------------------------------------------------------------------------------------------------

    def host(self, value, widen=False, shadows=None):
        """An argument as the CPU's kernel should see it."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            if not self.on_device(value):
                return value.float() if widen and value.dtype in self.low else value
            alias = self.memory.alias(value)
            if widen and value.dtype in self.low:
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
            return self.generator
        if widen and isinstance(value, torch.dtype) and value in self.low:
            return torch.float32
        return value

    def compute(self, operation, args, kwargs, outs):
        """Runs the operation on the CPU over the same memory; returns what the CPU's kernel returned."""
        widen = bool(operation.upcast) and any(tensor.dtype in operation.upcast for tensor in outs)
        if not operation.upcast:
            try:
                return self._compute(operation, args, kwargs, outs, False)
            except (RuntimeError, NotImplementedError) as error:
                dtypes = {tensor.dtype for tensor in outs if tensor.dtype in self.low}
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
                if value.dtype in self.low:
                    return True
            elif isinstance(value, (list, tuple)) and self._any_low(value):
                return True
        return False

    def _compute(self, operation, args, kwargs, outs, widen):
        if self.everything:
            return self._computed(operation, args, kwargs, outs, widen)
        before = self.one_thread.enter()
        try:
            return self._computed(operation, args, kwargs, outs, widen)
        finally:
            self.one_thread.leave(before)

    def _computed(self, operation, args, kwargs, outs, widen):
        shadows = [] if widen and operation.mutated else None
        host_args = [self.host(value, widen, shadows) for value in args]
        host_kwargs = {}
        for name, value in kwargs.items():
            if name != "pin_memory":
                host_kwargs[name] = self.host(value, widen, shadows)
        if operation.has_generator and len(args) < len(operation.arguments):
            if host_kwargs.get("generator") is None and not any(isinstance(one, self.torch.Generator) for one in host_args):
                host_kwargs["generator"] = self.generator
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

    def note_failure(self, operation, error):
        """Remembers an operation that the CPU cannot do, so that it is not tried again and again."""
        text = str(error)
        if "Could not run" in text or "no CPU" in text:
            operation.computed = False
        operation.failures += 1

    # -- not computing ---------------------------------------------------------------------------------------------

    def leave_unknown(self, operation, args, kwargs, outs, tensors):
        """Sets small results to something harmless: zeros, and positions within range."""
        written = list(operation.mutates(args, kwargs)) if operation.mutated else ()
        for out in outs:
            if self.large(out) or any(out is one for one in written):
                continue
            self.fill_unknown(out, UNKNOWN)
        if operation.base == "all" and outs and not written:
            # Of "any" and "all" over something unknown, neither finds the exception.
            for out in outs:
                if not self.large(out):
                    self.memory.alias(out).fill_(1)
        elif operation.base in _POSITIONS:
            self.guess_positions(operation, args, kwargs, outs)
        if written and not operation.base.startswith("_foreach"):
            for tensor in written:
                if isinstance(tensor, self.torch.Tensor) and self.on_device(tensor) and not self.large(tensor):
                    if operation.out:
                        self.memory.zero(tensor)
                    self.unknowns.change(tensor, UNKNOWN)

    def fill_unknown(self, tensor, level):
        """Zeros in a new tensor, marked as not computed."""
        self.memory.zero(tensor)
        self.unknowns.note(tensor, level)

    def zero(self, operation, out):
        """Zeros that are meant."""
        if self.large(out):
            return
        self.memory.zero(out)
        if not operation.mutated:
            self.unknowns.note(out, KNOWN)
        elif self.unknowns.covers(out) or self.unknowns.level(out) == BLANK:
            # Factories are not seen themselves (torch sends them past every other kernel); their filling is.
            self.unknowns.change(out, KNOWN)

    def guess_positions(self, operation, args, kwargs, outs):
        """Positions in something unknown: within range, different within a row, even over the rows."""
        which = _POSITIONS[operation.base]
        if which >= len(outs) or not args:
            return
        out = outs[which]
        if self.large(out) or out.dtype in self.floats:
            return
        source = args[0]
        named = operation.arguments
        dim = kwargs.get("dim")
        if dim is None and "dim" in named and named.index("dim") < len(args):
            dim = args[named.index("dim")]
        if dim is None:
            dim = None if operation.base in ("argmax", "argmin") else -1
        if source.dim() == 0:
            return
        size = source.numel() if dim is None else source.size(dim)
        if not size or not out.numel():
            return
        torch = self.torch
        start = size // 3 if size >= _VOCABULARY else 0
        steps = torch.arange(out.numel(), dtype=torch.int64, device="cpu")
        if dim is None or out.dim() == 0 or operation.base not in ("topk", "multinomial"):
            values = (steps + start) % size
            self.memory.alias(out).copy_(values.view(out.size()))
        else:
            last = dim % out.dim()
            count = out.size(last)
            shape = [out.size(index) for index in range(out.dim()) if index != last] + [count]
            values = ((steps + start) % size).view(shape)
            self.memory.alias(out).copy_(values.movedim(-1, last))
        self.unknowns.change(out, GUESS)


# -- operations that need something of their own -----------------------------------------------------------------------


def read_back(kernels, operation, args, kwargs):
    """`.item()`: the value is in memory already; what matters is whether anyone computed it."""
    source = args[0]
    if (
        kernels.on_device(source)
        and source.dtype not in kernels.floats
        and kernels.usable(source)
        and kernels.unknowns.level(source) in (GUESS, UNKNOWN)
    ):
        kernels.warn.branched()
    return operation.call(*args, **kwargs)


def lifted(kernels, operation, args, kwargs):
    """`torch.tensor(..., device="cuda")` copies out of sight and shows its result here."""
    out = operation.call(*args, **kwargs)
    if kernels.on_device(out) and not kernels.large(out) and kernels.plain(out):
        kernels.unknowns.note(out, KNOWN)
    return out


def copied(kernels, operation, args, kwargs):
    """Copies between host and device.

    The virtual GPU carries out plain ones up to a megabyte.  Those that convert or rearrange go through kernels, or
    through a temporary that a kernel fills, and are done here.
    """
    out = operation.call(*args, **kwargs)
    source = args[1] if operation.base == "copy_" else args[0]
    to_device, from_device = kernels.on_device(out), kernels.on_device(source)
    if to_device and from_device:
        count = out.numel()
        if count > kernels.limit and (count > kernels.limit_bytes or out.dtype in kernels.floats):
            return out
        return kernels.finish(operation, args, kwargs, out)
    if not to_device and not from_device:
        return out
    try:
        _between(kernels, out, source, to_device, operation.base != "copy_")
    except Exception:
        operation.failures += 1
    return out


def _between(kernels, out, source, to_device, fresh):
    device, host = (out, source) if to_device else (source, out)
    if not (kernels.plain(out) and kernels.plain(source)) or not kernels.usable(device) or not device.numel():
        return
    if host.device.type != "cpu" or not host.data_ptr():
        # A meta tensor has nothing to copy.
        return
    size = device.numel() * device.element_size()
    straight = out.dtype == source.dtype and out.is_contiguous() and source.is_contiguous() and size <= SMALL_BYTES
    if to_device:
        if kernels.large(device):
            return
        if not straight:
            kernels.memory.alias(out).copy_(source.expand_as(out) if source.size() != out.size() else source)
        if fresh:
            kernels.unknowns.note(out, KNOWN)
        elif kernels.unknowns.covers(out) or kernels.unknowns.level(out) == BLANK:
            kernels.unknowns.change(out, KNOWN)
        return
    if straight:
        return
    if not kernels.large(device):
        alias = kernels.memory.alias(source)
        out.copy_(alias.expand_as(out) if alias.size() != out.size() else alias)
    elif size <= 64 * SMALL_BYTES and out.is_contiguous():
        # What was not copied would otherwise be whatever the host's heap held before, which may be no number at all.
        out.zero_()


def scale_updated(kernels, operation, args, kwargs):
    """GradScaler's update: found_inf is what the check left, and the check finds nothing."""
    out = operation.call(*args, **kwargs)
    scale, tracker, found = args[0], args[1], args[2]
    if not kernels.on_device(scale) or not kernels.usable(scale):
        return out
    growth, backoff, interval = args[3:6]
    alias = kernels.memory.alias
    if kernels.on_device(found) and float(alias(found).item()) > 0:
        alias(scale).mul_(backoff)
        alias(tracker).zero_()
    else:
        successes = int(alias(tracker).item()) + 1
        if successes == interval:
            alias(scale).mul_(growth)
            successes = 0
        alias(tracker).fill_(successes)
    kernels.unknowns.change(scale, KNOWN)
    kernels.unknowns.change(tracker, KNOWN)
    return out
