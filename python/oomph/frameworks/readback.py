"""Watches what the host reads back of frameworks whose values are never computed: JAX's and TensorFlow's.

Nothing writes what a program of a virtual card "computes", so that its memory holds what lay there before. Of JAX it is known
which arrays came from the host; all others read as zeros. A flag that a healthy run needs otherwise is given as it needs it
(`oomph.flags`), and where something was read is remembered, because an error that follows may be due to that.
"""

from __future__ import annotations

import functools
import sys

from oomph import flags, hook, sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Library
    from oomph.record import Record

_MOST_BYTES = 1 << 24
"""The largest array that is filled."""
OF_THE_HOST = "_oomph_of_the_host"
"""The attribute of arrays and tensors that were put on the card by the host."""


def watch_jax(module: Library, record: Record) -> None:
    """Follow what is read of JAX's arrays: every way of reading goes by one property."""
    marked = hook.guarded(_mark_what_the_host_puts) or False
    kind = module.ArrayImpl
    original = kind._value

    def _value(array):
        value = original.fget(array)
        if getattr(array, OF_THE_HOST, False) or all(device.platform not in ("cuda", "gpu") for device in array.devices()):
            return value
        found = hook.guarded(_as_a_healthy_run, value, record, "/jax/_src/")
        if found is None and marked:
            found = hook.guarded(_filled, value, False)
        return value if found is None else found

    kind._value = property(functools.wraps(original.fget)(_value))


def _mark_what_the_host_puts():
    """Whether arrays that come from the host can be distinguished from those that a program computed."""
    client: Any = sys.modules["jaxlib.xla_client"]
    original = client.batched_device_put
    kind = client.ArrayImpl

    @functools.wraps(original)
    def batched_device_put(aval, sharding, values, *args, **kwargs):
        array = original(aval, sharding, values, *args, **kwargs)
        if not any(isinstance(value, kind) and not getattr(value, OF_THE_HOST, False) for value in values):
            setattr(array, OF_THE_HOST, True)
        return array

    client.batched_device_put = batched_device_put
    return True


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
