"""Batched generation, as people benchmark their card: prompts of a few hundred tokens, the cache grows with each new one."""
import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=48)
p.add_argument("--prompt", type=int, default=400)
p.add_argument("--new-tokens", type=int, default=80)
a = p.parse_args()

config = LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                     max_position_embeddings=4096)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).half().eval()
ids = torch.randint(3, 32000, (a.batch, a.prompt), device="cuda")
for run in range(1):
    t = time.time()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=a.new_tokens,
                             max_new_tokens=a.new_tokens, pad_token_id=0)
    print(tuple(out.shape), f"{a.batch * a.new_tokens / (time.time() - t):.1f} tokens/s",
          f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
