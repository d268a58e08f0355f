"""Frees tensors that live longer than they are needed: graphs of evaluation, cleared gradients, logged losses."""

from __future__ import annotations

import functools
import sys

from oomph import _protocol as protocol
from oomph.program.facts import makes_a_needless_graph, tensors_in
from oomph.program.kept import Growing, Search, line_of
from oomph.program.kinds import name_of
from oomph.remedies.remedy import Remedy, plural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph.moments import Moments


class NoGrad(Remedy):
    """`no-grad`: models in evaluation mode are called without gradients."""

    waits_for = "no model was called in evaluation mode with gradients on"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.calls = 0
        self.free = 0
        moments.around_model(self.careful(self._around))
        moments.after_model(self.careful(self._after))

    def _around(self, model):
        if model.training or not self.torch.is_grad_enabled():
            return None
        self.calls += 1
        self.applied("calls of %s in evaluation mode run under torch.no_grad()" % name_of(model))
        # Tensors of inference mode could not be used in a later training step, and the memory is the same.
        return self.torch.no_grad()

    def _after(self, model, result):
        if not model.training:
            first = next(iter(tensors_in(self.torch, result)), None)
            self.free += first is not None and first.grad_fn is None

    def verify(self) -> None:
        if self.calls:
            self.evidence = "%d results of %d calls have no graph" % (self.free, self.calls)


class UntrainedNoGrad(NoGrad):
    """`untrained-no-grad`: models that no optimizer changes are called without gradients."""

    waits_for = "no model was called with gradients on that no optimizer changes"

    def attach(self, moments: Moments) -> None:
        self.program = moments.record.program
        self.needless = False
        moments.before_model(self.careful(self._before))
        super().attach(moments)

    def _before(self, model, args, kwargs):
        program = self.program
        trained = program is None or not program.has_optimizer() or program.trains(model)
        self.needless = not trained and makes_a_needless_graph(self.torch, model, (args, kwargs))

    def _around(self, model):
        if not self.needless or not self.torch.is_grad_enabled():
            return None
        self.calls += 1
        self.applied("calls of %s, which no optimizer changes, run under torch.no_grad()" % name_of(model))
        return self.torch.no_grad()

    def _after(self, model, result):
        if self.needless:
            first = next(iter(tensors_in(self.torch, result)), None)
            self.free += first is not None and first.grad_fn is None


class ZeroGradNone(Remedy):
    """`zero-grad-none`: `zero_grad` frees the gradients in place of filling them with zeros."""

    waits_for = "the program called no zero_grad"

    def attach(self, moments: Moments) -> None:
        self.freed = 0
        self.torch = moments.torch
        self._change(sys.modules["torch.optim.optimizer"].Optimizer)
        self._change(moments.torch.nn.Module)

    def _change(self, cls):
        original = cls.zero_grad
        remedy = self

        @functools.wraps(original)
        def zero_grad(self, set_to_none=True):
            if set_to_none:
                remedy.already("zero_grad is called with set_to_none=True")
            else:
                remedy.applied("zero_grad(set_to_none=False) is called with True")
            original(self, set_to_none=True)
            remedy.freed += 1

        cls.zero_grad = zero_grad

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED:
            self.evidence = "gradients freed %s" % plural(self.freed, "time")


class DetachLosses(Remedy):
    """`detach-losses`: tensors with a graph in lists and totals that the program keeps growing are detached in place.

    They are looked for at the end of each step and, where a program only evaluates, before each call of its model.
    """

    waits_for = "the program keeps no list or total of tensors with graphs"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.growing = Growing(moments.torch)
        self.detached = 0
        self.places: set[str] = set()
        moments.on_step(self.careful(self._boundary))
        moments.before_model(self.careful(self._before))

    def _before(self, model, args, kwargs):
        # In training several losses may be collected for one backward pass; they are left alone until the step.
        if not model.training:
            self._detach(sys._getframe(2))

    def _boundary(self, optimizer):
        self._detach(sys._getframe(2))

    def _detach(self, frame):
        for place in Search(self.torch).run(frame):
            if place.container is None:
                # A single loss is the program's business until it turns out to be a sum of all that came before; what goes
                # from step to step as a state is what the program computes with.
                if place.tensors[0].numel() != 1 or place.is_state or not self._is_total(place):
                    continue
            count = 0
            for tensor in place.tensors:
                if tensor.grad_fn is not None and not tensor.retains_grad:
                    try:
                        tensor.detach_()
                        count += 1
                    except RuntimeError:
                        # A view cannot be detached in place.
                        pass
            if count:
                self.detached += count
                self.places.add("%s (%s:%d)" % (place.name, place.file.rsplit("/", 1)[-1], line_of(place)))
                self.applied("tensors in %s are detached" % ", ".join(sorted(self.places)))

    def _is_total(self, place):
        return line_of(place) > 0

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED:
            self.evidence = "%s freed of their graphs" % plural(self.detached, "tensor")
