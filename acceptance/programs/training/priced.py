"""A few training steps of a model, with one of the changes whose price is published made by hand (readings/prices.py).

In addition to what the hook records, it leaves what a step computes and moves in the file that --record names.
"""

import argparse
import contextlib
import json
import sys

import torch
import torch.nn.functional as functional
from torch.utils.data import DataLoader, TensorDataset


def language_model(args):
    from transformers import AutoConfig, AutoModelForCausalLM, BertConfig, BertForSequenceClassification, GPT2Config

    if args.model == "bert-large":
        config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
        return BertForSequenceClassification._from_config(config, attn_implementation=args.attention, dtype=args.dtype)
    if args.model == "gpt2-medium":
        config = GPT2Config(n_layer=24, n_embd=1024, n_head=16)
    else:
        config = AutoConfig.from_pretrained(args.model)
    if args.nf4 or args.int8:
        from transformers import BitsAndBytesConfig

        how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        how = BitsAndBytesConfig(load_in_8bit=True) if args.int8 else how
        return AutoModelForCausalLM.from_pretrained(
            args.model, quantization_config=how, dtype=args.dtype, attn_implementation=args.attention, device_map={"": 0}
        )
    return AutoModelForCausalLM.from_config(config, attn_implementation=args.attention, dtype=args.dtype)


def optimizer_of(args, parameters):
    if args.optimizer == "adamw-8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-5)
    if args.optimizer == "adafactor":
        from transformers import Adafactor

        return Adafactor(parameters, lr=1e-5, relative_step=False)
    options = {"adamw": {}, "adamw-fused": {"fused": True}, "adamw-loop": {"foreach": False}}[args.optimizer]
    return torch.optim.AdamW(parameters, lr=1e-5, **options)


def chunked_loss(hidden, head, labels, chunks=8):
    def part(hidden, labels):
        return functional.cross_entropy(head(hidden).float(), labels, reduction="sum")

    hidden, labels = hidden[:, :-1].reshape(-1, hidden.shape[-1]), labels[:, 1:].reshape(-1)
    parts = zip(hidden.chunk(chunks), labels.chunk(chunks))
    losses = [torch.utils.checkpoint.checkpoint(part, one, other, use_reentrant=False) for one, other in parts]
    return torch.stack(losses).sum() / labels.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default=torch.float32)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--autocast", type=lambda name: getattr(torch, name))
    parser.add_argument("--optimizer", default="adamw")
    for flag in ("checkpointing", "chunked-loss", "offload-activations", "lora", "nf4", "int8", "optimizer-on-host"):
        parser.add_argument("--" + flag, action="store_true")
    args = parser.parse_args()

    images = args.model.startswith(("resnet", "vit", "convnext"))
    if images:
        import torchvision

        model = getattr(torchvision.models, args.model)()
        data = TensorDataset(torch.rand(args.batch_size, 3, 224, 224), torch.randint(0, 1000, (args.batch_size,)))
    else:
        model = language_model(args)
        tokens = torch.randint(0, 30000, (args.batch_size, args.length))
        labels = torch.randint(0, 2, (args.batch_size,)) if args.model == "bert-large" else tokens
        data = TensorDataset(tokens, labels)
    if args.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    model.cuda().train()
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    on_host = [parameter.detach().cpu() for parameter in trained] if args.optimizer_on_host else []
    optimizer = optimizer_of(args, on_host or trained)

    def loss_of(inputs, labels):
        if images:
            return functional.cross_entropy(model(inputs), labels)
        if args.chunked_loss:
            return chunked_loss(model.model(input_ids=inputs).last_hidden_state, model.lm_head, labels)
        return model(input_ids=inputs, labels=labels).loss

    for _ in range(4):
        for inputs, labels in DataLoader(data, batch_size=args.batch_size // args.accumulate):
            with contextlib.ExitStack() as stack:
                if args.autocast:
                    stack.enter_context(torch.autocast("cuda", args.autocast))
                if args.offload_activations:
                    stack.enter_context(torch.autograd.graph.save_on_cpu(pin_memory=True))
                loss = loss_of(inputs.cuda(), labels.cuda()) / args.accumulate
            loss.backward()
        for own, parameter in zip(on_host, trained):
            own.grad = parameter.grad.cpu()
        optimizer.step()
        for own, parameter in zip(on_host, trained):
            parameter.data.copy_(own)
        model.zero_grad()
    with open(args.record, "w") as file:
        json.dump(sys.modules["oomph.record"].current().work.as_dict(), file)


if __name__ == "__main__":
    main()
