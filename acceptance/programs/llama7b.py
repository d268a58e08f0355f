"""One forward and backward of a model of Llama-2-7B's shape, in bf16 with gradient checkpointing."""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common import build, device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--intermediate", type=int, default=11008)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    config = LlamaConfig(
        hidden_size=args.hidden,
        intermediate_size=args.intermediate,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        max_position_embeddings=4096,
        use_cache=False,
    )
    model = build(lambda: LlamaForCausalLM(config), torch.bfloat16)
    model.gradient_checkpointing_enable()
    model.train()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} B parameters")

    for step in range(args.steps):
        tokens = torch.randint(0, config.vocab_size, (args.batch_size, args.seq_len), device=device())
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        model.zero_grad()
        print(f"step {step}")
    print_peaks()


if __name__ == "__main__":
    main()
