"""Computes cross-entropy over chunks of tokens, so that logits and their softmax never exist for all tokens at once.

Of a model of transformers that is given labels, the head is computed inside the loss, chunk by chunk and again in the
backward pass: hidden states of all tokens stay, logits do not. Any other cross-entropy of logits that the program has
made itself is computed in chunks too, with the gradient written in place of the softmax. Both are exact.
"""

from __future__ import annotations

import functools
import inspect

from oomph import _protocol as protocol
from oomph.program.kinds import is_a, name_of, unwrapped
from oomph.remedies.attention import has
from oomph.remedies.trainer import Argument, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Model, Tensor, Torch
    from oomph.moments import Moments


class ChunkedLoss(Argument):
    """`chunked-cross-entropy` (option `chunks`) and `fused-cross-entropy`, which is Liger's where that is installed."""

    waits_for = "the program computed no cross-entropy that could be chunked"

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(name, options)
        self.fused = name == "fused-cross-entropy"
        self.chunks = max(1, int(self.option("chunks", 8)))
        self.largest = 0
        self.whole = 0
        self._heads: dict[int, Any] = {}
        self._seen: set[int] = set()
        self._inside: Any = None
        self._liger = False

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        if self.fused and has("liger_kernel"):
            self.attach_trainer(moments)
        moments.before_model(self.careful(self._called))
        moments.after_model(self.careful(self._gave))
        self._replace_function()

    def fields(self, arguments: Any) -> dict[str, Any]:
        self._liger = True
        return {field(arguments, "use_liger_kernel"): True}

    def pieces(self, tokens: int, vocabulary: int, width: int) -> int:
        """Into how many chunks so many tokens go.

        The fused form has the chunks of Liger: as many tokens as make the logits about as large as the hidden states.
        """
        if not self.fused:
            return min(self.chunks, max(1, tokens))
        ratio = -(-vocabulary // max(1, width))
        size = 1 << max(0, -(-tokens // ratio) - 1).bit_length()
        return -(-tokens // size)

    # -- models of transformers --------------------------------------------------------------------------------

    def _called(self, model, args, kwargs):
        self._inside = None
        if self._liger or not model.training or not self.torch.is_grad_enabled():
            return
        inner = unwrapped(model)
        if not is_a(inner, "transformers.modeling_utils", "PreTrainedModel"):
            return
        if id(inner) not in self._seen:
            self._seen.add(id(inner))
            head = head_of(inner)
            if head is not None:
                self._heads[id(inner)] = head
                self._take_over(inner, head)
        if id(inner) in self._heads and kwargs.get("labels") is not None:
            self._inside = inner

    def _take_over(self, model, head):
        plain_head, plain_loss = head.forward, model.loss_function
        remedy = self

        @functools.wraps(plain_head)
        def forward(hidden):
            if remedy._inside is model and not remedy.moments.in_backward():
                return hidden
            return plain_head(hidden)

        @functools.wraps(plain_loss)
        def loss_function(logits, labels, vocab_size, *args, **kwargs):
            if remedy._inside is not model:
                return plain_loss(logits, labels, vocab_size, *args, **kwargs)
            remedy._inside = None
            return remedy._loss(plain_head, logits, labels, vocab_size, name_of(model), **kwargs)

        head.forward = forward
        model.loss_function = loss_function

    def _loss(
        self, head, hidden, labels, vocabulary, name, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **kwargs
    ):
        from torch.utils.checkpoint import checkpoint

        torch = self.torch
        if shift_labels is None:
            labels = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)
            shift_labels = labels[..., 1:].contiguous()
        width = hidden.shape[-1]
        hidden = hidden.reshape(-1, width)
        target = shift_labels.reshape(-1).to(hidden.device)
        plain = getattr(torch.nn.functional.cross_entropy, "_oomph_plain", torch.nn.functional.cross_entropy)

        def part(states, wanted):
            return plain(head(states).float(), wanted, ignore_index=ignore_index, reduction="sum")

        count = self.pieces(len(target), vocabulary, width)
        total: Any = None
        for states, wanted in zip(hidden.chunk(count), target.chunk(count)):
            self.largest = max(self.largest, len(wanted))
            loss = checkpoint(part, states, wanted, use_reentrant=False)
            total = loss if total is None else total + loss
        self.whole = max(self.whole, len(target))
        self.applied("logits and loss of %s are computed in %d chunks of tokens" % (name, count) + self._instead())
        items = num_items_in_batch
        if items is None:
            items = (target != ignore_index).sum()
        elif torch.is_tensor(items):
            items = items.to(total.device)
        return total / items

    def _instead(self):
        return ", as liger_kernel would, which is not installed" if self.fused else ""

    def _gave(self, model, result):
        """The logits are not there; what replaces them must not be taken for them."""
        self._inside = None
        if id(unwrapped(model)) in self._heads and self.largest and getattr(result, "loss", None) is not None:
            if hasattr(result, "logits") and model.training and self.torch.is_grad_enabled():
                result.logits = None

    # -- any other cross-entropy -------------------------------------------------------------------------------

    def _replace_function(self):
        torch = self.torch
        functional = torch.nn.functional
        plain = functional.cross_entropy
        chunked = chunked_cross_entropy(torch)
        remedy = self

        @functools.wraps(plain)
        def cross_entropy(
            input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
        ):
            simple = weight is None and size_average is None and reduce is None and not label_smoothing
            if (
                simple and reduction in ("mean", "sum") and input.dim() == 2 and target.dim() == 1 and input.requires_grad
                and not target.is_floating_point() and len(target) >= 2 * remedy.chunks and torch.is_grad_enabled()
            ):  # fmt: skip
                remedy.applied("torch.nn.functional.cross_entropy is computed in %d chunks" % remedy.chunks)
                remedy.largest = max(remedy.largest, -(-len(target) // remedy.chunks))
                remedy.whole = max(remedy.whole, len(target))
                return chunked.apply(input, target, ignore_index, reduction, remedy.chunks)
            return plain(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)

        cross_entropy._oomph_plain = plain  # type: ignore[attr-defined]
        functional.cross_entropy = cross_entropy

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED and self.largest:
            self.evidence = "at most %d of %d tokens have logits at a time" % (self.largest, self.whole)


def head_of(model: Model) -> Model | None:
    """The module that makes logits of hidden states, if the model does nothing else to them; else None."""
    get = getattr(model, "get_output_embeddings", None)
    head = get() if get is not None else None
    if head is None or not hasattr(model, "loss_function"):
        return None
    config = getattr(model.config, "get_text_config", lambda: model.config)()
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            return None
    try:
        source = inspect.getsource(inspect.unwrap(type(model).forward))
    except (OSError, TypeError):
        return None
    # Some models compute their loss with a function of their own, in which the hidden states would have no place.
    return head if "self.loss_function(" in source and ".float()" not in source else None


def chunked_cross_entropy(torch: Torch) -> Any:
    """An autograd function: the loss, and the gradient of the logits, over chunks of rows."""

    class ChunkedCrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: Tensor, target: Tensor, ignore_index: int, reduction: str, chunks: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float32, device=logits.device)
            for rows, wanted in zip(logits.chunk(chunks), target.chunk(chunks)):
                rows = rows.float()
                kept = wanted != ignore_index
                picked = rows.gather(1, wanted.clamp(min=0).unsqueeze(1)).squeeze(1)
                total += ((rows.logsumexp(1) - picked) * kept).sum()
            count = (target != ignore_index).sum() if reduction == "mean" else None
            ctx.save_for_backward(logits, target)
            ctx.facts = ignore_index, chunks, count
            result = total if count is None else total / count
            return result.to(logits.dtype) if not torch.is_autocast_enabled() else result

        @staticmethod
        def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None, None, None, None]:
            logits, target = ctx.saved_tensors
            ignore_index, chunks, count = ctx.facts
            scale = given.float() if count is None else given.float() / count
            gradient = torch.empty_like(logits)
            for rows, wanted, place in zip(logits.chunk(chunks), target.chunk(chunks), gradient.chunk(chunks)):
                part = rows.float().softmax(1)
                index = wanted.clamp(min=0).unsqueeze(1)
                part.scatter_add_(1, index, torch.full_like(index, -1, dtype=part.dtype))
                part.mul_(((wanted != ignore_index) * scale).unsqueeze(1))
                place.copy_(part)
            return gradient, None, None, None, None

    return ChunkedCrossEntropy
