"""The settings of the grid: which models, tasks, sizes and switches are read."""

import dataclasses

from text import Setting
from text_models import CAUSAL

# Sizes by model: (batch, length) for training without and with checkpointing, and for inference.
SMALL = [(8, 512), (16, 512), (4, 1024), (32, 128)]
MIDDLE = [(4, 512), (2, 1024), (1, 2048), (8, 256)]
LARGE = [(1, 2048), (2, 1024), (4, 512), (1, 4096)]
SIZES = {
    "gpt2": SMALL, "gpt2-medium": SMALL, "qwen2.5-0.5b": SMALL, "qwen3-0.6b": SMALL,
    "llama-3.2-1b": MIDDLE, "qwen2.5-1.5b": MIDDLE, "opt-1.3b": MIDDLE, "pythia-1.4b": MIDDLE, "gemma-2-2b": MIDDLE,
}
# What PEFT adapts by default: the query and value projections, or the layer that holds them.
ATTENTION = {
    "gpt2": "c_attn", "gpt2-medium": "c_attn", "phi-3-mini": "qkv_proj", "pythia-1.4b": "query_key_value",
    "falcon-7b": "query_key_value", "deepseek-v2-lite": "q_proj+kv_b_proj",
}


def causal(index, name):
    """The settings of one decoder. `index` turns the sizes, so that models differ in theirs."""
    for setting in every(index, name):
        if name == "gemma-2-2b":  # It has no other attention: scaled_dot_product_attention cannot cap its logits.
            setting = dataclasses.replace(setting, attention="eager")
        if name in ("qwen3-30b-a3b", "deepseek-v2-lite"):  # PEFT adapts experts without dropout only.
            setting = dataclasses.replace(setting, lora_dropout=0.0)
        yield setting


def every(index, name):
    """As `causal`, with PyTorch's own attention wherever nothing else is said."""
    sizes = SIZES.get(name, LARGE)
    size = lambda k: sizes[(index + k) % len(sizes)]
    full = lambda k, **more: Setting(name, "full", *size(k), loop=more.pop("loop", "torch"), **more)
    yield full(0, dtype="fp32", optimizer="adamw-fused")
    yield full(1, dtype="amp-bf16", optimizer="adamw-fused", loop="trainer")
    yield full(2, dtype="amp-bf16", optimizer="adamw-foreach", checkpointing="full")
    yield full(3, dtype="bf16", optimizer="adamw-fused", checkpointing="full", loop="trainer")
    yield full(0, dtype="bf16", optimizer="adamw-8bit")
    yield full(1, dtype="bf16", optimizer="adafactor", checkpointing="full")
    yield full(2, dtype="bf16", optimizer="sgd" if index % 2 else "sgd-momentum")
    yield full(3, dtype="amp-bf16", optimizer="adamw-fused", attention="eager")
    yield full(0, dtype="amp-bf16", optimizer="adamw-fused", padding=True)
    yield full(1, dtype="fp32", optimizer="adamw-foreach", checkpointing="full", loop="trainer")
    lora = lambda k, **more: Setting(name, "lora", *size(k), lora_rank=more.pop("lora_rank", 16), optimizer="adamw-fused",
                                     loop=more.pop("loop", "torch"), lora_targets=more.pop("lora_targets", "all-linear"), **more)
    yield lora(1, dtype="amp-bf16", lora_rank=8, lora_targets=ATTENTION.get(name, "q_proj+v_proj"), loop="trainer")
    yield lora(2, dtype="amp-bf16", lora_dropout=0.05)
    yield lora(3, dtype="bf16", lora_rank=64, checkpointing="full", loop="trainer")
    qlora = lambda k, **more: Setting(name, "qlora", *size(k), dtype="amp-bf16", lora_rank=16, lora_targets="all-linear",
                                      optimizer="adamw-fused", loop="trainer", **more)
    if name not in ("gpt2", "gpt2-medium"):  # Their layers are transposed, and not quantized as linear ones.
        yield qlora(0, checkpointing="full", kbit_prepare=True, double_quant=True)
        yield qlora(1, checkpointing="full")
        yield qlora(2, lora_dropout=0.05, double_quant=True)
    yield Setting(name, "forward", *size(3), dtype="bf16")
    b, n = size(3)
    yield Setting(name, "generate", b, n - 4, dtype="bf16", new_tokens=4)


def others():
    """The settings of encoders, encoder-decoders, vision and speech."""
    for name, sizes in (
        ("t5-large", [(8, 512), (4, 256), (2, 1024), (16, 128)]),
        ("bert-large", [(8, 512), (16, 128), (32, 256), (4, 384)]),
        ("roberta-base", [(16, 512), (32, 128), (64, 256), (8, 384)]),
        ("deberta-v3-base", [(16, 512), (32, 128), (8, 256), (4, 384)]),
        ("vit-large", [(16, 197), (32, 197), (64, 197), (8, 197)]),
        ("whisper-small", [(8, 128), (16, 64), (4, 448), (32, 32)]),
    ):
        size = lambda k: sizes[k % len(sizes)]
        full = lambda k, **more: Setting(name, "full", *size(k), loop=more.pop("loop", "torch"), **more)
        yield full(0, dtype="fp32", optimizer="adamw-fused")
        yield full(1, dtype="fp32", optimizer="adamw-foreach", loop="trainer")
        yield full(2, dtype="amp-bf16", optimizer="adamw-fused", loop="trainer")
        yield full(3, dtype="amp-bf16", optimizer="adamw-foreach")
        yield full(0, dtype="amp-bf16", optimizer="adamw-fused", checkpointing="full", loop="trainer")
        yield full(1, dtype="bf16", optimizer="adamw-8bit")
        yield full(2, dtype="bf16", optimizer="sgd-momentum", checkpointing="full")
        yield full(3, dtype="bf16", optimizer="adafactor")
        if name != "deberta-v3-base":
            yield full(1, dtype="amp-bf16", optimizer="adamw-fused", attention="eager")
        if name not in ("vit-large", "whisper-small"):
            yield full(0, dtype="amp-bf16", optimizer="adamw-fused", padding=True, loop="trainer")
        if name in ("bert-large", "roberta-base"):
            head = "sequence-classification" if name == "bert-large" else "masked-lm"
            yield full(1, dtype="amp-bf16", optimizer="adamw-fused", head=head, loop="trainer")
            yield full(0, dtype="fp32", optimizer="adamw-fused", head=head, checkpointing="full")
        yield Setting(name, "forward", *size(0), dtype="fp32")
        yield Setting(name, "forward", *size(2), dtype="bf16")


def text():
    """The whole text grid."""
    for index, name in enumerate(CAUSAL):
        yield from causal(index, name)
    for setting in others():
        if setting.model == "deberta-v3-base":  # Nor has this one: it adds its positions to the attention's weights.
            setting = dataclasses.replace(setting, attention="eager")
        yield setting


def images():
    """The whole image grid."""
    import images as image

    sizes = {
        "sd-1.5": [(512, 512, 1), (512, 512, 4), (512, 512, 8), (768, 768, 1), (768, 512, 4), (1024, 1024, 1)],
        "sd-2.1": [(768, 768, 1), (768, 768, 4), (512, 512, 1), (512, 512, 8), (1024, 768, 2), (1024, 1024, 1)],
        "sdxl": [(1024, 1024, 1), (1024, 1024, 2), (1024, 1024, 4), (768, 768, 1), (1216, 832, 1), (1536, 1536, 1), (2048, 2048, 1)],
        "sd3-medium": [(1024, 1024, 1), (1024, 1024, 4), (512, 512, 1), (512, 512, 8), (1344, 768, 1), (1536, 1536, 1)],
        "flux.1-dev": [(1024, 1024, 1), (1024, 1024, 4), (512, 512, 1), (512, 512, 8), (1536, 1024, 1), (2048, 2048, 1)],
        "pixart-sigma": [(1024, 1024, 1), (1024, 1024, 4), (512, 512, 1), (512, 512, 8), (1344, 768, 1), (2048, 2048, 1)],
    }
    for name, some in sizes.items():
        dtypes = ("bf16",) if name.startswith("flux") else ("fp16", "bf16")
        for width, height, count in some:
            for dtype in dtypes:
                yield image.Setting(name, "pipeline", width, height, count, dtype)
        width, height, _ = some[0]
        one = lambda **more: image.Setting(name, "pipeline", width, height, more.pop("images", 1), more.pop("dtype", dtypes[0]), **more)
        if name not in ("flux.1-dev",):
            yield one(guidance=False)
            yield one(dtype="fp32")
        yield one(images=4, vae_slicing=True)
        yield one(vae_tiling=True)  # A picture of one tile: nothing changes.
        yield image.Setting(name, "pipeline", 2 * width, 2 * height, 1, dtypes[0], vae_tiling=True)
        yield one(offload="model")
