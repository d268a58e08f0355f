"""Measures what an optimizer step computes and moves: the virtual GPU counts it, and this cuts the count at each step.

The price of a remedy is the time of a step with it by the time of one without it, so that one step has to be like the others:
of those that were made, the one in the middle by what it computes is reported. The first is left out, because it holds what came
before the loop.
"""

from __future__ import annotations

import ctypes
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Optimizer

_ROOM = 256 * 1024
_MOST = 16
"""Steps that are kept; what follows replaces the oldest."""


class Work:
    """The work of each step of this process."""

    def __init__(self) -> None:
        try:
            self._cut: Any = ctypes.CDLL(None).oomph_work_cut
        except (AttributeError, OSError):
            # A real card, which nobody counts on.
            self._cut = None
        else:
            self._cut.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
            self._cut.restype = ctypes.c_size_t
        self._buffer: Any = None
        self.forked()

    def forked(self) -> None:
        """Begin again in a forked child."""
        self._steps: list[dict[str, Any]] = []
        self._count = 0
        self._begun = False
        self._samples = 0
        self._hosts: dict[int, int] = {}
        self._host_bytes = 0

    def delivered(self, samples: int) -> None:
        """A loader gave a batch of so many samples to train on."""
        self._samples += samples

    def optimized(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: note what it read and wrote on the host, once for each optimizer's parameters."""
        key = id(optimizer)
        if key not in self._hosts:
            self._hosts[key] = _bytes_on_host(optimizer)
        self._host_bytes += self._hosts[key]

    def stepped(self) -> None:
        """An iteration has ended."""
        if self._cut is None:
            return
        if self._buffer is None:
            self._buffer = ctypes.create_string_buffer(_ROOM)
        length = self._cut(self._buffer, _ROOM)
        samples, host = self._samples, self._host_bytes
        self._samples = self._host_bytes = 0
        if not self._begun:
            self._begun = True
            return
        if length:
            self._count += 1
            self._steps.append(dict(json.loads(self._buffer[:length]), samples=samples, host_bytes=host))
            del self._steps[:-_MOST]

    def as_dict(self) -> dict[str, Any] | None:
        """The step in the middle, in the form of docs/internals/run-folder.md; None where there were fewer than two."""
        if not self._steps:
            return None
        steps = sorted(self._steps, key=_operations)
        middle = steps[(len(steps) - 1) // 2]
        # A loader may run ahead, and be read without a step where it is measured.
        samples = sorted(step["samples"] for step in steps)[len(steps) // 2]
        return dict(middle, steps=self._count, samples=samples)


def _operations(step):
    return sum(operations * times for _, operations, _, times in step["products"])


def _bytes_on_host(optimizer):
    """What one step of an optimizer reads and writes in the host's memory: parameters, gradients and states."""
    total = 0
    try:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.device.type != "cpu" or parameter.grad is None:
                    continue
                state = optimizer.state.get(parameter) or {}
                like = [one for one in state.values() if getattr(one, "shape", None) == parameter.shape]
                states = sum(one.numel() * one.element_size() for one in like)
                # The gradient is read; the parameter and the states are read and written.
                total += parameter.numel() * parameter.element_size() * 3 + states * 2
    except Exception:
        # An optimizer of another library has other fields; then nothing is counted for it.
        return 0
    return total
