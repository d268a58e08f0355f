"""A model trained over several cards by HF Trainer: FSDP of either version, ZeRO of any stage, or DDP."""

import argparse
import os

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import Tokens

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("method", choices=["ddp", "fsdp1", "fsdp2", "zero-1", "zero-2", "zero-3"])
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--seq", type=int, default=2048)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--accumulation", type=int, default=1)
args = parser.parse_args()

more = {}
if args.method.startswith("fsdp"):
    more["fsdp_config"] = {"version": int(args.method[-1]), "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                           "fsdp_version": int(args.method[-1])}
    more["fsdp"] = True if args.method == "fsdp2" else "full_shard auto_wrap"
if args.method.startswith("zero"):
    more["deepspeed"] = {
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": int(args.method[-1]), "overlap_comm": True, "contiguous_gradients": True,
                              "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                              "stage3_param_persistence_threshold": "auto"},
        "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
        "train_batch_size": "auto", "zero_force_ds_cpu_optimizer": False,
    }
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=args.batch, gradient_accumulation_steps=args.accumulation, bf16=True,
    gradient_checkpointing=args.checkpointing, max_steps=4, logging_steps=100, save_strategy="no", report_to="none", **more,
)
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
Trainer(model=model, args=arguments, train_dataset=Tokens(args.seq)).train()
if os.environ.get("RANK", "0") == "0":
    print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
