"""Applies remedies inside the user's Python: what `remedies` of hook.json names is done, checked and reported.

Each remedy is an id of the catalogue with options. Nothing is imported for one before the program imports what it
changes. The table below has every id, what does it, and its options; options that are absent or null have the default.

| id | options (default) |
|---|---|
| `micro-batch` | `divide_by` (2) |
| `smaller-batch` | `divide_by` (2) |
| `gradient-checkpointing` | `every` (1) |
| `checkpointing-every-n-layers` | `every` (2) |
| `selective-checkpointing` | |
| `activation-offload` | `pin_memory` (true) |
| `autocast` | `dtype` (`bfloat16`, or `float16` before compute capability 8) |
| `pure-bf16` | |
| `half-weights` | `dtype` (as of `autocast`) |
| `adam-8bit`, `paged-adam-8bit`, `adam-4bit`, `adafactor`, `lion-8bit`, `sgd` | |
| `fused-optimizer`, `foreach-off`, `optimizer-in-backward` | |
| `optimizer-cpu-offload`, `gradient-cpu-offload` | |
| `low-rank-gradients` | `target_modules` (`all-linear`) |
| `chunked-cross-entropy`, `fused-cross-entropy` | `chunks` (8) |
| `last-token-logits` | |
| `sdpa`, `flash-attention` | |
| `lora` | `rank` (16), `alpha` (2 x rank), `target_modules` (`all-linear`) |
| `qlora` | those of `lora`, `double_quant` (false) |
| `weights-nf4` | `double_quant` (false) |
| `weights-int8`, `double-quant` | |
| `fp8-weights` | |
| `device-map` | `device_map` (`auto`) |
| `low-host-memory-loading` | |
| `model-cpu-offload`, `sequential-cpu-offload` | |
| `group-offload` | `offload_type` (`leaf_level`), `use_stream` (true) |
| `one-image-at-a-time`, `vae-slicing`, `vae-tiling`, `text-encoders-away`, `drop-t5` | |
| `attention-slicing` | `slice_size` (`auto`) |
| `eval-batch` | `batch_size` (1) |
| `eval-accumulation` | `steps` (1) |
| `prediction-loss-only`, `logits-preprocessing` | |
| `trim-cache-every-steps` | `steps` (4) |
| `shorter-sequence` | `length` (none: has to be given) |
| `packing-off`, `no-pinned-memory` | |
| `fewer-workers` | `workers` (0) |
| `no-grad`, `zero-grad-none`, `detach-losses`, `resume-on-cpu` | |
| `compile-without-graph-pools`, `one-gpu-per-process` | |
"""

from __future__ import annotations

import importlib

from oomph import _protocol as protocol
from oomph.hook import guarded
from oomph.remedies.remedy import Refused, Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._protocol import AppliedRemedy, HookConfig
    from oomph.moments import Moments
    from oomph.record import Record

# id -> (module, class, arguments after name and options); an argument in a string that begins with `.` is a name of
# the module.
_APPLIERS: dict[str, tuple[Any, ...]] = {
    "micro-batch": ("batch", "MicroBatch"),
    "smaller-batch": ("batch", "SmallerBatch"),
    "gradient-checkpointing": ("checkpointing", "Checkpointing"),
    "checkpointing-every-n-layers": ("checkpointing", "Checkpointing"),
    "selective-checkpointing": ("checkpointing", "Checkpointing"),
    "activation-offload": ("activations", "ActivationOffload"),
    "autocast": ("precision", "Autocast"),
    "pure-bf16": ("precision", "HalfModel"),
    "half-weights": ("precision", "HalfModel"),
    "adam-8bit": ("optimizers", "Replaced", "adamw_bnb_8bit", ".eight_bit"),
    "paged-adam-8bit": ("optimizers", "Replaced", "paged_adamw_8bit", ".paged_eight_bit"),
    "adam-4bit": ("optimizers", "Replaced", "adamw_torch_4bit", ".four_bit"),
    "adafactor": ("optimizers", "Replaced", "adafactor", ".adafactor"),
    "lion-8bit": ("optimizers", "Replaced", "lion_8bit", ".lion"),
    "sgd": ("optimizers", "Replaced", "sgd", ".sgd"),
    "fused-optimizer": ("optimizers", "Stepping", {"fused": True, "foreach": None}, "adamw_torch_fused"),
    "foreach-off": ("optimizers", "Stepping", {"foreach": False, "fused": None}, None),
    "optimizer-in-backward": ("optimizers", "InBackward"),
    "optimizer-cpu-offload": ("host_optimizer", "HostOptimizer"),
    "gradient-cpu-offload": ("host_optimizer", "HostOptimizer"),
    "low-rank-gradients": ("trainer", "Argument", ".low_rank"),
    "chunked-cross-entropy": ("loss", "ChunkedLoss"),
    "fused-cross-entropy": ("loss", "ChunkedLoss"),
    "last-token-logits": ("evaluation", "LastTokenLogits"),
    "sdpa": ("attention", "Attention"),
    "flash-attention": ("attention", "Attention"),
    "lora": ("weights", "Lora"),
    "qlora": ("weights", "Lora"),
    "weights-nf4": ("weights", "Quantized"),
    "weights-int8": ("weights", "Quantized"),
    "double-quant": ("weights", "Quantized"),
    "device-map": ("host", "LeanLoading"),
    "low-host-memory-loading": ("host", "LeanLoading"),
    "resume-on-cpu": ("host", "ResumeOnCpu"),
    "one-gpu-per-process": ("host", "OwnCard"),
    "compile-without-graph-pools": ("host", "PlainCompile"),
    "no-grad": ("lifetime", "NoGrad"),
    "untrained-no-grad": ("lifetime", "UntrainedNoGrad"),
    "zero-grad-none": ("lifetime", "ZeroGradNone"),
    "detach-losses": ("lifetime", "DetachLosses"),
    "logits-preprocessing": ("evaluation", "LogitsPreprocessing"),
    "model-cpu-offload": ("offload", "PipelineOffload"),
    "sequential-cpu-offload": ("offload", "PipelineOffload"),
    "group-offload": ("offload", "PipelineOffload"),
    "one-image-at-a-time": ("images", "OneImage"),
    "vae-slicing": ("images", "Vae", "slicing"),
    "vae-tiling": ("images", "Vae", "tiling"),
    "attention-slicing": ("images", "AttentionSlicing"),
    "text-encoders-away": ("images", "TextEncodersAway"),
    "fp8-weights": ("images", "Fp8"),
    "drop-t5": ("images", "WithoutT5"),
    "eval-batch": ("trainer", "Argument", ".smaller_eval_batch"),
    "eval-accumulation": ("evaluation", "EvalAccumulation"),
    "prediction-loss-only": ("trainer", "Argument", ".loss_only"),
    "trim-cache-every-steps": ("trainer", "Argument", ".emptied_cache"),
    "shorter-sequence": ("trainer", "Argument", ".shorter"),
    "packing-off": ("trainer", "Argument", ".unpacked"),
    "no-pinned-memory": ("trainer", "Argument", ".unpinned"),
    "fewer-workers": ("trainer", "Argument", ".fewer_workers"),
}


class Unknown:
    """A remedy that the hook does not know or could not begin with."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why

    def report(self) -> AppliedRemedy:
        """As of `Remedy`."""
        return {"id": self.name, "state": protocol.REMEDY_REFUSED, "what": self.why, "evidence": None}


def known() -> list[str]:
    """The ids that the hook applies."""
    return sorted(_APPLIERS)


def make(name: str, options: dict[str, Any]) -> Remedy | Unknown:
    """The remedy of this id, not yet attached to anything."""
    entry = _APPLIERS.get(name)
    if entry is None:
        return Unknown(name, "it is not applied from inside the program")
    module = importlib.import_module("oomph.remedies." + entry[0])
    named = lambda value: getattr(module, value[1:]) if isinstance(value, str) and value.startswith(".") else value
    return getattr(module, entry[1])(name, options, *[named(value) for value in entry[2:]])


def install(moments: Moments, record: Record, config: HookConfig) -> None:
    """Attach what hook.json asks for to a torch that has just been imported."""
    for wanted in config.get("remedies") or ():
        name = str(wanted.get("id"))
        remedy: Remedy | Unknown | None = None
        try:
            remedy = make(name, dict(wanted.get("options") or {}))
            if isinstance(remedy, Remedy):
                remedy.attach(moments)
        except Refused as reason:
            if isinstance(remedy, Remedy):
                remedy.refused(str(reason))
            else:
                remedy = Unknown(name, str(reason))
        except Exception as error:
            # A remedy that cannot begin is reported as refused, and the others begin all the same.
            remedy = Unknown(name, "it failed with %s" % type(error).__name__)
            guarded(_show, error)
        record.remedies.append(remedy.report)


def _show(error):
    raise error
