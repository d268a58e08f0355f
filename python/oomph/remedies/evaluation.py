"""Evaluation that keeps less: what the Trainer gathers is reduced before it is gathered."""

from oomph.remedies.remedy import Remedy


class LogitsPreprocessing(Remedy):
    """`logits-preprocessing`: the Trainer keeps the best class of each row of logits in place of the row."""

    waits_for = "the program made no Trainer"

    def attach(self, moments):
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

    def verify(self):
        if self.before:
            self.evidence = "%d bytes of logits became %d" % (self.before, self.after)


class LastTokenLogits(Remedy):
    """`last-token-logits`: calls without labels and gradients compute the logits of the last token only."""

    waits_for = "no model of transformers was called without labels and gradients"

    def attach(self, moments):
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
        if self.state == "applied" and logits is not None and logits.dim() == 3:
            self.evidence = "logits of shape %s" % list(logits.shape)
