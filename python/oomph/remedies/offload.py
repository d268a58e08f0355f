"""Keeps parts of a model in host memory until they are needed."""

from __future__ import annotations

import functools

from oomph import hook
from oomph.remedies.remedy import Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Pipeline, Torch
    from oomph.moments import Moments

_METHODS = {
    "model-cpu-offload": "enable_model_cpu_offload",
    "sequential-cpu-offload": "enable_sequential_cpu_offload",
    "group-offload": "enable_group_offload",
}


class PipelineOffload(Remedy):
    """`model-cpu-offload`, `sequential-cpu-offload`, `group-offload`: in place of the pipeline's `.to("cuda")`.

    A pipeline that never gets one, because its parts were made on the card, is switched before its first call.
    """

    waits_for = "no pipeline of diffusers was moved to a card or called"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.method = _METHODS[self.name]
        self.pipelines: dict[int, Pipeline] = {}
        self.onloads = 0
        self._busy = False
        hook.on_import("diffusers.pipelines.pipeline_utils", self._watch)
        moments.on_pipeline_call(self.careful(self._called))

    def _watch(self, module):
        cls = module.DiffusionPipeline
        original = cls.to
        remedy = self

        @functools.wraps(original)
        def to(self, *args, **kwargs):
            device, rest, named = split_device(remedy.torch, args, kwargs)
            if device is None or device.type != "cuda" or remedy._busy:
                return original(self, *args, **kwargs)
            if rest or named:
                original(self, *rest, **named)
            remedy.careful(remedy._enable)(self, device)
            return self if id(self) in remedy.pipelines else original(self, *args, **kwargs)

        cls.to = to

    def _called(self, pipeline, args, kwargs):
        if id(pipeline) not in self.pipelines and pipeline.device.type == "cuda":
            self._enable(pipeline, pipeline.device)

    def _enable(self, pipeline, device):
        if id(pipeline) in self.pipelines:
            return
        self._busy = True
        try:
            enable = getattr(pipeline, self.method)
            if self.name == "group-offload":
                if any(on_card(part) for part in pipeline.components.values()):
                    pipeline.to("cpu")
                kept = {"exclude_modules": ["vae"]} if self._upcasts(pipeline) else {}
                stream = bool(self.option("use_stream", True))
                kind = self.option("offload_type", "leaf_level")
                enable(onload_device=device, offload_type=kind, use_stream=stream, **kept)
            else:
                kept = {}
                enable(device=device)
        finally:
            self._busy = False
        self.pipelines[id(pipeline)] = pipeline
        given = ", ".join("%s=%r" % pair for pair in kept.items())
        self.applied("%s.%s(%s)" % (type(pipeline).__name__, self.method, given))

    def _upcasts(self, pipeline):
        """Say whether the pipeline makes its VAE one of 32 bits to decode: groups would bring back the 16 bits of before."""
        vae = getattr(pipeline, "vae", None)
        half = getattr(vae, "dtype", None) == self.torch.float16
        return half and bool(getattr(getattr(vae, "config", None), "force_upcast", False))

    def verify(self) -> None:
        away = hooked = 0
        for pipeline in self.pipelines.values():
            for part in pipeline.components.values():
                if isinstance(part, self.torch.nn.Module):
                    hooked += any(
                        hasattr(module, "_hf_hook") or hasattr(module, "_diffusers_hook") for module in part.modules()
                    )
                    away += not on_card(part)
        if hooked:
            self.evidence = "%d parts have hooks that bring them to the card, %d are away now" % (hooked, away)
        elif self.pipelines:
            self.failed("no part of the pipeline has a hook that brings it to the card")


def on_card(part: Any) -> bool:
    """Say whether any parameter of a pipeline's part is on a card."""
    return hasattr(part, "parameters") and any(parameter.is_cuda for parameter in part.parameters())


def split_device(torch: Torch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """Separate the device from the other arguments of `to`."""
    device = kwargs.get("device")
    named = {name: value for name, value in kwargs.items() if name != "device"}
    rest = []
    for value in args:
        if device is None and isinstance(value, (str, torch.device)):
            device = value
        else:
            rest.append(value)
    return (torch.device(device) if device is not None else None), rest, named
