"""Writes checkpoints that are as large as the real ones and take no disk: whatever is large in them is a hole.

They are written in shards, as libraries write theirs. The system refuses to map a file that is larger than the machine's
memory, and a shard never is.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Tensor, Torch

REAL_BYTES = 64 << 20
"""Checkpoints up to this size hold real random numbers; in larger ones only what has one dimension is written."""

SHARD_BYTES = 5 * 10**9
"""The size at which libraries begin the next file."""

_MADV_RANDOM = 1

_sparse: set[str] = set()
"""The files that consist of holes, by path."""


def write(torch: Torch, folder: str, stem: str, tensors: dict[str, Tensor], variant: str | None = None) -> None:
    """Write a checkpoint of these tensors: `stem.safetensors`, or shards and their index.

    The names are those of transformers and diffusers, with the variant where both look for it.
    """
    middle = "." + variant if variant else ""
    shards = list(_shards(tensors))
    real = sum(_size(tensor) for tensor in tensors.values()) <= REAL_BYTES
    if len(shards) == 1:
        _write(torch, os.path.join(folder, "%s%s.safetensors" % (stem, middle)), tensors, real)
        return
    places: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        shard = "%s%s-%05d-of-%05d.safetensors" % (stem, middle, number, len(shards))
        _write(torch, os.path.join(folder, shard), {name: tensors[name] for name in names}, real)
        places.update((name, shard) for name in names)
    total = sum(_size(tensor) for tensor in tensors.values())
    with open(os.path.join(folder, "%s.safetensors.index%s.json" % (stem, middle)), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": places}, file)


def _size(tensor):
    return tensor.numel() * tensor.element_size()


def _shards(tensors):
    """The names of the tensors, by the file that they go to."""
    names: list[str] = []
    size = 0
    for name, tensor in tensors.items():
        if names and size + _size(tensor) > SHARD_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += _size(tensor)
    yield names


def _read_sparsely(torch, path):
    """Let this checkpoint be mapped without reading ahead.

    Libraries look at a number here and there, and around each the kernel would fill megabytes of memory with zeros.
    """
    storage = getattr(torch, "UntypedStorage", None)
    if storage is None:
        return
    _sparse.add(path)
    if len(_sparse) > 1:
        return
    original = storage.from_file

    def from_file(filename, *args, **kwargs):
        mapped = original(filename, *args, **kwargs)
        if str(filename) in _sparse:
            # The advice to the kernel only saves memory; the mapping is good without it.
            with contextlib.suppress(Exception):
                address, size = mapped.data_ptr(), mapped.nbytes()
                ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_RANDOM)
        return mapped

    storage.from_file = from_file


def _write(torch, path, tensors, real):
    """Write a safetensors file in which whatever is large is a hole, unless all its numbers are to be `real`."""
    from oomph import savers

    _read_sparsely(torch, path)

    types = dict(savers._DTYPES)
    types.update(float8_e4m3fnuz="F8_E4M3FNUZ", float8_e5m2fnuz="F8_E5M2FNUZ", float8_e8m0fnu="F8_E8M0")
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, dict[str, Any]] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in order:
        kind = types[str(tensors[name].dtype).split(".")[-1]]
        shape = list(tensors[name].shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + sizes[name]]}
        at += sizes[name]
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    generator = torch.Generator("cpu")
    generator.manual_seed(0)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            numbers = None
            if real or tensors[name].dim() <= 1 or tensors[name].device.type != "meta":
                numbers = _numbers(torch, name, tensors[name], generator)
            if numbers is None:
                file.seek(sizes[name], os.SEEK_CUR)
            else:
                file.write(savers._bytes_of(numbers, sizes[name]))
        file.flush()
        file.truncate(8 + len(text) + at)


def _numbers(torch, name, tensor, generator):
    """Plausible numbers: buffers as they are, scales of norms one, biases zero, matrices small and random."""
    if tensor.device.type != "meta":
        return tensor if tensor.device.type == "cpu" else None
    if not tensor.dtype.is_floating_point:
        return None
    with torch.device("cpu"):
        if tensor.dim() > 1:
            numbers = torch.empty(tensor.shape, dtype=torch.float32).normal_(0.0, 0.02, generator=generator)
        elif name.endswith("bias"):
            return None
        else:
            numbers = torch.ones(tensor.shape, dtype=torch.float32)
        return numbers.to(tensor.dtype)
