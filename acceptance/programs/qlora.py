"""QLoRA: a Llama in 4 bits (NF4, double quantization) with LoRA adapters, trained with 8-bit AdamW."""

import argparse

import bitsandbytes as bnb
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from common import device, print_peaks


def quantize_linears(module, skip=("lm_head",)):
    """Put 4-bit layers in place of the linear ones; they quantize themselves on the way to the card."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and name not in skip:
            linear = bnb.nn.Linear4bit(
                child.in_features,
                child.out_features,
                bias=child.bias is not None,
                compute_dtype=torch.bfloat16,
                compress_statistics=True,
                quant_type="nf4",
                device="meta",
            )
            # The weights are not written, so that they take address space and no host memory.
            weight = torch.empty(child.out_features, child.in_features, dtype=torch.bfloat16)
            linear.weight = bnb.nn.Params4bit(
                weight, requires_grad=False, compress_statistics=True, quant_type="nf4"
            )
            setattr(module, name, linear)
        else:
            quantize_linears(child, skip)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--intermediate", type=int, default=11008)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    from accelerate import init_empty_weights

    config = LlamaConfig(
        hidden_size=args.hidden,
        intermediate_size=args.intermediate,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        use_cache=False,
    )
    with init_empty_weights(include_buffers=False):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    quantize_linears(model)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                empty = nn.Parameter(torch.empty_like(parameter, device="cpu"), requires_grad=False)
                setattr(module, name, empty)
    model = model.to(device())
    # PEFT and Transformers look at these marks, which from_pretrained sets on a quantized model.
    model.is_loaded_in_4bit = True
    model.is_quantized = True

    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    model.print_trainable_parameters()
    model.train()
    print(f"memory_loaded={torch.cuda.memory_allocated()}")

    optimizer = bnb.optim.AdamW8bit((p for p in model.parameters() if p.requires_grad), lr=2e-4)
    for step in range(args.steps):
        tokens = torch.randint(0, config.vocab_size, (args.batch_size, args.seq_len), device=device())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")
    print_peaks()


if __name__ == "__main__":
    main()
