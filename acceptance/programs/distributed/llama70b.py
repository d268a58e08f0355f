"""Llama-3-70B's shape, sharded by FSDP2, with gradient checkpointing and AdamW, in bfloat16."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

import ranks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()

    rank, world = ranks.start()
    config = LlamaConfig(
        vocab_size=128_256, hidden_size=8192, intermediate_size=28_672, num_hidden_layers=args.layers,
        num_attention_heads=64, num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500_000.0,
        use_cache=False,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.gradient_checkpointing_enable()
    mesh = init_device_mesh("cuda", (world,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(args.steps):
        tokens = torch.randint(0, config.vocab_size, (1, args.length), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    ranks.tell(rank, parameters=sum(parameter.numel() for parameter in model.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
