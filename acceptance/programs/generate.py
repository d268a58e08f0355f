"""GPT-2 writes 100 tokens, greedily and by sampling, and ends."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=100)
    args = parser.parse_args()

    config = GPT2Config(n_layer=args.layers)
    model = GPT2LMHeadModel(config).to(device()).eval()
    model.generation_config.pad_token_id = config.eos_token_id
    # Exactly the asked number of tokens, whatever the random model would like to say.
    model.generation_config.eos_token_id = None

    prompt = torch.randint(0, 50000, (args.batch_size, args.prompt), device=device())
    mask = torch.ones_like(prompt)
    for sample in (False, True):
        with torch.no_grad():
            output = model.generate(
                prompt, attention_mask=mask, max_new_tokens=args.new_tokens, do_sample=sample
            )
        print(f"generated={tuple(output.shape)}")
    print_peaks()


if __name__ == "__main__":
    main()
