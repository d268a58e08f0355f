"""A model spread over the cards that are there by `device_map="auto"`, and text generated with it."""

import argparse

import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--seq", type=int, default=2048)
parser.add_argument("--new-tokens", type=int, default=128)
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, device_map="auto").eval()
print(model.hf_device_map)
for index in range(torch.cuda.device_count()):
    print("weights", index, torch.cuda.memory_allocated(index))
model.generation_config.eos_token_id = None
ids = torch.randint(3, 250, (args.batch, args.seq), device="cuda:0")
model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.new_tokens, do_sample=False,
               pad_token_id=0)
for index in range(torch.cuda.device_count()):
    print("peak", index, torch.cuda.max_memory_allocated(index), torch.cuda.max_memory_reserved(index))
