"""Knows PyTorch's operators: which are computed, which are let through, and what one overload looks like."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

    from oomph._types import Dtype, Torch

#: Operations that only rearrange metadata although their schema does not say so, or that must never be repeated.
UNTOUCHED = {
    "set_", "resize_", "resize_as_", "_resize_output_", "_resize_output", "as_strided_", "squeeze_", "unsqueeze_", "t_",
    "transpose_", "swapaxes_", "swapdims_", "detach_", "rename_", "record_stream", "_pin_memory", "pin_memory",
    "is_pinned", "_unsafe_view", "_lazy_clone", "is_same_size", "is_set_to", "_fused_sdp_choice",
    "_debug_has_internal_overlap", "_assert_async", "_functional_assert_async",
    "_use_cudnn_ctc_loss", "_use_cudnn_rnn_flatten_weight", "_cudnn_init_dropout_state", "_version", "_foobar",
    "requires_grad_", "retain_grad", "_backward", "_has_same_storage_numel", "dense_dim", "sparse_dim", "_dimI", "_dimV",
    "_print", "_cslt_sparse_mm_search", "_async_error", "_amp_foreach_non_finite_check_and_unscale_",
}
#: Of these the one that changes gradients, which have values only where everything is computed.
UNSCALING = "_amp_foreach_non_finite_check_and_unscale_"
UNTOUCHED_PREFIXES = ("_nested_", "_sparse", "sparse_", "_jagged", "_padded_dense", "sym_", "_to_sparse", "to_sparse",
                      "_cuda_", "mkldnn", "_mkldnn", "quantize", "_quantize", "q_", "miopen", "_mps", "_assert")
#: Operations whose CPU form differs or does not exist: their results are unknown.
_NOT_COMPUTED = ("cudnn_", "_cudnn", "_flash_attention", "_scaled_dot_product_flash", "_scaled_dot_product_efficient",
                 "_scaled_dot_product_cudnn", "_scaled_dot_product_fused", "_efficient_attention", "_thnn_fused",
                 "_fused_rms", "_flash", "_triton", "_grouped_mm", "_scaled_grouped", "_weight_int", "_cslt",
                 # These take places in the storage, which for the CPU's look at device memory is all memory.
                 "as_strided_")
#: Operations whose own code reads values back: what they are made of is seen and computed.  True for those that end in
#: a kernel of their own as well.  Of linear algebra these are the ones that look at the library's status codes.
OPENED = {"multinomial": True, "_ctc_loss": True, "normal": False, "isin": False, "allclose": False,
          "linalg_matrix_exp": True, "_linalg_check_errors": False, "segment_reduce": True, "_linalg_eigh": True,
          "_linalg_svd": True, "linalg_eig": True, "_linalg_eigvals": True, "linalg_eigvals": True,
          "linalg_lstsq": True, "linalg_pinv": False}
ZEROS = {"zero_", "zeros", "zeros_like", "new_zeros"}
#: Operations whose small results serve their own backward alone when the input is large.
PRIVATE = {"native_layer_norm", "native_group_norm", "_fused_rms_norm", "_scaled_dot_product_flash_attention",
           "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_flash_attention_forward",
           "_efficient_attention_forward"}
BLANKS = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
#: Operations that set every element of their first argument, so that what was there does not matter.
OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
              "log_normal_", "cauchy_", "eye_", "_foreach_copy_", "_foreach_zero_"}
#: Operations that set some elements of their first argument, which is how memory that nothing wrote gets its values.
OVERWRITES_PARTS = ("index_put", "_index_put", "scatter", "index_copy", "masked_fill")
#: Results that are positions in something unknown: `standins` makes them, and which result holds them.
POSITIONS = {"argmax": 0, "argmin": 0, "multinomial": 0, "topk": 1, "max": 1, "min": 1, "mode": 1, "kthvalue": 1}
#: What `isnan`, `isinf` and `isfinite` are made of.
FINITENESS = {"eq", "ne", "isnan", "isinf"}
_PECULIAR = ZEROS | PRIVATE | set(POSITIONS) | FINITENESS | OVERWRITES | {"equal", "all"}

#: Operators whose function in torch takes the same arguments in the same order and has no other form that a call with
#: tensors could mean.  It is called instead of the overload: it costs a microsecond less, a third of a small operation.
_FUNCTIONS = {
    "aten::" + name: name.partition(".")[0]
    for name in (
        "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "add_.Tensor", "sub_.Tensor", "mul_.Tensor",
        "div_.Tensor", "neg", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "cos", "mm", "bmm", "addmm",
        "pow.Tensor_Scalar", "relu", "clone", "cat", "_softmax", "native_layer_norm",
    )
}
#: Those of them that do not take `out`.
_WITHOUT_OUT = ("relu", "clone")


def schema_of(torch: Torch, name: str) -> Any:
    """The schema of an operator overload such as `aten::add.Tensor`."""
    packet, _, overload = name.partition(".")
    schema = torch._C._dispatch_find_schema_or_throw(packet, overload).schema
    return schema() if callable(schema) else schema


def is_view(schema: Any) -> bool:
    """Whether an operator gives another look at its argument's memory and changes nothing."""
    return any(result.alias_info is not None for result in schema.returns) and not any(
        argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments
    )


def overload(torch: Torch, name: str) -> tuple[Callable[..., Any], Collection[Any]]:
    """The operator as C++ has it, one dispatch without the layers of `torch.ops`, and its tags."""
    packet, _, rest = name.partition(".")
    call, _, tags = torch._C._get_operation_overload(packet, rest)
    return call, tags


def _function(torch, name):
    """The function of torch that does the same as an overload and is quicker to call, or None."""
    base = _FUNCTIONS.get(name)
    if base is None:
        return None
    if base.endswith("_"):
        # `TensorBase`, which had another name before PyTorch 2.2.
        return getattr(torch.Tensor.__base__, base, None)
    return getattr(torch._C._VariableFunctions, base, None)


class Operation:
    """What is known of one operator overload."""

    __slots__ = ("name", "base", "call", "host_call", "mutated", "seeded", "failures", "upcast", "computed", "out",
                 "has_generator", "arguments", "ordinary", "changes_itself", "several",
                 "status", "into")

    def __init__(self, torch: Torch, name: str) -> None:
        schema = schema_of(torch, name)
        self.name = name
        self.base = name.split("::", 1)[1].split(".", 1)[0]
        call, tags = overload(torch, name)
        self.call = _function(torch, name) or call
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
        self.failures = 0
        #: The dtypes of results that the CPU only computes in single precision.
        self.upcast: set[Dtype] = set()
        self.computed = not self.base.startswith(_NOT_COMPUTED)
        results = [str(result.type) for result in schema.returns]
        simple = (
            self.computed and not self.seeded and not self.has_generator and results == ["Tensor"]
            and not any("Tensor[]" in str(a.type) or "Tensor?[]" in str(a.type) for a in schema.arguments)
            and self.base not in _PECULIAR
        )
        #: Whether it makes one tensor from tensors and plain values, and nothing about it is special.
        self.ordinary = simple and not self.mutated
        #: Whether it changes its first argument and nothing else, going by what was there.
        self.changes_itself = (
            simple and not self.out and self.mutated == ((0, "self"),) and not self.base.startswith(OVERWRITES_PARTS)
        )
        #: Whether it makes several tensors.
        self.several = (
            not self.mutated and len(results) > 1 and set(results) == {"Tensor"} and self.base not in POSITIONS
            and not self.base.endswith("_ex")
        )
        #: Whether its last result is the status of a factorization, zero for success.
        self.status = self.base.endswith("_ex") and "linalg_" in self.base
        #: The variant that writes to a given tensor, found when it is first wanted; False where there is none.
        self.into: Any = None

    def mutates(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        """The tensors that a call writes to."""
        for index, name in self.mutated:
            value = args[index] if index < len(args) else kwargs.get(name)
            if isinstance(value, (list, tuple)):
                yield from value
            elif value is not None:
                yield value


class Variants:
    """Finds the variant of an operator that writes its result to a given tensor."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._by_base: dict[str, list[str]] | None = None

    def find(self, operation: Operation) -> Any:
        """A function that takes the operator's arguments and `out`, or False."""
        torch = self._torch
        if operation.name in _FUNCTIONS and operation.base not in _WITHOUT_OUT:
            return operation.host_call
        if self._by_base is None:
            self._by_base = {}
            for name in torch._C._dispatch_get_all_op_names():
                if name.startswith("aten::") and "out" in name.partition(".")[2]:
                    self._by_base.setdefault(name.partition(".")[0], []).append(name)
        wanted = self._shape(schema_of(torch, operation.name).arguments)
        for name in self._by_base.get("aten::" + operation.base, ()):
            arguments = schema_of(torch, name).arguments
            written = [argument for argument in arguments if argument.is_out]
            if len(written) != 1 or written[0].name != "out":
                continue
            if self._shape(argument for argument in arguments if not argument.is_out) == wanted:
                return overload(torch, name)[0]
        return False

    @staticmethod
    def _shape(arguments):
        return [(argument.name, str(argument.type)) for argument in arguments]
