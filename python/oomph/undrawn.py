"""Leaves large weights that are drawn at random on the host at zero, with the generator where it would be.

No large copy between host and card moves anything on the virtual GPU, so such weights reach it as zeros in any case.
Drawing them takes most of the start of a model that is built from its config, for the numbers and even more for the
host's memory under them. What is drawn later, such as the order of the samples, is the same as without oomph.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from oomph.values import memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Torch

LARGE_BYTES = 1 << 20
"""The virtual GPU moves nothing of a copy that is larger; `crates/oomph-vgpu/src/transfer.rs` has the same number."""

_INITIALISERS = frozenset((
    "_no_grad_normal_", "_no_grad_uniform_", "kaiming_normal_", "kaiming_uniform_", "_init_weights", "init_weights",
    "_initialize_weights", "reset_parameters", "_reset_parameters",
))
"""Functions that give weights their first values. Others may be after the numbers, as rejection sampling is."""

_BLOCK = 16
"""`normal_` works on blocks of this many numbers, and draws again for one that is not full."""

_ROUND = 624
"""The generator (MT19937) makes this many numbers at a time."""

_STATE_OFFSET, _LEFT_OFFSET, _NEXT_OFFSET = 24, 8, 16
"""Where torch's state of it (`CPUGeneratorImplStateLegacy`) has the numbers, how many are left, and which is next."""


def install(torch: Torch) -> None:
    """Wrap the two methods that initialise weights."""
    if hasattr(torch._C, "TensorBase"):
        generator = _Generator(torch)
        for name in ("normal_", "uniform_"):
            _wrap(torch, generator, name)


def _wrap(torch, generator, name):
    original = getattr(torch.Tensor, name)
    draws = {torch.float32: 1, torch.bfloat16: 1, torch.float16: 1, torch.float64: 2}
    ordinary = (torch.Tensor, torch.nn.Parameter)
    modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)

    def is_undrawn(tensor, caller):
        count = tensor.numel()
        return (
            count * tensor.element_size() > LARGE_BYTES
            and tensor.device.type == "cpu"
            and caller.f_code.co_name in _INITIALISERS
            and tensor.dtype in draws
            and count % _BLOCK == 0
            and tensor.is_contiguous()
            and not modes()
            and not (tensor.requires_grad and torch.is_grad_enabled())
        )

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if type(self) not in ordinary or kwargs.get("generator") is not None or not generator.skip:
            return original(self, *args, **kwargs)
        if not is_undrawn(self, sys._getframe(1)):
            return original(self, *args, **kwargs)
        # It complains of its arguments as it would.
        original(torch.empty(1, device="meta"), *args, **kwargs)
        memory.empty(self.data_ptr(), self.numel() * self.element_size())
        generator.advance(self.numel() * draws[self.dtype])
        return self

    setattr(torch.Tensor, name, method)


class _Generator:
    """Torch's generator of random numbers on the host."""

    def __init__(self, torch):
        self._torch = torch
        try:
            self.skip: Any = ctypes.CDLL(None).oomph_mt19937_twist
            self.skip.argtypes, self.skip.restype = [ctypes.c_void_p, ctypes.c_uint64], None
        except AttributeError:
            # Not on the virtual GPU.
            self.skip = None

    def advance(self, count):
        """Go where it is after `count` numbers of 32 bits."""
        state = self._torch.get_rng_state()
        address = state.data_ptr()
        left = ctypes.c_int.from_address(address + _LEFT_OFFSET)
        following = ctypes.c_uint64.from_address(address + _NEXT_OFFSET)
        words = (ctypes.c_uint64 * _ROUND).from_address(address + _STATE_OFFSET)
        # A round has been begun, with one number less to come than `left` says.
        ready = left.value - 1
        if count <= ready:
            left.value -= count
            following.value += count
        else:
            rounds, rest = divmod(count - ready - 1, _ROUND)
            twisted = (ctypes.c_uint32 * _ROUND)(*words)
            self.skip(ctypes.byref(twisted), rounds + 1)
            words[:] = list(twisted)
            following.value = rest + 1
            left.value = _ROUND - rest
        self._torch.set_rng_state(state)
