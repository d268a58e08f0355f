"""Answers what libraries ask of the cards while they are imported, without torch.

`torch.cuda.is_available()` initialises nothing, yet torch refuses CUDA to every process that is forked after it has
counted the cards itself; `get_device_capability()` initialises CUDA. Both are common at the top of a module, and both
are answered here by the runtime library, until the fork.
"""

from __future__ import annotations

import ctypes

from oomph import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAJOR, _MINOR = 75, 76
"""cudaDevAttrComputeCapabilityMajor and ...Minor."""


class Cards:
    """Answers two questions in torch's place while the server imports."""

    _count: Any
    _capability: Any

    def __init__(self) -> None:
        self._hidden = False
        self._torch: Any = None
        self._count = self._capability = None

    def hide(self) -> None:
        """Answer in torch's place from its import on."""
        if self._hidden:
            return
        self._hidden = True
        hook.on_import("torch", self._replace)

    def show(self) -> None:
        """Let torch answer again; a library that kept one of our functions is passed on to torch's."""
        self._hidden = False
        if self._torch is not None:
            self._torch._C._cuda_getDeviceCount = self._count
            self._torch.cuda.get_device_capability = self._capability

    def _replace(self, torch):
        if not hasattr(torch._C, "_cuda_getDeviceCount"):
            return
        runtime = ctypes.CDLL(None)
        self._torch = torch
        self._count = count = torch._C._cuda_getDeviceCount
        self._capability = capability = torch.cuda.get_device_capability
        cards = self

        def _cuda_getDeviceCount():
            if not cards._hidden:
                return count()
            number = ctypes.c_int(0)
            return number.value if runtime.cudaGetDeviceCount(ctypes.byref(number)) == 0 else 0

        def get_device_capability(device=None):
            index = _index(torch, device) if cards._hidden else None
            if index is None:
                return capability(device)
            answer = []
            for attribute in (_MAJOR, _MINOR):
                number = ctypes.c_int(0)
                if runtime.cudaDeviceGetAttribute(ctypes.byref(number), attribute, index) != 0:
                    return capability(device)
                answer.append(number.value)
            return tuple(answer)

        torch._C._cuda_getDeviceCount = _cuda_getDeviceCount
        torch.cuda.get_device_capability = get_device_capability


def _index(torch, device):
    """The number of a card in any of the forms that torch takes; None for one that is not understood."""
    if device is None:
        return 0
    if isinstance(device, torch.cuda.device):
        return device.idx
    if isinstance(device, (str, torch.device)):
        device = torch.device(device).index
        return 0 if device is None else device
    return device if isinstance(device, int) else None
