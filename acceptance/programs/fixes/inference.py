"""A Llama of 1.3 G weights that is loaded by name and used; `--by-hand REMEDY` is the same with that remedy in it.

Transformers fills the allocator's cache before it loads quantized weights, by what the card has beyond 1.2 GiB: on a
smaller card it fails.
"""

import argparse
import os
import sys

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common import print_peaks

LOADED = {
    "weights-nf4": lambda: {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
    },
    "weights-int8": lambda: {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)},
    "half-weights": lambda: {"dtype": torch.bfloat16},
    "device-map": lambda: {"device_map": "auto"},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-hand", default="")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--gradients", action="store_true", help="forget to switch autograd off")
    args = parser.parse_args()
    by_hand = args.by_hand

    # The folder of a published model: its weights are the run's business (`--random-weights`).
    LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=24,
        num_attention_heads=16,
        vocab_size=8000,
        architectures=["LlamaForCausalLM"],
    ).save_pretrained("model")
    given = LOADED.get(by_hand, dict)()
    given.setdefault("dtype", torch.float32)
    model = AutoModelForCausalLM.from_pretrained("model", **given)
    if not any(name in given for name in ("quantization_config", "device_map")):
        model.to("cuda")

    tokens = torch.randint(0, 8000, (args.batch_size, args.seq_len), device="cuda")
    more = {"logits_to_keep": 1} if by_hand == "last-token-logits" else {}
    gradients = args.gradients and by_hand != "no-grad"
    with torch.enable_grad() if gradients else torch.inference_mode():
        for _ in range(2):
            model(tokens, use_cache=False, **more)
    print_peaks()


if __name__ == "__main__":
    main()
