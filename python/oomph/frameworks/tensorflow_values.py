"""Gives TensorFlow values and sizes that a card would have computed.

No kernel runs on a virtual card, so that what TensorFlow reads back of it is whatever lies there. Operations on a few numbers
that the host has are left to the host. Results that have as many elements as a mask has set, or as values differ, are counted
by the host where it has the mask; elsewhere the most there can be is taken, or the least, as the run says, and the size is
noted as unknown.
"""

from __future__ import annotations

import functools
import sys

from oomph import hook, sites
from oomph.frameworks.readback import OF_THE_HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from oomph._types import Library
    from oomph.record import Record

_SENT = ("Placeholder", "Const", "IteratorGetNext")
"""Where a graph gets values that the host has."""
_CHEAP = frozenset((
    "Abs", "Add", "AddV2", "All", "Any", "BitwiseAnd", "BitwiseOr", "Cast", "Ceil", "ConcatV2", "Cumsum", "Div", "DivNoNan",
    "Equal", "Exp", "ExpandDims", "Floor", "FloorDiv", "FloorMod", "GatherV2", "Greater", "GreaterEqual", "Identity", "Less",
    "LessEqual", "Log", "LogicalAnd", "LogicalNot", "LogicalOr", "Max", "Maximum", "Min", "Minimum", "Mul", "Neg", "NotEqual",
    "OnesLike", "Pack", "Pow", "Prod", "RealDiv", "Reshape", "Rint", "Round", "Rsqrt", "SelectV2", "Shape", "Size", "Slice",
    "Sqrt", "Square", "Squeeze", "StridedSlice", "Sub", "Sum", "Transpose", "TruncateDiv", "Unpack", "ZerosLike",
))  # fmt: skip
"""Operations that the host does as well, where all that they take is known; none makes much of little."""
_OF_MASKS = _CHEAP | {"BroadcastTo", "Fill", "OneHot", "Range", "Tile"}
"""Operations that lead to a mask."""
_ANSWERED = "VarIsInitializedOp"
"""Is answered in the host's memory, though TensorFlow says that it lies on the card. Functions ask it for all variables that
are made while they are traced, and read the answers together."""
_FEW = 64
"""How many elements are few: TensorFlow's own number for integers."""
_MOST_OPERATIONS = 200
"""How far back a mask is followed in a graph."""
_HOST = "/device:CPU:0"


def install(tensorflow: Library, record: Record, unknown_sizes: str) -> None:
    """Attach to a TensorFlow that has just been imported."""
    hook.on_import("tensorflow.python.framework.constant_op", _mark_what_the_host_has)
    little = _Little(tensorflow)
    hook.on_import("tensorflow.python.pywrap_tfe", little.watch_the_fast_path)
    hook.on_import("tensorflow.python.eager.execute", little.watch_the_slow_path)
    sizes = _Sizes(tensorflow, record, least=unknown_sizes == "least")
    arrays, flow = "tensorflow.python.ops.gen_array_ops", "tensorflow.python.ops.gen_data_flow_ops"
    hook.on_import(arrays, lambda module: sizes.replace(module, "where", sizes.where))
    hook.on_import(arrays, lambda module: sizes.replace(module, "unique", sizes.unique))
    hook.on_import(arrays, lambda module: sizes.replace(module, "unique_with_counts", sizes.unique))
    hook.on_import(flow, lambda module: sizes.replace(module, "dynamic_partition", sizes.partition))


def _is_known(tensor):
    """Whether the host has what an eager tensor holds."""
    return getattr(tensor, OF_THE_HOST, False) or "GPU:" not in tensor.backing_device


def _mark_what_the_host_has(module):
    """Know the tensors that are made of the host's numbers, wherever they lie."""
    original = module.convert_to_eager_tensor

    @functools.wraps(original)
    def convert_to_eager_tensor(value, *args, **kwargs):
        tensor = original(value, *args, **kwargs)
        if tensor is not value:
            setattr(tensor, OF_THE_HOST, True)
        return tensor

    module.convert_to_eager_tensor = convert_to_eager_tensor


class _Little:
    """Has operations outside of functions on a few known numbers done where they have values: they are often sizes."""

    def __init__(self, tensorflow: Library) -> None:
        self.tensorflow = tensorflow
        self.eager = tensorflow.__internal__.EagerTensor

    def watch_the_fast_path(self, module: Library) -> None:
        """Most operations are executed by a function of the library's own."""
        original = module.TFE_Py_FastPathExecute

        @functools.wraps(original)
        def TFE_Py_FastPathExecute(context, operation, name, *args):
            if not hook.guarded(self._is_for_the_host, operation, context, args):
                result = original(context, operation, name, *args)
                if operation == _ANSWERED:
                    setattr(result, OF_THE_HOST, True)
                return result
            with self.tensorflow.device(_HOST):
                return original(context, operation, name, *args)

        module.TFE_Py_FastPathExecute = TFE_Py_FastPathExecute

    def watch_the_slow_path(self, module: Library) -> None:
        """Those that take a list of Python's are not."""
        original = module.execute

        @functools.wraps(original)
        def execute(op_name, num_outputs, inputs, attrs, ctx, name=None):
            operation = op_name.decode() if isinstance(op_name, bytes) else op_name
            if not hook.guarded(self._is_for_the_host, operation, ctx, inputs):
                return original(op_name, num_outputs, inputs, attrs, ctx, name)
            with self.tensorflow.device(_HOST):
                return original(op_name, num_outputs, inputs, attrs, ctx, name)

        module.execute = execute

    def _is_for_the_host(self, operation, context, given):
        # Where the program says which device is to do it, that one does.
        return operation in _CHEAP and not context.device_name and self._is_little(given)

    def _is_little(self, given):
        if isinstance(given, self.eager):
            return (given.shape.num_elements() or 0) <= _FEW and _is_known(given)
        return not isinstance(given, (list, tuple)) or all(self._is_little(part) for part in given)


class _Sizes:
    """The operations whose results have a size that values decide."""

    def __init__(self, tensorflow: Library, record: Record, least: bool) -> None:
        self.tensorflow = tensorflow
        self.record = record
        self.least = least

    def replace(self, module: Library, name: str, instead: Callable[..., Any]) -> None:
        """Count on the host where that is possible; else have `instead` make the result."""
        original = getattr(module, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def counted(*args, **kwargs):
            deciding = hook.guarded(self._deciding, name, args, kwargs)
            known = None if deciding is None else hook.guarded(self._known, deciding)
            if known is not None:
                for operation in known:
                    operation._set_device(_HOST)
                with self.tensorflow.device(_HOST):
                    return original(*args, **kwargs)
            made = None if deciding is None else hook.guarded(instead, module, name, deciding, args, kwargs)
            return original(*args, **kwargs) if made is None else made

        setattr(module, name, counted)
        # Some are the function itself that programs call.
        if getattr(self.tensorflow, name, None) is original:
            setattr(self.tensorflow, name, counted)

    def _deciding(self, name, args, kwargs):
        """The tensor whose values decide."""
        if name == "dynamic_partition":
            given = args[1] if len(args) > 1 else kwargs["partitions"]
        else:
            given = args[0] if args else kwargs.get("condition", kwargs.get("x"))
        return self.tensorflow.convert_to_tensor(given)

    # -- what the host knows -----------------------------------------------------------------------------------

    def _known(self, tensor: Any) -> Iterable[Any] | None:
        """The operations of a graph that the host has to do to know a tensor; None where it cannot be known."""
        if not self.tensorflow.is_symbolic_tensor(tensor):
            return () if _is_known(tensor) else None
        found, waiting = {}, [tensor.op]
        while waiting:
            operation = waiting.pop()
            if operation.name in found:
                continue
            found[operation.name] = operation
            if operation.type in _SENT:
                # Numbers with a fraction are more often computed than sent.
                if operation.type == "Placeholder" and any(output.dtype.is_floating for output in operation.outputs):
                    return None
            elif operation.type not in _OF_MASKS or len(found) > _MOST_OPERATIONS:
                return None
            else:
                waiting.extend(given.op for given in operation.inputs)
        return [operation for operation in found.values() if operation.type in _OF_MASKS]

    # -- what is taken in its place ----------------------------------------------------------------------------

    def where(self, module: Library, name: str, condition: Any, args: Any, kwargs: Any) -> Any:
        """The places of what is set: rows of as many numbers as the mask has dimensions."""
        tensorflow = self.tensorflow
        shape = tensorflow.stack([self._rows(condition, name), tensorflow.rank(condition)])
        return self._hidden(tensorflow.zeros(shape, tensorflow.int64), [None, condition.shape.rank])

    def unique(self, module: Library, name: str, values: Any, args: Any, kwargs: Any) -> Any:
        """The different values, where each of the given ones is among them, and perhaps how often."""
        tensorflow = self.tensorflow
        kind = args[1] if len(args) > 1 else kwargs.get("out_idx", tensorflow.int32)
        found = self._hidden(values[: self._rows(values, name)], [None])
        names = {"y": found, "idx": tensorflow.zeros_like(values, kind), "count": tensorflow.zeros_like(found, kind)}
        result = module._UniqueOutput if name == "unique" else module._UniqueWithCountsOutput
        return result(*(names[field] for field in result._fields))

    def partition(self, module: Library, name: str, partitions: Any, args: Any, kwargs: Any) -> Any:
        """All that is partitioned in one part; together the parts have a certain size."""
        data = self.tensorflow.convert_to_tensor(args[0] if args else kwargs["data"])
        number = args[2] if len(args) > 2 else kwargs["num_partitions"]
        row = data.shape[partitions.shape.rank :]
        rows = self.tensorflow.reshape(data, [-1, *row])
        return [self._hidden(rows if part == 0 else rows[:0], [None, *row]) for part in range(number)]

    def _rows(self, tensor, operation):
        """How many there are taken to be, of as many as a tensor has elements."""
        most = tensor.shape.num_elements()
        if most is None:
            operation, most = operation + ", of each element that it is given,", 1
        self.record.note_selected(operation, sites.site_of_frame(sys._getframe(1)), most, self.least)
        return self.tensorflow.constant(0) if self.least else self.tensorflow.size(tensor)

    def _hidden(self, tensor, shape):
        """A tensor whose size is not known before the run, as in the program's own graph."""
        if not self.tensorflow.is_symbolic_tensor(tensor):
            return tensor
        return self.tensorflow.raw_ops.PlaceholderWithDefault(input=tensor, shape=shape)
