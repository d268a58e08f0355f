"""Watches what the host reads back of frameworks whose values are never computed: JAX's and TensorFlow's.

Everything that a virtual card computed reads as zero. A flag that has to be set for the program to go on is given as set
(`oomph.flags`), and where something was read is remembered, because an error that follows may be due to the zero.
"""

from __future__ import annotations

import functools

from oomph import flags, hook, sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Library
    from oomph.record import Record

_MOST_BYTES = 1 << 24
"""The largest array of flags that is filled."""


def watch_jax(module: Library, record: Record) -> None:
    """Follow what is read of JAX's arrays: every way of reading goes by one property."""
    kind = module.ArrayImpl
    original = kind._value

    def _value(array):
        value = original.fget(array)
        if any(device.platform in ("cuda", "gpu") for device in array.devices()):
            return _read(value, record, "/jax/_src/")
        return value

    kind._value = property(functools.wraps(original.fget)(_value))


def watch_tensorflow(module: Library, record: Record) -> None:
    """Follow what is read of eager tensors."""
    kind = module._EagerTensorBase
    original = kind._numpy

    @functools.wraps(original)
    def _numpy(tensor):
        value = original(tensor)
        if "GPU:" in (tensor.device or ""):
            return _read(value, record, "/tensorflow/python/framework/")
        return value

    kind._numpy = _numpy


def _read(value, record, machinery):
    found = hook.guarded(_as_a_healthy_run, value, record, machinery)
    return value if found is None else found


def _as_a_healthy_run(value, record, machinery):
    """The flags that a healthy run reads in the place of these; None where they stay as they are."""

    def hands_on(file):
        return sites.is_own_file(file) or machinery in file or "/numpy/" in file or "/contextlib.py" in file

    frame = flags.reader(hands_on)
    record.note_read(frame)
    kind = getattr(getattr(value, "dtype", None), "name", None)
    # A flag that is set was put on the card by the host, and is what it is.
    if kind != "bool" or value.nbytes > _MOST_BYTES or value.any() or not value.size or not flags.healthy(frame):
        return None
    return _set(value)


def _set(flags_read: Any) -> Any:
    """As many flags that are set."""
    import numpy

    made = numpy.ones_like(flags_read)
    if isinstance(made, numpy.ndarray):
        made.flags.writeable = False
    return made
