"""Preferences learnt by TRL: DPO, reward models and GRPO, with the library's own settings."""

import argparse

import torch
from transformers import AutoTokenizer
import trl

import data

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("task", choices=["dpo", "reward", "grpo"])
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--seq", type=int, default=512)
parser.add_argument("--new-tokens", type=int, default=128)
parser.add_argument("--lora", action="store_true")
parser.add_argument("--no-checkpointing", action="store_true")
args = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(args.model)
more = {"gradient_checkpointing": False} if args.no_checkpointing else {}
common = dict(output_dir="out", per_device_train_batch_size=args.batch, max_steps=4, logging_steps=100,
              save_strategy="no", report_to="none", **more)
peft_config = None
if args.lora:
    from peft import LoraConfig

    peft_config = LoraConfig(r=16, lora_alpha=16, target_modules="all-linear")
if args.task == "dpo":
    arguments = trl.DPOConfig(max_length=args.seq, **common)
    trainer = trl.DPOTrainer(model=args.model, args=arguments, train_dataset=data.pairs(args.seq),
                             processing_class=tokenizer, peft_config=peft_config)
elif args.task == "reward":
    arguments = trl.RewardConfig(max_length=args.seq, **common)
    trainer = trl.RewardTrainer(model=args.model, args=arguments, train_dataset=data.pairs(args.seq),
                                processing_class=tokenizer, peft_config=peft_config)
else:
    arguments = trl.GRPOConfig(max_completion_length=args.new_tokens, **common)
    trainer = trl.GRPOTrainer(model=args.model, args=arguments, train_dataset=data.prompts(args.seq),
                              reward_funcs=lambda completions, **_: [float(len(c)) for c in completions],
                              processing_class=tokenizer, peft_config=peft_config)
print({name: getattr(arguments, name, None) for name in ("bf16", "gradient_checkpointing", "optim", "num_generations",
                                                         "beta", "precompute_ref_log_probs", "learning_rate")},
      next(trainer.model.parameters()).dtype)
trainer.train()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
