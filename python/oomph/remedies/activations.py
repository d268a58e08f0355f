"""Keeps activations in host memory until the backward pass."""

from __future__ import annotations

from oomph import _protocol as protocol
from oomph import forked
from oomph.remedies.remedy import Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Torch
    from oomph.moments import Moments


class ActivationOffload(Remedy):
    """`activation-offload`: what the model's call saves for backward goes through `save_on_cpu(pin_memory=True)`."""

    saved: int
    restored: int

    waits_for = "no model was called with gradients"

    def attach(self, moments: Moments) -> None:
        self.torch: Torch = moments.torch
        self.moments: Moments = moments
        self.saved = self.restored = 0
        moments.around_model(self.careful(self._around))

    def _around(self, model):
        torch = self.torch
        if not torch.is_grad_enabled() or not model.training:
            return None
        pinned = not forked.is_away() and torch.cuda.is_available() and self.option("pin_memory", True)
        context = torch.autograd.graph.save_on_cpu(pin_memory=pinned)
        self.applied("tensors saved by %s go to %s memory" % (type(model).__name__, "pinned host" if pinned else "host"))
        context.pack_hook = self._counting(context.pack_hook)
        context.unpack_hook = self._counting_back(context.unpack_hook)
        return context

    def _counting(self, pack):
        def packed(tensor):
            self.saved += tensor.nbytes
            return pack(tensor)

        return packed

    def _counting_back(self, unpack):
        def unpacked(value):
            self.restored += 1
            return unpack(value)

        return unpacked

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED and self.saved:
            self.evidence = "%d bytes saved in host memory, %d tensors brought back in backward" % (self.saved, self.restored)
