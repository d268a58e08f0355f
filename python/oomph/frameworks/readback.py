"""Watches what the host reads back of frameworks whose values are never computed: JAX's and TensorFlow's.

Nothing writes what a program of a virtual card "computes", so that its memory holds what lay there before. Of JAX it is known
which arrays came from the host; all others read as zeros. A flag that a healthy run needs otherwise is given as it needs it
(`oomph.flags`), and where something was read is remembered, because an error that follows may be due to that.
"""

from __future__ import annotations

import functools
import os
import sys

from oomph import flags, hook, sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from oomph._types import Library
    from oomph.record import Record

_MOST_BYTES = 1 << 24
"""The largest array that is filled."""
_MOST_BYTES_KEPT = 1 << 20
"""The largest array whose copy is kept on the host."""
_VALUE = "_oomph_value"
"""The attribute of JAX's arrays that the card was to copy: what the host sent."""
OF_THE_HOST = "_oomph_of_the_host"
"""The attribute of arrays and tensors that were put on the card by the host."""


def watch_jax(module: Library, record: Record, unknown_sizes: str) -> None:
    """Follow what is read of JAX's arrays: every way of reading goes by one property."""
    marked = hook.guarded(_mark_what_the_host_puts) or False
    counts = _Counts(record, least=unknown_sizes == "least")
    kind = module.ArrayImpl
    original = kind._value

    def _value(array):
        known = getattr(array, _VALUE, None)
        if known is not None:
            return known
        value = original.fget(array)
        if getattr(array, OF_THE_HOST, False) or all(device.platform not in ("cuda", "gpu") for device in array.devices()):
            return value
        found = hook.guarded(counts.of, array, value, sys._getframe(1))
        if found is None:
            found = hook.guarded(_as_a_healthy_run, value, record, "/jax/_src/")
        if found is None and marked:
            found = hook.guarded(_filled, value, False)
        return value if found is None else found

    kind._value = property(functools.wraps(original.fget)(_value))


def _mark_what_the_host_puts():
    """Whether arrays that come from the host can be distinguished from those that a program computed."""
    client: Any = sys.modules["jaxlib.xla_client"]
    kind = client.ArrayImpl

    def is_sent(value):
        return not isinstance(value, kind) or getattr(value, OF_THE_HOST, False)

    put = client.batched_device_put

    @functools.wraps(put)
    def batched_device_put(aval, sharding, values, *args, **kwargs):
        array = put(aval, sharding, values, *args, **kwargs)
        if all(map(is_sent, values)):
            setattr(array, OF_THE_HOST, True)
        return array

    client.batched_device_put = batched_device_put
    hook.on_import("jax._src.dispatch", lambda module: _follow_the_handlers(module, kind, is_sent))
    hook.on_import("jax._src.lax.lax", lambda module: _keep_what_is_staged(module, kind))
    return True


def _follow_the_handlers(module, kind, is_sent):
    """What was put on the card may be made into another array afterwards."""
    original = getattr(module, "_batched_device_put_impl", None)
    if original is None:
        return

    @functools.wraps(original)
    def _batched_device_put_impl(*values, **kwargs):
        arrays = original(*values, **kwargs)
        for value, array in zip(values, arrays):
            if array is not value and isinstance(array, kind) and is_sent(value):
                setattr(array, OF_THE_HOST, True)
        return arrays

    module._batched_device_put_impl = _batched_device_put_impl


def _keep_what_is_staged(module, kind):
    """`jnp.asarray` and `jnp.array` have the card copy what the host sent, which a virtual card does not do."""
    for name in ("stage_p", "convert_element_type_p"):
        staged = getattr(module, name, None)
        if staged is not None:
            staged.def_impl(_keeping(staged.impl, kind))


def _keeping(original, kind):
    @functools.wraps(original)
    def copied(value, *args, **kwargs):
        array = original(value, *args, **kwargs)
        is_sent = not isinstance(value, kind) or getattr(value, _VALUE, None) is not None
        if is_sent and array is not value and isinstance(array, kind) and array.nbytes <= _MOST_BYTES_KEPT:
            hook.guarded(_keep, array, getattr(value, _VALUE, value))
        return array

    return copied


def _keep(array, value):
    import numpy

    kept = numpy.array(value, dtype=array.dtype)
    kept.flags.writeable = False
    setattr(array, _VALUE, kept)


class _Counts:
    """How many elements a mask of JAX's selects, outside of functions: it is read from the card."""

    def __init__(self, record: Record, least: bool) -> None:
        self.record = record
        self.least = least

    def of(self, array: Any, value: Any, frame: FrameType | None) -> Any:
        """What takes the place of a mask, or of the number of its elements, that is read now; None for anything else."""
        while frame is not None and not sites.is_user_file(frame.f_code.co_filename):
            place = (os.path.basename(frame.f_code.co_filename), frame.f_code.co_name)
            if place == ("lax_numpy.py", "nonzero"):
                return self._number(frame.f_locals["arr"], value, frame)
            if place[1] in ("expand_bool_indices", "_expand_bool_indices") and value.dtype.name == "bool":
                self.record.note_selected("a mask", sites.site_of_frame(frame), value.size, self.least)
                return _filled(value, not self.least)
            frame = frame.f_back
        return None

    def _number(self, mask, value, frame):
        import numpy

        known = getattr(mask, _VALUE, None)
        if known is None and getattr(mask, OF_THE_HOST, False):
            known = mask._value
        if known is not None:
            return numpy.full_like(value, numpy.count_nonzero(known))
        self.record.note_selected("nonzero", sites.site_of_frame(frame), mask.size, self.least)
        return numpy.full_like(value, 0 if self.least else mask.size)


def watch_tensorflow(module: Library, record: Record) -> None:
    """Follow what is read of eager tensors."""
    kind = module._EagerTensorBase
    original = kind._numpy

    @functools.wraps(original)
    def _numpy(tensor):
        value = original(tensor)
        if "GPU:" not in (tensor.device or "") or getattr(tensor, OF_THE_HOST, False):
            return value
        found = hook.guarded(_as_a_healthy_run, value, record, "/tensorflow/python/framework/")
        if found is None and hook.guarded(_is_unsound, value):
            found = hook.guarded(_filled, value, False)
        return value if found is None else found

    kind._numpy = _numpy


def _is_unsound(value):
    """Whether what lay in the memory of an array happens to be no numbers, as a loss of a healthy run never is."""
    import numpy

    floats = getattr(value, "dtype", None) in (numpy.float16, numpy.float32, numpy.float64)
    return floats and value.nbytes <= _MOST_BYTES and not numpy.isfinite(value).all()


def _as_a_healthy_run(value, record, machinery):
    """The flags that a healthy run reads in the place of these; None where no source says so."""

    def hands_on(file):
        return sites.is_own_file(file) or machinery in file or "/numpy/" in file or "/contextlib.py" in file

    frame = flags.reader(hands_on)
    record.note_read(frame)
    if getattr(getattr(value, "dtype", None), "name", None) != "bool" or not value.size:
        return None
    healthy = flags.healthy(frame)
    return None if healthy is None else _filled(value, healthy)


def _filled(value: Any, number: bool) -> Any:
    """As many zeros or ones; None where they are too many."""
    import numpy

    if value.nbytes > _MOST_BYTES:
        return None
    made = numpy.full_like(value, number)
    if isinstance(made, numpy.ndarray):
        made.flags.writeable = False
    return made
