"""Keeps large arrays that are joined on the host as empty as their parts.

What an evaluation gathers on the host came from the card by copies that moved nothing, so most of its pages were never
touched. A copy of them all would ask for as much host memory as the real thing, which the machine may not have.
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Library

LARGE_BYTES = 64 << 20
"""An array of fewer bytes is joined as usual."""


def install(numpy: Library) -> None:
    """Wrap `numpy.concatenate`."""
    from oomph.values.memory import copy_present

    original = numpy.concatenate

    def fit(arrays):
        first = arrays[0] if arrays else None
        return (
            first is not None
            and all(type(array) is numpy.ndarray and array.flags.c_contiguous for array in arrays)
            and all(array.dtype == first.dtype and array.shape[1:] == first.shape[1:] for array in arrays)
            and first.ndim > 0
            and first.dtype.kind in "biufc"
            and sum(array.nbytes for array in arrays) > LARGE_BYTES
        )

    @functools.wraps(original)
    def concatenate(arrays, *args, **kwargs):
        if type(arrays) not in (list, tuple) or args not in ((), (0,)) or kwargs not in ({}, {"axis": 0}):
            return original(arrays, *args, **kwargs)
        if not fit(arrays):
            return original(arrays, *args, **kwargs)
        # An array of this size is memory that nobody has used before, and costs nothing until somebody writes to it.
        joined = numpy.zeros((sum(len(array) for array in arrays),) + arrays[0].shape[1:], arrays[0].dtype)
        at = joined.ctypes.data
        for array in arrays:
            if array.nbytes and not copy_present(at, array.ctypes.data, array.nbytes):
                return original(arrays, *args, **kwargs)
            at += array.nbytes
        return joined

    numpy.concatenate = concatenate
