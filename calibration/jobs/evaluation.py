"""The evaluation of HF Trainer, which gathers the logits of all samples on the card."""

import argparse

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import Tokens

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--seq", type=int, default=512)
parser.add_argument("--samples", type=int, default=32)
parser.add_argument("--dtype", default="float32")
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype))
arguments = TrainingArguments(output_dir="out", per_device_eval_batch_size=args.batch, bf16=args.bf16, report_to="none")
trainer = Trainer(model=model, args=arguments, eval_dataset=Tokens(args.seq, args.samples),
                  compute_metrics=lambda prediction: {"count": len(prediction.label_ids)})
trainer.evaluate()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
