"""Replaces attention that keeps its scores: SDPA or FlashAttention in place of the eager form."""

from __future__ import annotations

import sys

from oomph.program.kinds import is_a, name_of, unwrapped
from oomph.remedies.remedy import Refused, Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Model
    from oomph.moments import Moments


class Attention(Remedy):
    """`sdpa` and `flash-attention`: the attention of a model of transformers is set before its first call.

    Without the package of FlashAttention SDPA stands for it, which takes the same bytes.
    """

    waits_for = "no model of transformers was called"

    def attach(self, moments: Moments) -> None:
        self.models: list[Model] = []
        self._seen: set[int] = set()
        moments.before_model(self.careful(self._called))

    def _called(self, model, args, kwargs):
        if id(model) in self._seen:
            return
        self._seen.add(id(model))
        model = unwrapped(model)
        if not is_a(model, "transformers.modeling_utils", "PreTrainedModel"):
            self.refused("%s is not a transformers model, so its attention cannot be exchanged" % name_of(model))
            return
        now = model.config._attn_implementation
        wanted = "sdpa"
        if self.name == "flash-attention" and has("flash_attn"):
            wanted = "flash_attention_2"
        self.models.append(model)
        if now == wanted or now.startswith("flash"):
            self.already("%s computes its attention with %s" % (name_of(model), now))
            return
        if not getattr(model, "_supports_sdpa", True):
            raise Refused("%s has no attention but the eager one" % name_of(model))
        if not hasattr(model, "set_attn_implementation"):
            raise Refused("this version of transformers cannot exchange the attention of a model that is made")
        model.set_attn_implementation(wanted)
        self.applied("%s: attention %s -> %s" % (name_of(model), now, wanted))

    def verify(self) -> None:
        if self.models:
            kinds = sorted({str(model.config._attn_implementation) for model in self.models})
            self.evidence = "config._attn_implementation is " + ", ".join(kinds)


def has(package: str) -> bool:
    """Say whether a package can be imported, without importing it."""
    import importlib.util

    return package in sys.modules or importlib.util.find_spec(package) is not None
