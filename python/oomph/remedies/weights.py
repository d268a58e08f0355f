"""Holds weights in fewer bits, and trains small matrices in their place: bitsandbytes and PEFT.

A model that is loaded by name is given a `quantization_config`. One that the program makes itself gets quantized layers
in place of its linear ones before it goes to the card. Adapters are added to the model that the program trains, when
its Trainer or its optimizer is made.
"""

from __future__ import annotations

import sys

from oomph import _protocol as protocol
from oomph.program.kinds import is_a, largest_model, library_of, name_of, on_a_card, unwrapped
from oomph.remedies.remedy import Refused, Remedy, require

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oomph._protocol import AppliedRemedy
    from oomph._types import Model, Torch
    from oomph.moments import Moments


class Quantized(Remedy):
    """`weights-nf4`, `weights-int8`, `double-quant`, and the frozen half of `qlora`."""

    waits_for = "no model was loaded by name or moved to a card"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.models: list[Model] = []
        self._seen: set[int] = set()
        self.bits = 8 if self.name == "weights-int8" else 4
        self.double = bool(self.option("double_quant", self.name == "double-quant"))
        moments.on_pretrained(before=self.careful(self._loading), after=self.careful(self._loaded))
        moments.before_move(self.careful(self._moving))
        moments.on_pipeline(self.careful(self._pipeline))
        moments.before_model(self.careful(self._called))

    # -- loaded by name ----------------------------------------------------------------------------------------

    def _loading(self, cls, kwargs):
        given = kwargs.get("quantization_config")
        if given is not None:
            if self.name == "double-quant" and getattr(given, "load_in_4bit", False):
                given.bnb_4bit_use_double_quant = True
                self.applied("bnb_4bit_use_double_quant=True in the program's quantization_config")
            else:
                self.already("the program gives a quantization_config")
            return
        if cls.__module__.startswith("diffusers.models.autoencoders"):
            return
        require("bitsandbytes", "weights in %d bits" % self.bits)
        package = "diffusers" if cls.__module__.startswith("diffusers") else "transformers"
        kwargs["quantization_config"] = self._config(sys.modules[package].BitsAndBytesConfig)
        self.applied("from_pretrained of %s is given a BitsAndBytesConfig of %d bits" % (cls.__name__, self.bits))

    def _config(self, kind):
        if self.bits == 8:
            return kind(load_in_8bit=True)
        return kind(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=self.torch.bfloat16,
            bnb_4bit_use_double_quant=self.double,
        )  # fmt: skip

    def _loaded(self, model, kwargs):
        if kwargs.get("quantization_config") is None:
            return
        self._seen.update(id(module) for module in model.modules())
        self.models.append(model)
        plain = model.to

        def to(*args, **kwargs):
            # It is on the card already, and 8-bit models refuse to be moved.
            try:
                return plain(*args, **kwargs)
            except ValueError:
                return model

        model.__dict__["to"] = to
        model.__dict__["cuda"] = lambda device=None: model

    # -- made by the program -----------------------------------------------------------------------------------

    def _pipeline(self, pipeline):
        for name in ("transformer", "transformer_2", "unet", "text_encoder", "text_encoder_2", "text_encoder_3"):
            part = getattr(pipeline, name, None)
            if isinstance(part, self.torch.nn.Module):
                self._convert(part)

    def _moving(self, model):
        self._convert(model)

    def _called(self, model, args, kwargs):
        if id(model) not in self._seen and on_a_card(model) and any(True for _ in linears(self.torch, model)):
            self._seen.add(id(model))
            self.refused("the weights of %s were made on the card, so they were there in full before" % name_of(model))

    def _convert(self, model):
        if id(model) in self._seen or library_of(model) == "diffusers" and "Autoencoder" in name_of(model):
            return
        self._seen.update(id(module) for module in model.modules())
        places = list(linears(self.torch, model))
        if not places:
            return
        bnb = require("bitsandbytes", "weights in %d bits" % self.bits)
        if on_a_card(model):
            raise Refused("the weights of %s were made on the card, so they were there in full before" % name_of(model))
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        count = 0
        for parent, name, layer in places:
            if layer is not head:
                setattr(parent, name, self._layer(bnb, layer))
                count += 1
        model.is_quantized = True
        setattr(model, "is_loaded_in_%dbit" % self.bits, True)
        self._seen.update(id(module) for module in model.modules())
        self.models.append(model)
        self.applied("%d linear layers of %s hold their weights in %d bits" % (count, name_of(model), self.bits))

    def _layer(self, bnb, layer):
        # Conv1D of transformers is a linear layer that holds its weights the other way round.
        weight = layer.weight.data
        weight = weight if hasattr(layer, "in_features") else weight.t().contiguous()
        width, height = weight.shape[1], weight.shape[0]
        bias = layer.bias is not None
        if self.bits == 4:
            new = bnb.nn.Linear4bit(
                width, height, bias=bias, compute_dtype=self.torch.bfloat16, compress_statistics=self.double,
                quant_type="nf4", device="meta",
            )  # fmt: skip
            new.weight = bnb.nn.Params4bit(weight, requires_grad=False, compress_statistics=self.double, quant_type="nf4")
        else:
            new = bnb.nn.Linear8bitLt(width, height, bias=bias, has_fp16_weights=False, threshold=6.0, device="meta")
            new.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
        if bias:
            new.bias = self.torch.nn.Parameter(layer.bias.data, requires_grad=False)
        new.train(layer.training)
        return new

    def quantized_bytes(self) -> int:
        """Bytes of weights that are held in integers of one byte, whole or halved."""
        return sum(
            parameter.nbytes for model in self.models for parameter in model.parameters()
            if parameter.dtype in (self.torch.uint8, self.torch.int8)
        )  # fmt: skip

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED:
            size = self.quantized_bytes()
            self.evidence = "%.1f MiB of weights in %d bits" % (size / 2.0**20, self.bits) if size else None


def linears(torch: Torch, model: Model) -> Iterator[tuple[Model, str, Model]]:
    """The linear layers of a model that are not quantized: (parent, name, layer)."""
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):
            if type(layer) is torch.nn.Linear or type(layer).__name__ == "Conv1D" and hasattr(layer, "nf"):
                yield parent, name, layer


class Lora(Remedy):
    """`lora` and `qlora`: adapters next to the frozen weights of the model that the program trains."""

    waits_for = "the program made no Trainer and no optimizer"

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(name, options)
        self.quantized = Quantized(name, options) if name == "qlora" else None
        self.models: list[Model] = []
        self.frozen: set[int] = set()

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        require("peft", "LoRA")
        if self.quantized is not None:
            require("bitsandbytes", "QLoRA")
            self.quantized.attach(moments)
        moments.on_trainer(before=self.careful(self._trainer))
        moments.before_optimizer(self._optimizer)

    def _trainer(self, given):
        model = given.get("model")
        if model is not None and given.get("peft_config") is None:
            self._adapt(unwrapped(model))

    def _optimizer(self, parameters):
        """Adapters take the place of the weights that an optimizer was meant to train."""
        groups = parameters if parameters and isinstance(parameters[0], dict) else [{"params": parameters}]
        given = [parameter for group in groups for parameter in group["params"]]
        given = [parameter[1] if isinstance(parameter, tuple) else parameter for parameter in given]
        if any(hasattr(model, "_oomph_adapted") and self._trains(model, given) for model in self.models):
            return self._only_trained(parameters, groups)
        model = largest_model(self.torch, given)
        if model is None:
            return None
        before = {id(parameter) for parameter in given}
        self.careful(self._adapt)(unwrapped(model))
        if not any(one is unwrapped(model) for one in self.models):
            return None
        new = [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in before]
        return self._only_trained(parameters, groups, new)

    def _trains(self, model, given):
        own = {id(parameter) for parameter in model.parameters()}
        return any(id(parameter) in own for parameter in given)

    def _only_trained(self, parameters, groups, new=()):
        if not isinstance(parameters[0], dict):
            return [parameter for parameter in parameters if getattr(parameter, "requires_grad", True)] + list(new)
        changed = [dict(group, params=[one for one in group["params"] if one.requires_grad]) for group in groups]
        changed[0]["params"] = changed[0]["params"] + list(new)
        return [group for group in changed if group["params"]]

    def _adapt(self, model):
        peft = require("peft", "LoRA")
        if hasattr(model, "peft_config") or any("lora_" in name for name, _ in model.named_parameters()):
            self.already("%s has adapters" % name_of(model))
            return
        rank = int(self.option("rank", 16))
        targets = self.option("target_modules", "all-linear")
        transformers = is_a(model, "transformers.modeling_utils", "PreTrainedModel")
        if targets == "all-linear" and not transformers:
            targets = sorted({path for path, layer in model.named_modules() if is_linear(self.torch, layer)})
            if not targets:
                raise Refused("%s has no linear layers to adapt" % name_of(model))
        config = peft.LoraConfig(r=rank, lora_alpha=int(self.option("alpha", 2 * rank)), target_modules=targets)
        if transformers and hasattr(model, "add_adapter"):
            model.add_adapter(config)
        else:
            peft.inject_adapter_in_model(config, model)
        cast = getattr(sys.modules.get("peft.tuners.tuners_utils"), "cast_adapter_dtype", None)
        if cast is not None:
            cast(model, "default", autocast_adapter_dtype=True)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("lora_" in name) if parameter.is_floating_point() else None
        model._oomph_adapted = True
        self.models.append(model)
        trained, whole = counts(model)
        self.applied("%s trains adapters of rank %d: %d of %d parameters" % (name_of(model), rank, trained, whole))

    def report(self) -> AppliedRemedy:
        if self.quantized is not None and self.state == protocol.REMEDY_APPLIED and self.quantized.state != protocol.REMEDY_APPLIED:
            if self.quantized.state == protocol.REMEDY_REFUSED:
                self.failed(self.quantized.what)
        return super().report()

    def verify(self) -> None:
        if self.state != protocol.REMEDY_APPLIED:
            return
        with_gradient = sum(
            1 for model in self.models for name, parameter in model.named_parameters() if parameter.grad is not None or "lora_" in name
        )
        frozen = [parameter for model in self.models for parameter in model.parameters() if not parameter.requires_grad]
        wide = sum(1 for parameter in frozen if parameter.grad is not None)
        self.evidence = "%d adapter matrices are trained, %d frozen weights have gradients" % (with_gradient, wide)
        if self.quantized is not None:
            self.evidence += "; %.1f MiB of weights in 4 bits" % (self.quantized.quantized_bytes() / 2.0**20)


def is_linear(torch: Torch, layer: Model) -> bool:
    """Say whether this layer can have adapters."""
    return isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


def counts(model: Model) -> tuple[int, int]:
    """Trained and all parameters; one in 4 bits counts as two a byte, as it holds two."""
    trained = whole = 0
    for parameter in model.parameters():
        size = parameter.numel() * (2 if type(parameter).__name__ == "Params4bit" and parameter.itemsize == 1 else 1)
        whole += size
        trained += size if parameter.requires_grad else 0
    return trained, whole
