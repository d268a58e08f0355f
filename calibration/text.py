"""One setting of the text grid, run: real training steps, a real forward, or real generation, and what it took."""

import contextlib
import dataclasses
import sys

import torch
from transformers import masking_utils

import readings
import text_models

STEPS = 3


def not_packed(position_ids, ask=masking_utils.find_packed_sequence_indices):
    """Transformers reads back from the card whether positions start anew within a row. Here they never do; a card that
    computes nothing cannot say so, and its answer would have a mask made that no real run makes."""
    ask(position_ids)


masking_utils.find_packed_sequence_indices = not_packed
AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
PARAMETERS = {"fp32": torch.float32, "amp-bf16": torch.float32, "amp-fp16": torch.float32, "bf16": torch.bfloat16}
HEAD_OF = {
    "t5-large": "seq2seq-lm", "bert-large": "masked-lm", "roberta-base": "sequence-classification",
    "deberta-v3-base": "sequence-classification", "vit-large": "image-classification", "whisper-small": "speech-to-text",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is run. `length` counts tokens (labels for Whisper, patches and the class token for ViT)."""

    model: str
    task: str  # full, lora, qlora, forward, generate
    batch: int
    length: int
    dtype: str = "bf16"  # fp32, amp-bf16 (fp32 weights; bf16 ones under LoRA), bf16
    new_tokens: int = 0
    head: str = ""
    attention: str = "sdpa"
    padding: bool = False
    checkpointing: str = "none"
    optimizer: str = ""
    loop: str = ""  # torch (a plain loop) or trainer (what HF Trainer adds: accelerate's wrapper, clipping)
    lora_rank: int = 0
    lora_targets: str = ""  # all-linear, or names joined by +
    lora_dropout: float = 0.0
    double_quant: bool = False
    kbit_prepare: bool = False

    def the_head(self):
        return self.head or HEAD_OF.get(self.model, "causal-lm")


def make_model(setting):
    """The model, ready for its task, and how many parameters it has before any adapter."""
    lora = setting.task in ("lora", "qlora")
    weights = torch.bfloat16 if lora else PARAMETERS[setting.dtype]
    model = text_models.build(setting.model, setting.the_head(), weights, setting.attention,
                              setting.double_quant if setting.task == "qlora" else None)
    published = text_models.MODELS[setting.model][2]
    parameters = sum(p.quant_state.shape.numel() if getattr(p, "quant_state", None) else p.numel() for p in model.parameters())
    if published and setting.the_head() != "sequence-classification" and parameters != published:
        raise ValueError(f"{setting.model} has {parameters} parameters and should have {published}")
    if lora:
        import peft

        if setting.kbit_prepare:
            model = peft.prepare_model_for_kbit_training(
                model, use_gradient_checkpointing=setting.checkpointing != "none"
            )
        targets = setting.lora_targets if setting.lora_targets == "all-linear" else setting.lora_targets.split("+")
        with torch.device("cuda"):  # Adapters are made where they belong: to set them on the CPU first takes long.
            model = peft.get_peft_model(model, peft.LoraConfig(
                r=setting.lora_rank, lora_alpha=16, lora_dropout=setting.lora_dropout, target_modules=targets))
    if setting.checkpointing == "full" and not setting.kbit_prepare:
        model.gradient_checkpointing_enable()
    return model, parameters


def make_batch(setting, configuration):
    """Inputs on the card, as a data loader gives them. Without padding no mask is passed: a full one changes nothing."""
    b, n = setting.batch, setting.length
    tokens = lambda: torch.zeros(b, n, dtype=torch.long, device="cuda")
    training = setting.task in ("full", "lora", "qlora")
    if setting.the_head() == "image-classification":
        batch = {"pixel_values": torch.zeros(b, 3, 224, 224, device="cuda", dtype=None if training else PARAMETERS[setting.dtype])}
        labels = lambda: torch.zeros(b, dtype=torch.long, device="cuda")
    elif setting.the_head() == "speech-to-text":
        batch = {"input_features": torch.zeros(b, 80, 3000, device="cuda")}
        if not training:
            batch = {"input_features": batch["input_features"].to(PARAMETERS[setting.dtype]), "decoder_input_ids": tokens()}
        labels = tokens
    else:
        batch = {"input_ids": tokens()}
        if setting.the_head() == "seq2seq-lm" and not training:
            batch["decoder_input_ids"] = tokens()
        labels = tokens
        if setting.the_head() == "sequence-classification":
            labels = lambda: torch.zeros(b, dtype=torch.long, device="cuda")
    if setting.padding:
        batch["attention_mask"] = tokens()
    if training:
        batch["labels"] = labels()
    if setting.dtype == "bf16" and training:
        batch = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in batch.items()}
    return batch


def make_optimizer(name, model):
    """The optimizer, made as HF Trainer makes it."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    if name == "adamw-fused":
        return torch.optim.AdamW(trainable, lr=1e-4, fused=True)
    if name == "adamw-foreach":
        return torch.optim.AdamW(trainable, lr=1e-4, foreach=True)
    if name == "sgd":
        return torch.optim.SGD(trainable, lr=1e-4)
    if name == "sgd-momentum":
        return torch.optim.SGD(trainable, lr=1e-4, momentum=0.9)
    if name == "adafactor":
        from transformers import Adafactor

        return Adafactor(trainable, lr=1e-4, scale_parameter=False, relative_step=False)
    if name == "adamw-8bit":
        import bitsandbytes as bnb

        optimizer = bnb.optim.AdamW8bit(trainable, lr=1e-4)
        manager = bnb.optim.GlobalOptimManager.get_instance()
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
        return optimizer
    raise ValueError(f"no optimizer is called {name}")


def forget_singletons(accelerator):
    """Empties what accelerate and bitsandbytes keep for a process, so that the next setting starts without it."""
    if accelerator:
        accelerator.free_memory()
    if "accelerate" in sys.modules:
        sys.modules["accelerate"].state.AcceleratorState._reset_state(True)
    if "bitsandbytes" in sys.modules:
        sys.modules["bitsandbytes"].optim.GlobalOptimManager.get_instance().initialize()
        sys.modules["bitsandbytes"].functional.name2qmap.clear()


def train(setting, model, batch, peaks):
    """Training steps. Returns what the owners of the bytes are."""
    model.train()
    optimizer = make_optimizer(setting.optimizer, model)
    accelerator = None
    if setting.loop == "trainer":
        from accelerate import Accelerator

        accelerator = Accelerator(mixed_precision="bf16" if setting.dtype == "amp-bf16" else "no")
        model = accelerator.prepare_model(model)
    cast = setting.dtype in AUTOCAST and not accelerator
    owners = {}
    for _ in range(STEPS):
        owners["start"] = torch.cuda.memory_allocated()
        with torch.autocast("cuda", AUTOCAST[setting.dtype]) if cast else contextlib.nullcontext():
            loss = model(**batch).loss
        owners["saved"] = torch.cuda.memory_allocated() - owners["start"]
        peaks.end("forward")
        if accelerator:
            accelerator.backward(loss)
        else:
            loss.backward()
        del loss
        peaks.end("backward")
        trainable = [p for p in model.parameters() if p.requires_grad]
        owners["gradients"] = readings.bytes_on_card(p.grad for p in trainable)
        if accelerator:
            torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        peaks.end("step")
        optimizer.zero_grad(set_to_none=True)
    owners["rest"] = torch.cuda.memory_allocated()
    owners["optimizer"] = readings.optimizer_bytes(optimizer)
    owners["trainable"] = sum(p.numel() for p in trainable)
    forget_singletons(accelerator)
    return owners


class Enough(Exception):
    """All the tokens are there."""


class Count:
    """Ends generation after so many tokens. What is on the card cannot end it: nothing there is computed."""

    def __init__(self, tokens):
        self.left = tokens

    def __call__(self, _, scores):
        self.left -= 1
        if self.left == 0:
            raise Enough
        return scores


def infer(setting, model, batch, peaks):
    """One forward, or one generation, without gradients."""
    model.eval()
    with torch.no_grad():
        if setting.task == "generate":
            with contextlib.suppress(Enough):
                model.generate(**batch, do_sample=False, max_new_tokens=setting.new_tokens, logits_processor=[Count(setting.new_tokens)])
        else:
            model(**batch)
    peaks.end("forward")
    return {}


def run(setting):
    """Runs one setting on an empty card and returns its row."""
    forget_singletons(None)  # The setting before may have failed on its way.
    if left := readings.clean():
        raise RuntimeError(f"{left} bytes were left on the card by the setting before {setting}")
    torch._dynamo.reset()
    peaks = readings.Peaks()
    model, parameters = make_model(setting)
    configuration = model.config
    weights = readings.bytes_on_card(list(model.parameters()) + list(model.buffers()))
    quantization = sum(
        readings.bytes_on_card([state.absmax, state.code, state.offset] +
                               ([state.state2.absmax, state.state2.code] if state.nested else []))
        for state in (getattr(p, "quant_state", None) for p in model.parameters()) if state
    )
    made = torch.cuda.memory_allocated()
    peaks.end("build")
    peaks = readings.Peaks()  # How a model is built is not part of the reading.
    torch.cuda.empty_cache()
    batch = make_batch(setting, configuration)
    training = setting.task in ("full", "lora", "qlora")
    owners = (train if training else infer)(setting, model, batch, peaks)
    rest = owners.get("rest", torch.cuda.memory_allocated())
    reserved_rest = torch.cuda.memory_reserved()
    workspace = readings.cublas_workspaces()
    peak, phase = peaks.peak()
    text = configuration.get_text_config() if hasattr(configuration, "get_text_config") else configuration
    row = dataclasses.asdict(setting) | {
        "head": setting.the_head(), "vocabulary": getattr(text, "vocab_size", ""), "parameters": parameters,
        "trainable": owners.get("trainable", 0), "rest_allocated": rest, "rest_reserved": reserved_rest,
        "peak_allocated": peak, "peak_reserved": peaks.reserved, "peak_phase": phase,
        "peak_forward": peaks.allocated.get("forward", ""), "peak_backward": peaks.allocated.get("backward", ""),
        "peak_step": peaks.allocated.get("step", ""), "weights": weights, "quantization": quantization, "built": made,
        "inputs": readings.bytes_on_card(batch.values()), "saved_for_backward": owners.get("saved", ""),
        "gradients": owners.get("gradients", ""), "optimizer_state": owners.get("optimizer", ""),
        "cublas_workspace": workspace,
    }
    row["peak_phase"] = phase
    return {k: int(v) if isinstance(v, bool) else v for k, v in row.items()}
