"""Collects facts of models, batches and pipelines, each once."""

from __future__ import annotations

from oomph.looking import is_mapping
from oomph.program.blocks import find_blocks
from oomph.program.kinds import checkpoints_itself, is_a, library_of, name_of, unwrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oomph._types import Model, Pipeline, Tensor, Torch

_MOST_NODES = 50000
"""Nodes of a graph that are looked at."""


def facts_of_model(torch: Torch, model: Model) -> dict[str, Any]:
    """What a model is; sizes in bytes."""
    inner = unwrapped(model)
    config = getattr(inner, "config", None)
    whole = trainable = size = 0
    types: dict[str, int] = {}
    adapters = False
    for name, parameter in model.named_parameters():
        # One in 4 bits holds two weights in each byte.
        count = parameter.numel() * (2 if type(parameter).__name__ == "Params4bit" and parameter.itemsize == 1 else 1)
        whole += count
        trainable += count if parameter.requires_grad else 0
        size += parameter.nbytes
        adapters = adapters or "lora_" in name
        kind = str(parameter.dtype).replace("torch.", "")
        types[kind] = types.get(kind, 0) + count
    for buffer in model.buffers():
        size += buffer.nbytes
    text = getattr(config, "get_text_config", lambda: config)() if config is not None else None
    return {
        "class": name_of(inner),
        "library": library_of(inner),
        "parameters": whole,
        "trainable": trainable,
        "dtype": max(types, key=lambda kind: types[kind]) if types else None,
        "bytes": size,
        "blocks": [
            {"path": path, "class": type(blocks[0]).__name__, "count": len(blocks)}
            for path, blocks in find_blocks(torch, inner)[:20]
        ],
        "vocabulary": vocabulary_of(inner, text),
        "attention": attention_of(inner),
        "quantized": quantized(torch, inner),
        "checkpointing": checkpoints_itself(inner),
        "adapters": "lora" if adapters else None,
        "batch_norm": normalises_batches(torch, inner),
        "convolutional": is_convolutional(torch, inner),
    }


def vocabulary_of(model: Model, config: Any) -> int | None:
    """How many logits a language model computes for each token, or None."""
    get = getattr(model, "get_output_embeddings", None)
    try:
        head = get() if get is not None else None
    except Exception:
        # The method is the model's, and raises where the model has no head.
        head = None
    if head is None:
        return None
    size = getattr(config, "vocab_size", None)
    return int(size) if isinstance(size, int) else None


def attention_of(model: Model) -> str | None:
    """The attention of a model of transformers."""
    if not is_a(model, "transformers.modeling_utils", "PreTrainedModel"):
        return None
    kind = getattr(model.config, "_attn_implementation", None)
    return kind if isinstance(kind, str) else None


def quantized(torch: Torch, model: Model) -> str | None:
    """`4bit` or `8bit` where layers of bitsandbytes are found."""
    for module in model.modules():
        kind = type(module).__name__
        if kind == "Linear4bit":
            return "4bit"
        if kind == "Linear8bitLt":
            return "8bit"
    return None


def normalises_batches(torch: Torch, model: Model) -> bool:
    """Whether a module takes the statistics of a batch."""
    return any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())


def is_convolutional(torch: Torch, model: Model) -> bool:
    """Whether a model is made of convolutions and has no attention."""
    kinds = {type(module) for module in model.modules()}
    attends = any(word in kind.__name__ for kind in kinds for word in ("Attention", "Attn", "Transformer"))
    return not attends and any(issubclass(kind, torch.nn.modules.conv._ConvNd) for kind in kinds)


def makes_a_needless_graph(torch: Torch, model: Model, given: Any) -> bool:
    """Whether a call of a model that is not trained makes a graph that leads to nothing but its own weights."""
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Weights that were computed, as meta-learning has them, lead to those that they were computed from.
    own = bool(weights) and all(parameter.is_leaf for parameter in weights)
    return own and not any(tensor.requires_grad for tensor in tensors_in(torch, given))


def leads_elsewhere(torch: Torch, model: Model, result: Any) -> bool:
    """Whether the graph of a model's result leads to weights that are not its own, which a module may hold in a list."""
    own = {id(parameter) for parameter in model.parameters()}
    waiting = [tensor.grad_fn for tensor in tensors_in(torch, result) if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in own:
            return True
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def tensors_in(torch: Torch, value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The tensors in what a model is given, not very deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 3 and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(torch, part, depth + 1)
    elif depth < 3 and is_mapping(value):
        for part in value.values():
            yield from tensors_in(torch, part, depth + 1)


def shapes_of(torch: Torch, batch: Any) -> dict[str, list[int]]:
    """The shapes of a batch's tensors, by name or by place."""
    shapes: dict[str, list[int]] = {}

    def visit(name, value, depth):
        if len(shapes) >= 16 or depth > 2:
            return
        if isinstance(value, torch.Tensor):
            shapes[name or "0"] = list(value.shape)
        elif isinstance(value, (list, tuple)):
            for index, part in enumerate(value[:8]):
                visit("%s.%d" % (name, index) if name else str(index), part, depth + 1)
        elif is_mapping(value):
            for key, part in list(value.items())[:16]:
                visit("%s.%s" % (name, key) if name else str(key), part, depth + 1)

    visit("", batch, 0)
    return shapes


def facts_of_pipeline(pipeline: Pipeline, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a pipeline of diffusers is called for."""
    import inspect

    try:
        given = dict(inspect.signature(type(pipeline).__call__).bind(pipeline, *args, **kwargs).arguments)
    except TypeError:
        given = dict(kwargs)
    vae = getattr(pipeline, "vae", None)
    prompt, embeds = given.get("prompt"), given.get("prompt_embeds")
    embedded = getattr(embeds, "shape", None)
    prompts = len(prompt) if isinstance(prompt, (list, tuple)) else embedded[0] if embedded is not None else 1
    scale = getattr(pipeline, "vae_scale_factor", None)
    default = getattr(pipeline, "default_sample_size", None)
    usual = default * scale if isinstance(default, int) and isinstance(scale, int) else None
    denoiser = getattr(pipeline, "transformer", None) or getattr(pipeline, "unet", None)
    return {
        "class": type(pipeline).__name__,
        "images": prompts * int(given.get("num_images_per_prompt") or given.get("num_videos_per_prompt") or 1),
        "height": given.get("height") or usual,
        "width": given.get("width") or usual,
        "offload": offload_of(pipeline),
        "vae_slicing": bool(getattr(vae, "use_slicing", False)),
        "vae_tiling": bool(getattr(vae, "use_tiling", False)),
        "dtype": str(getattr(denoiser, "dtype", None)).replace("torch.", "") if denoiser is not None else None,
    }


def offload_of(pipeline: Pipeline) -> str | None:
    """Which of accelerate's hooks bring the parts to the card."""
    for part in pipeline.components.values():
        for module in [part] + list(getattr(part, "children", list)()):
            kind = type(getattr(module, "_hf_hook", None)).__name__
            if kind == "CpuOffload":
                return "model"
            if kind == "AlignDevicesHook":
                return "sequential"
    return None
