"""Keeps an optimizer's state, and if wanted the gradients too, in host memory, and steps there.

It takes the bytes of torchao's `CPUOffloadOptimizer`: of each weight of some size a copy and a gradient in pinned host
memory, and one inner optimizer; weights of fewer elements stay with an optimizer on the card. On the virtual GPU there
are no numbers to work on, so the host does nothing there and a model may be larger than its memory.
"""

from __future__ import annotations

from oomph import _protocol as protocol
from oomph import forked, hook
from oomph.remedies.optimizers import Replaced, qualified
from oomph.remedies.remedy import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from oomph._types import Tensor, Torch
    from oomph.moments import Moments

SMALLEST = 4096
"""Elements from which a weight is worked on by the host, as in torchao."""


class HostOptimizer(Replaced):
    """`optimizer-cpu-offload`, and `gradient-cpu-offload`, which frees each gradient once host memory has it."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(name, options, None, self._make)
        self.gradients = name == "gradient-cpu-offload"
        self._making = False

    def attach(self, moments: Moments) -> None:
        if not hasattr(moments.torch.Tensor, "register_post_accumulate_grad_hook"):
            raise Refused("torch can do this from 2.1 on")
        super().attach(moments)

    def fields(self, arguments: Any) -> dict[str, Any]:
        if not self.gradients:
            return {}
        if int(arguments.gradient_accumulation_steps) > 1:
            raise Refused("gradients are accumulated over several steps")
        # The norm of all gradients is not to be had where they are never on the card together.
        return {"max_grad_norm": 0.0}

    def _instead(self, cls, signature, args, kwargs):
        if self._making or self.state == protocol.REMEDY_REFUSED:
            return None
        return super()._instead(cls, signature, args, kwargs)

    def _make(self, torch, cls, parameters, given):
        self._making = True
        try:
            return offloaded(torch)(parameters, cls, self.gradients, given)
        finally:
            self._making = False

    def verify(self) -> None:
        sizes = [optimizer.host_bytes() for optimizer in self.made]
        if any(sizes):
            self.evidence = "%.1f MiB of weights and gradients wait in host memory, with the state of %s" % (
                sum(sizes) / 2.0**20, qualified(self.made[-1].inner_class),
            )  # fmt: skip


def settings(group: dict[str, Any]) -> dict[str, Any]:
    """A group's settings, without its parameters: a scheduler changes them."""
    return {name: value for name, value in group.items() if name != "params"}


def offloaded(torch: Torch) -> Any:
    """The class of the optimizer; it can be made only once torch is there."""

    class CPUOffload(torch.optim.Optimizer):
        def __init__(self, parameters: Sequence[Any], cls: type, gradients: bool, given: dict[str, Any]) -> None:
            self.inner_class = cls
            self.hosts: dict[Tensor, tuple[Tensor, Any]] = {}
            """Each weight, with its copy in host memory and the optimizer of that."""
            super().__init__(parameters, dict(given))
            self._gradients = gradients
            self._virtual = hook.on_virtual_card()
            kept = []
            self._kept_groups = []
            """For each group of the optimizer on the card, the place of the group that it belongs to."""
            for place, group in enumerate(self.param_groups):
                own = settings(group)
                small = [one for one in group["params"] if one.requires_grad and one.numel() < SMALLEST]
                if small:
                    kept.append(dict(own, params=small))
                    self._kept_groups.append(place)
                for weight in group["params"]:
                    if weight.requires_grad and weight.numel() >= SMALLEST:
                        self._take(weight, own, given)
            self.kept = cls(kept, **given) if kept else None

        def _take(self, weight, own, given):
            pinned = weight.is_cuda
            host = torch.empty_like(weight, device="cpu", pin_memory=pinned)
            host.copy_(weight.detach(), non_blocking=True)
            host.grad = torch.empty_like(host, pin_memory=pinned)
            self.hosts[weight] = host, self.inner_class([dict(own, params=[host])], **given)
            weight.register_post_accumulate_grad_hook(self._arrived)

        def _arrived(self, weight):
            self.hosts[weight][0].grad.copy_(weight.grad, non_blocking=True)
            if self._gradients:
                weight.grad = None

        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            if not self._virtual:
                if not forked.is_away() and torch.cuda.is_available():
                    torch.cuda.synchronize()
                for group in self.param_groups:
                    changed = settings(group)
                    for weight in group["params"]:
                        if weight in self.hosts:
                            host, inner = self.hosts[weight]
                            if not self._gradients and weight.grad is not None:
                                # It may have been clipped since it arrived.
                                host.grad.copy_(weight.grad)
                            inner.param_groups[0].update(changed)
                            inner.step()
            with torch.no_grad():
                for weight, (host, _) in self.hosts.items():
                    weight.copy_(host, non_blocking=True)
            if self.kept is not None:
                for group, place in zip(self.kept.param_groups, self._kept_groups):
                    group.update(settings(self.param_groups[place]))
                self.kept.step()
            return loss

        def host_bytes(self) -> int:
            return sum(2 * host.nbytes for host, _ in self.hosts.values())

    return CPUOffload
