"""Records what a training computes, with real numbers, so that the program and a change of it can be held side by side.

All values are computed on the host's processor (`values`, "all-host"). `observing` notes what each optimizer step saw and left,
`drawing` gives random numbers that hang on the program's own generator, and `reducing` makes the program small enough. What is
compared, and what counts as equal, is decided by the launcher.
"""

from __future__ import annotations

from oomph import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._protocol import Compare
    from oomph._types import Torch


def install(torch: Torch, wanted: Compare) -> None:
    """Arranges for this process to be recorded, from the import of `torch` on."""
    from oomph.comparing import drawing, observing, reducing

    _settle(torch)
    if wanted["whole_precision"]:
        _stay_in_whole_precision(torch)
    drawing.begin(torch, wanted)
    observing.Observer(torch, wanted, reducing.install(torch, wanted)).begin()
    hook.on_import("torch._dynamo", _leave_uncompiled)
    hook.on_import("triton.runtime.jit", _note_kernels)


def _settle(torch):
    """Has PyTorch compute with operators that the processor has as well."""
    backends = torch.backends
    backends.cudnn.enabled = False
    for name in ("flash", "mem_efficient", "cudnn"):
        enable = getattr(backends.cuda, "enable_%s_sdp" % name, None)
        if enable is not None:
            enable(False)


def _leave_uncompiled(dynamo: Any) -> None:
    """Compiled kernels have no values. What they are made from computes the same."""
    dynamo.config.disable = True


def _note_kernels(jit: Any) -> None:
    """A kernel of Triton's has no form for the processor: what it leaves is not computed, in both programs alike."""
    from oomph import values

    original = jit.JITFunction.run

    def run(self, *args, **kwargs):
        kernels = getattr(values.session(), "kernels", None)
        if kernels is not None:
            kernels.left_out.add("a kernel of Triton")
        return original(self, *args, **kwargs)

    jit.JITFunction.run = run


def _stay_in_whole_precision(torch):
    """Leaves autocast out: its rounding would hide small differences, and both programs have it alike."""
    kind = torch.amp.autocast_mode.autocast
    original = kind.__enter__

    def entering(self):
        self._enabled = False
        return original(self)

    kind.__enter__ = entering
