"""A small mixture of experts like Mixtral reads a prompt, or with `--train` trains for some steps."""

import argparse

import torch
from transformers import MixtralConfig, MixtralForCausalLM

from common import build, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--train", action="store_true")
    # "eager" goes through the experts one after the other, "grouped_mm" through all at once.
    parser.add_argument("--experts", default="eager")
    args = parser.parse_args()

    config = MixtralConfig(
        vocab_size=1024, hidden_size=1024, intermediate_size=3584, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, experts_implementation=args.experts,
    )
    model = build(lambda: MixtralForCausalLM(config), torch.bfloat16)
    tokens = torch.randint(0, config.vocab_size, (1, args.tokens), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(args.steps):
        if not args.train:
            with torch.no_grad():
                model(input_ids=tokens, logits_to_keep=1, use_cache=False)
            continue
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print_peaks()


if __name__ == "__main__":
    main()
