"""Makes evaluation keep less: what the Trainer gathers is reduced before it is gathered."""

from __future__ import annotations

import sys

from oomph import _protocol as protocol
from oomph import sites
from oomph.program.kinds import name_of
from oomph.remedies.remedy import Remedy
from oomph.remedies.trainer import Argument, accumulated_evaluation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph.moments import Moments


class EvalAccumulation(Argument):
    """`eval-accumulation` (option `steps`): the Trainer moves what it gathers to the CPU every so many steps.

    In a loop of the program's own the results of each call leave the card, as in `results.append(model(x).cpu())`.
    """

    waits_for = "the program made no TrainingArguments and called no model in evaluation mode"

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(name, options, accumulated_evaluation)
        self.moved = 0

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        self.attach_trainer(moments)
        moments.after_model(self.careful(self._gave))

    def _gave(self, model, result):
        if self.moments.trainer_seen or model.training or self.torch.is_grad_enabled():
            return None
        # What a library calls, it goes on to work with.
        frame = sys._getframe()
        while frame.f_back is not None and sites.is_own_file(frame.f_code.co_filename):
            frame = frame.f_back
        if not sites.is_user_file(frame.f_code.co_filename):
            return None
        from torch.utils._pytree import tree_map

        moved = tree_map(self._to_host, result)
        self.applied("what %s gives is moved to the CPU at once" % name_of(model))
        return moved

    def _to_host(self, value):
        if isinstance(value, self.torch.Tensor) and value.is_cuda:
            self.moved += value.nbytes
            return value.cpu()
        return value

    def verify(self) -> None:
        if self.moved:
            self.evidence = "%d bytes of results moved" % self.moved


class LogitsPreprocessing(Remedy):
    """`logits-preprocessing`: the Trainer keeps the best class of each row of logits in place of the row."""

    waits_for = "the program made no Trainer"

    def attach(self, moments: Moments) -> None:
        self.before = self.after = 0
        moments.on_trainer(before=self.careful(self._trainer))

    def _trainer(self, given):
        if given.get("preprocess_logits_for_metrics") is not None:
            self.already("the program gives a preprocess_logits_for_metrics of its own")
            return

        def best(logits, labels):
            logits = logits[0] if isinstance(logits, (tuple, list)) else logits
            result = logits.argmax(dim=-1)
            self.before += logits.nbytes
            self.after += result.nbytes
            return result

        given["preprocess_logits_for_metrics"] = best
        self.applied("preprocess_logits_for_metrics keeps logits.argmax(-1)")

    def verify(self) -> None:
        if self.before:
            self.evidence = "%d bytes of logits became %d" % (self.before, self.after)


class LastTokenLogits(Remedy):
    """`last-token-logits`: calls without labels and gradients compute the logits of the last token only."""

    waits_for = "no model of transformers was called without labels and gradients"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.calls = 0
        moments.before_model(self.careful(self._called))
        moments.after_model(self.careful(self._gave))

    def _called(self, model, args, kwargs):
        import inspect

        from oomph.program.kinds import is_a, unwrapped

        inner = unwrapped(model)
        if self.torch.is_grad_enabled() or kwargs.get("labels") is not None:
            return None
        if not is_a(inner, "transformers.modeling_utils", "PreTrainedModel"):
            return None
        names = inspect.signature(inner.forward).parameters
        name = next((name for name in ("logits_to_keep", "num_logits_to_keep") if name in names), None)
        if name is None:
            self.refused("%s computes all logits or none" % type(inner).__name__)
            return None
        if kwargs.get(name):
            self.already("the program passes %s" % name)
            return None
        self.applied("%s is called with %s=1" % (type(inner).__name__, name))
        return args, dict(kwargs, **{name: 1})

    def _gave(self, model, result):
        logits = getattr(result, "logits", None)
        if self.state == protocol.REMEDY_APPLIED and logits is not None and logits.dim() == 3:
            self.evidence = "logits of shape %s" % list(logits.shape)
