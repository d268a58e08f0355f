"""Changes diffusion pipelines: how the VAE decodes, how attention is computed, which text encoders stay on the card."""

from __future__ import annotations

import dataclasses
import functools
import inspect

from oomph import _protocol as protocol
from oomph import hook
from oomph.remedies.remedy import Refused, Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Model, Pipeline
    from oomph.moments import Moments


class Vae(Remedy):
    """`vae-slicing` and `vae-tiling`: the method of every VAE that the program makes is called."""

    waits_for = "the program made no VAE of diffusers"

    def __init__(self, name: str, options: dict[str, Any], kind: str) -> None:
        super().__init__(name, options)
        self.kind = kind
        self.vaes: list[Any] = []
        self.parts: dict[tuple[int, ...] | None, int] = {}

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        hook.on_import("diffusers.models.autoencoders.vae", self._watch_mixin)
        # Before diffusers 0.36 each class has the methods itself.
        hook.on_import("diffusers.models.autoencoders.autoencoder_kl", lambda module: self._watch(module.AutoencoderKL))

    def _watch_mixin(self, module):
        mixin = getattr(module, "AutoencoderMixin", None)
        if mixin is None:
            return
        remedy = self

        def __init_subclass__(cls, **kwargs):
            super(mixin, cls).__init_subclass__(**kwargs)
            remedy._watch(cls)

        mixin.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[arg-type]
        for cls in mixin.__subclasses__():
            self._watch(cls)

    def _watch(self, cls):
        original = cls.__dict__.get("__init__")
        if original is None or getattr(original, "_oomph_" + self.kind, False):
            return
        remedy = self

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            if type(self) is cls:
                remedy.careful(remedy._made)(self)

        setattr(__init__, "_oomph_" + self.kind, True)
        cls.__init__ = __init__

    def _made(self, vae):
        enable = getattr(vae, "enable_" + self.kind, None)
        if enable is None or not hasattr(vae, "use_" + self.kind):
            raise Refused("%s has no %s" % (type(vae).__name__, self.kind))
        if getattr(vae, "use_" + self.kind):
            self.already("%s.use_%s is set" % (type(vae).__name__, self.kind))
        else:
            enable()
            self.applied("%s.enable_%s()" % (type(vae).__name__, self.kind))
        self.vaes.append(vae)
        decoder = getattr(vae, "decoder", None)
        if isinstance(decoder, self.torch.nn.Module):
            decoder.register_forward_pre_hook(self._decoding)

    def _decoding(self, module, args):
        shape = tuple(args[0].shape) if args and hasattr(args[0], "shape") else None
        self.parts[shape] = self.parts.get(shape, 0) + 1

    def verify(self) -> None:
        if self.state not in (protocol.REMEDY_APPLIED, protocol.REMEDY_ALREADY):
            return
        lost = [vae for vae in self.vaes if not getattr(vae, "use_" + self.kind)]
        if lost:
            self.failed("the program has switched it off again")
        elif self.parts:
            shape, count = max(self.parts.items(), key=lambda item: item[1])
            self.evidence = "vae.use_%s is True; %d decodings of %s" % (self.kind, sum(self.parts.values()), list(shape or ()))
        else:
            self.evidence = "vae.use_%s is True" % self.kind


class AttentionSlicing(Remedy):
    """`attention-slicing` (option `slice_size`): the pipeline's method is called."""

    waits_for = "the program made no pipeline of diffusers"

    def attach(self, moments: Moments) -> None:
        self.pipelines: list[Pipeline] = []
        moments.on_pipeline(self.careful(self._pipeline))

    def _pipeline(self, pipeline):
        if not hasattr(pipeline, "enable_attention_slicing"):
            raise Refused("%s has no attention slicing" % type(pipeline).__name__)
        size = self.option("slice_size", "auto")
        pipeline.enable_attention_slicing(size)
        self.applied("%s.enable_attention_slicing(%r)" % (type(pipeline).__name__, size))
        self.pipelines.append(pipeline)

    def verify(self) -> None:
        kinds = set()
        for pipeline in self.pipelines:
            for part in pipeline.components.values():
                for processor in getattr(part, "attn_processors", {}).values():
                    if "Sliced" in type(processor).__name__:
                        kinds.add(type(processor).__name__)
        if kinds:
            self.evidence = "processors: " + ", ".join(sorted(kinds))
        elif self.state == protocol.REMEDY_APPLIED:
            self.failed("no part of the pipeline computes its attention in slices")


class OneImage(Remedy):
    """`one-image-at-a-time`: a call for several images becomes as many calls for one."""

    waits_for = "no pipeline of diffusers was called for several images"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.split = 0
        moments.on_pipeline(self.careful(self._pipeline))

    def _pipeline(self, pipeline):
        cls = type(pipeline)
        original = cls.__call__
        if getattr(original, "_oomph_single", False):
            return
        remedy = self

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            singles = remedy.careful(remedy._singles)(original, self, args, kwargs)
            if not singles:
                return original(self, *args, **kwargs)
            remedy.split += len(singles)
            return remedy._joined([original(**given) for given in singles])

        __call__._oomph_single = True  # type: ignore[attr-defined]
        cls.__call__ = __call__

    def _singles(self, original, pipeline, args, kwargs):
        """The arguments of each call for one image; nothing where it is one already."""
        given = dict(inspect.signature(original).bind(pipeline, *args, **kwargs).arguments)
        given.update(given.pop("kwargs", {}))
        prompts = given.get("prompt")
        prompts = list(prompts) if isinstance(prompts, (list, tuple)) else [prompts]
        images = int(given.get("num_images_per_prompt") or 1)
        if len(prompts) * images <= 1:
            return []
        whole = [name for name, value in given.items() if self._goes_with_the_batch(name, value)]
        if whole:
            raise Refused("the call gives %s for all images at once" % " and ".join(sorted(whole)))
        one = dict(given, num_images_per_prompt=1) if "num_images_per_prompt" in given else given
        calls = [dict(one, prompt=prompt) for prompt in prompts for _ in range(images)]
        self.applied("%s is called %d times for one image in place of once for %d" % (
            type(pipeline).__name__, len(calls), len(calls),
        ))  # fmt: skip
        return calls

    def _goes_with_the_batch(self, name, value):
        """Say whether an argument belongs to the whole batch, so that a call for one image would need a part of it."""
        return name not in ("self", "prompt") and isinstance(value, (self.torch.Tensor, list)) and name not in (
            "timesteps", "sigmas", "callback_on_step_end_tensor_inputs"
        )  # fmt: skip

    def _joined(self, results):
        first = results[0]
        if isinstance(first, tuple) and not hasattr(first, "__dataclass_fields__"):
            return tuple(self._one_of(list(parts)) for parts in zip(*results))
        names = [field.name for field in dataclasses.fields(first)]
        return type(first)(**{name: self._one_of([getattr(one, name) for one in results]) for name in names})

    def _one_of(self, parts):
        first = parts[0]
        if isinstance(first, list):
            return [one for part in parts for one in part]
        if isinstance(first, self.torch.Tensor):
            return self.torch.cat(parts)
        if hasattr(first, "__array__"):
            import numpy

            return numpy.concatenate(parts)
        return first

    def verify(self) -> None:
        if self.split:
            self.evidence = "%d images made one at a time" % self.split


class TextEncodersAway(Remedy):
    """`text-encoders-away`: the text encoders are on the card only while a prompt is encoded."""

    waits_for = "the program made no pipeline of diffusers that encodes prompts"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moved = 0
        self.bytes = 0
        moments.on_pipeline(self.careful(self._pipeline))

    def _pipeline(self, pipeline):
        cls = type(pipeline)
        encode = getattr(cls, "encode_prompt", None)
        if encode is None:
            raise Refused("%s has no encode_prompt" % cls.__name__)
        if getattr(encode, "_oomph_away", False):
            return
        remedy = self

        @functools.wraps(encode)
        def encode_prompt(self, *args, **kwargs):
            device = self._execution_device
            encoders = remedy._encoders(self)
            remedy._move(encoders, device)
            try:
                return encode(self, *args, **kwargs)
            finally:
                remedy._away(encoders)

        encode_prompt._oomph_away = True  # type: ignore[attr-defined]
        cls.encode_prompt = encode_prompt
        self.applied("the text encoders of %s leave the card after encode_prompt" % cls.__name__)

    def _encoders(self, pipeline):
        return [
            part for name, part in pipeline.components.items()
            if name.startswith("text_encoder") and isinstance(part, self.torch.nn.Module)
        ]  # fmt: skip

    def _move(self, encoders, device):
        for encoder in encoders:
            if next(encoder.parameters()).device.type != device.type:
                encoder.to(device)

    def _away(self, encoders):
        for encoder in encoders:
            if next(encoder.parameters()).device.type == "cuda":
                self.bytes = sum(parameter.nbytes for parameter in encoder.parameters()) + self.bytes * (self.moved > 0)
                encoder.to("cpu")
                self.moved += 1

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED and self.moved:
            self.evidence = "moved away %d times" % self.moved


class Fp8(Remedy):
    """`fp8-weights`: the denoiser stores its weights in fp8 and computes in the type that it had."""

    waits_for = "the program made no pipeline of diffusers"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.models: list[Model] = []
        moments.on_pipeline(self.careful(self._pipeline))

    def _pipeline(self, pipeline):
        for name in ("transformer", "transformer_2", "unet"):
            model = getattr(pipeline, name, None)
            if model is None:
                continue
            if not hasattr(model, "enable_layerwise_casting"):
                raise Refused("this version of diffusers has no layerwise casting")
            compute = next(model.parameters()).dtype
            model.enable_layerwise_casting(storage_dtype=self.torch.float8_e4m3fn, compute_dtype=compute)
            self.models.append(model)
            self.applied("%s stores its weights in float8_e4m3fn" % type(model).__name__)

    def verify(self) -> None:
        narrow = sum(parameter.nbytes for model in self.models for parameter in model.parameters() if parameter.itemsize == 1)
        if narrow:
            self.evidence = "%.1f MiB of weights in one byte each" % (narrow / 2.0**20)


class WithoutT5(Remedy):
    """`drop-t5`: Stable Diffusion 3 is loaded without its third text encoder."""

    waits_for = "the program loaded no pipeline of Stable Diffusion 3 by name"

    def attach(self, moments: Moments) -> None:
        hook.on_import("diffusers.pipelines.pipeline_utils", self._watch)

    def _watch(self, module):
        cls = module.DiffusionPipeline
        original = cls.__dict__["from_pretrained"].__func__
        remedy = self

        @functools.wraps(original)
        def from_pretrained(cls, *args, **kwargs):
            if "StableDiffusion3" in cls.__name__:
                kwargs.update(text_encoder_3=None, tokenizer_3=None)
                remedy.applied("%s is loaded with text_encoder_3=None" % cls.__name__)
            pipeline = original(cls, *args, **kwargs)
            if getattr(pipeline, "text_encoder_3", 0) is None:
                remedy.evidence = "pipe.text_encoder_3 is None"
            return pipeline

        cls.from_pretrained = classmethod(from_pretrained)
