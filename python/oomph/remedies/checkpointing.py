"""Turns on gradient checkpointing: whole, of every n-th block, selective.

A model that knows how to checkpoint itself (transformers, diffusers, timm) is asked to. Of any other model the repeated
blocks are wrapped, as if its `forward` called `torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`.
"""

from __future__ import annotations

import functools
import sys

from oomph import _protocol as protocol
from oomph.program.blocks import find_blocks, long_sequences, own_layers, summed
from oomph.program.kinds import checkpoints_itself, is_a, name_of, unwrapped
from oomph.remedies.remedy import Refused, plural, version_of
from oomph.remedies.trainer import Argument, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Torch
    from oomph.moments import Moments


class Checkpointing(Argument):
    """`gradient-checkpointing`, `checkpointing-every-n-layers` (option `every`), `selective-checkpointing`."""

    waits_for = "no model was called in training mode"

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(name, options)
        self.every = max(1, int(self.option("every", 2 if name == "checkpointing-every-n-layers" else 1)))
        self.selective = name == "selective-checkpointing"
        self._seen: set[int] = set()
        self._again: set[int] = set()
        self._count = 0

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        self.attach_trainer(moments)
        moments.before_model(self.careful(self._model))

    def _options(self):
        """The arguments of torch's `checkpoint`."""
        options: dict[str, Any] = {"use_reentrant": False}
        if self.selective:
            options["context_fn"] = selective_contexts(self.torch)
        return options

    # -- the Trainer -------------------------------------------------------------------------------------------

    def fields(self, arguments: Any) -> dict[str, Any]:
        name = field(arguments, "activation_checkpointing", "gradient_checkpointing")
        if getattr(arguments, "gradient_checkpointing", None):
            # The library itself turns the older name into the newer one.
            name = "gradient_checkpointing"
        wanted: dict[str, Any] = {name: True}
        if self.every > 1:
            if version_of(sys.modules["transformers"]) < (5, 23):
                raise Refused("the Trainer can checkpoint every n-th layer from transformers 5.23 on")
            wanted[name + "_kwargs"] = {"every_n_layers": self.every}
        if self.selective:
            wanted[name + "_kwargs"] = self._options()
        return wanted

    # -- a model that the program calls ------------------------------------------------------------------------

    def _model(self, model, args, kwargs):
        if id(model) in self._seen or not model.training or not self.torch.is_grad_enabled():
            return
        self._seen.add(id(model))
        model = unwrapped(model)
        if self.moments.trainer_seen or self._by_itself(model):
            self._watch(own_layers(model))
            return
        found = [(path, blocks[:: self.every]) for path, blocks in find_blocks(self.torch, model)]
        sequences = [] if found or self.every > 1 or self.selective else long_sequences(self.torch, model)
        for _, blocks in found:
            for block in blocks:
                self._wrap(block)
            self._watch(blocks)
        for _, sequence in sequences:
            self._wrap_sequence(sequence)
            self._watch([sequence])
        if found:
            self.applied(summed(found, model) + " run under checkpointing" + (", selectively" if self.selective else ""))
        elif sequences:
            names = ", ".join(path or type(model).__name__ for path, _ in sequences[:3])
            self.applied("the layers of %s run in checkpointed segments" % names)
        else:
            self.refused("%s has no repeated blocks to checkpoint" % name_of(model))

    def _by_itself(self, model):
        """Ask a model of a library to checkpoint itself; say whether it does now."""
        if is_a(model, "transformers.modeling_utils", "PreTrainedModel"):
            able = model.supports_gradient_checkpointing
            ask = self._ask_transformers
        elif is_a(model, "diffusers.models.modeling_utils", "ModelMixin"):
            able = model._supports_gradient_checkpointing and self.every == 1 and not self.selective
            ask = lambda one: one.enable_gradient_checkpointing()
        else:
            able = hasattr(model, "set_grad_checkpointing") and self.every == 1 and not self.selective
            ask = lambda one: one.set_grad_checkpointing(True)
        if not able:
            return False
        if checkpoints_itself(model):
            self.already("%s already checkpoints its blocks" % name_of(model))
            return True
        ask(model)
        layers = own_layers(model)
        self.applied("%s checkpoints %s" % (name_of(model), plural(len(layers), "block") if layers else "its blocks"))
        return True

    def _ask_transformers(self, model):
        enable = getattr(model, "activation_checkpointing_enable", None)
        if enable is not None:
            enable(activation_checkpointing_kwargs=self._options(), every_n_layers=self.every)
        elif self.every == 1:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=self._options())
        else:
            raise Refused("this version of transformers cannot checkpoint every n-th layer")
        if hasattr(model.config, "use_cache"):
            model.config.use_cache = False
        # With frozen embeddings nothing would ask the recomputed blocks for gradients.
        if any(not parameter.requires_grad for parameter in model.parameters()):
            model.enable_input_require_grads()

    def _wrap(self, block):
        from torch.utils.checkpoint import checkpoint

        original = block.forward
        options = self._options()
        grad_enabled = self.torch.is_grad_enabled

        @functools.wraps(original)
        def forward(*args, **kwargs):
            if block.training and grad_enabled():
                return checkpoint(original, *args, **options, **kwargs)
            return original(*args, **kwargs)

        block.forward = forward

    def _wrap_sequence(self, sequence):
        from torch.utils.checkpoint import checkpoint_sequential

        original = sequence.forward
        segments = max(2, round(len(sequence) ** 0.5))
        parts = list(sequence)
        grad_enabled = self.torch.is_grad_enabled

        @functools.wraps(original)
        def forward(value):
            if sequence.training and grad_enabled():
                return checkpoint_sequential(parts, segments, value, use_reentrant=False)
            return original(value)

        sequence.forward = forward

    # -- verification ------------------------------------------------------------------------------------------

    def _watch(self, blocks):
        """Count the blocks of which a part is called again while a backward pass runs."""
        for block in blocks:
            self._count += 1
            parts = list(block.children())
            handles: list[Any] = []

            def recomputed(part, args, block=id(block), handles=handles):  # noqa: B008 (each block has its own)
                if self.moments.in_backward():
                    self._again.add(block)
                    for handle in handles:
                        handle.remove()

            handles.extend(part.register_forward_pre_hook(recomputed) for part in parts)

    def verify(self) -> None:
        if self.state in (protocol.REMEDY_APPLIED, protocol.REMEDY_ALREADY) and self._again:
            self.evidence = "%d of %d blocks recomputed in backward" % (len(self._again), self._count)
        elif self.state == protocol.REMEDY_APPLIED and self._count and self.moments.steps_seen:
            self.failed("no block was computed again in the backward pass")


def selective_contexts(torch: Torch) -> Callable[..., Any]:
    """Contexts that keep the results of matrix products and attention, and compute the rest again."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    names = (
        "mm", "bmm", "addmm", "convolution", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention_for_cpu", "_flash_attention_forward",
    )  # fmt: skip
    kept = [getattr(torch.ops.aten, name).default for name in names if hasattr(torch.ops.aten, name)]
    return functools.partial(create_selective_checkpoint_contexts, kept)
