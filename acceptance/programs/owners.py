"""Ten small programs that count their own bytes by owner, for comparison with what the hook says of them.

Each prints one line of JSON: the sums over its own tensors at the end, right before the last optimizer step (or, for
`generate`, after the last token), once as the bytes that were asked for and once as the sizes of the allocator's blocks.
`event` is that moment, as the number of events that the allocator had recorded by then; 0 where nothing is recorded.
"""

import argparse
import json

import torch
from torch import nn

from common import device, print_peaks


def block_sizes():
    """The size in bytes of every block in use, by address, as the allocator itself lists them."""
    sizes = {}
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                sizes[address] = block["size"]
            address += block["size"]
    return sizes


def flat(value):
    """Every tensor in a nest of containers and plain objects."""
    if isinstance(value, torch.Tensor):
        yield value
        for extra in vars(value).values():
            # The quantization state of a 4-bit parameter.
            yield from flat(extra)
    elif isinstance(value, dict):
        for item in value.values():
            yield from flat(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif type(value).__name__ == "QuantState":
        yield from flat(vars(value))


class Sums:
    """Adds up tensors by owner; a piece of memory counts once, for the first owner that has it."""

    def __init__(self):
        self.blocks = block_sizes()
        self.taken = set()
        self.sums = {}

    def add(self, owner, values):
        total = self.sums.setdefault(owner, {"requested": 0, "blocks": 0})
        for tensor in flat(list(values)):
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if tensor.device.type == "cuda" and address and address not in self.taken:
                self.taken.add(address)
                total["requested"] += storage.nbytes()
                total["blocks"] += self.blocks[address]

    def model(self, *models):
        self.add("parameter", [p for model in models for p in model.parameters()])
        self.add("buffer", [b for model in models for b in model.buffers()])

    def optimizer(self, optimizer):
        self.add("optimizer-state", list(optimizer.state.values()) + list(getattr(optimizer, "name2qmap", {}).values()))
        self.add("gradient", [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None])

    def show(self, case):
        event = len(torch.cuda.memory._snapshot()["device_traces"][0])
        print("owners=" + json.dumps({"case": case, "event": event, "owners": self.sums}))


def count_at_last_step(case, steps, optimizer, *models):
    """Count right before step number `steps` of an optimizer."""
    seen = 0

    def before(optimizer, args, kwargs):
        nonlocal seen
        seen += 1
        if seen == steps:
            sums = Sums()
            sums.model(*models)
            sums.optimizer(optimizer)
            sums.show(case)

    optimizer.register_step_pre_hook(before)


def train(case, model, optimizer, loss_of, steps=3, set_to_none=True):
    count_at_last_step(case, steps, optimizer, model)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of().backward()
        optimizer.step()


def mlp():
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device())

    def loss_of():
        inputs, labels = torch.randn(512, 784, device=device()), torch.randint(0, 10, (512,), device=device())
        return nn.functional.cross_entropy(model(inputs), labels)

    train("mlp", model, torch.optim.Adam(model.parameters()), loss_of)


def convnet():
    layers, width = [], 3
    for wide in (64, 128, 256):
        layers += [nn.Conv2d(width, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(), nn.MaxPool2d(2)]
        width = wide
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 8 * 8, 100)).to(device())

    def loss_of():
        labels = torch.randint(0, 100, (64,), device=device())
        return nn.functional.cross_entropy(model(torch.randn(64, 3, 64, 64, device=device())), labels)

    train("convnet", model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), loss_of, set_to_none=False)


def amp():
    model = nn.Sequential(nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 2048)).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler(device())
    count_at_last_step("amp", 3, optimizer, model)
    for _ in range(3):
        inputs = torch.randn(256, 2048, device=device())
        optimizer.zero_grad()
        with torch.autocast(device(), dtype=torch.float16):
            loss = nn.functional.mse_loss(model(inputs), inputs)
        scaler.scale(loss).backward()
        # The virtual card cannot tell whether a gradient is infinite, and a skipped step would not be counted.
        optimizer.step()


def lstm():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(5000, 512), nn.LSTM(512, 512, 2), nn.Linear(512, 5000)

        def forward(self, tokens):
            return self.out(self.rnn(self.embed(tokens))[0])

    model = Language().to(device())

    def loss_of():
        tokens = torch.randint(0, 5000, (35, 20), device=device())
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    train("lstm", model, torch.optim.Adagrad(model.parameters()), loss_of)


def resnet():
    from torchvision.models import resnet50

    model = resnet50().to(device(), memory_format=torch.channels_last)

    def loss_of():
        images = torch.randn(8, 3, 224, 224, device=device()).to(memory_format=torch.channels_last)
        return nn.functional.cross_entropy(model(images), torch.randint(0, 1000, (8,), device=device()))

    train("resnet", model, torch.optim.RMSprop(model.parameters(), momentum=0.9), loss_of)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=8, use_cache=False)
    model = LlamaForCausalLM(config).to(device(), torch.bfloat16)
    model.gradient_checkpointing_enable()
    model.train()

    def loss_of():
        tokens = torch.randint(0, config.vocab_size, (2, 512), device=device())
        return model(input_ids=tokens, labels=tokens).loss

    train("llama", model, torch.optim.AdamW(model.parameters(), foreach=False), loss_of)


def gpt2():
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, use_cache=False))
    tokens = [{"input_ids": t, "labels": t} for t in torch.randint(0, 50000, (12, 256))]
    arguments = TrainingArguments("gpt2-out", per_device_train_batch_size=4, max_steps=3, save_steps=2, report_to="none")

    class Count(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **rest):
            count_at_last_step("gpt2", 3, getattr(optimizer, "optimizer", optimizer), model)

    Trainer(model=model, args=arguments, train_dataset=tokens, callbacks=[Count()]).train()


def qlora():
    import bitsandbytes as bnb
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import LlamaConfig, LlamaForCausalLM

    from qlora import quantize_linears

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=3, num_attention_heads=8, use_cache=False)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    quantize_linears(model)
    model = model.to(device())
    model.is_loaded_in_4bit = model.is_quantized = True
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"))
    optimizer = bnb.optim.AdamW8bit((p for p in model.parameters() if p.requires_grad), lr=2e-4)

    def loss_of():
        tokens = torch.randint(0, config.vocab_size, (2, 256), device=device())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(input_ids=tokens, labels=tokens).loss

    train("qlora", model, optimizer, loss_of)


def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=32, cross_attention_dim=256, block_out_channels=(64, 128, 256, 256), attention_head_dim=8)
    model = model.to(device())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def loss_of():
        latents = torch.randn(2, 4, 32, 32, device=device())
        steps = torch.tensor([10, 20], device=device())
        text = torch.randn(2, 77, 256, device=device())
        return nn.functional.mse_loss(model(latents, steps, encoder_hidden_states=text).sample, latents)

    train("unet", model, optimizer, loss_of)


def generate():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4)).to(device()).eval()
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    prompt = torch.randint(0, 50000, (4, 32), device=device())
    with torch.no_grad():
        output = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, return_dict_in_generate=True
        )
    sums = Sums()
    sums.model(model)
    cache = output.past_key_values
    layers = getattr(cache, "layers", None)
    sums.add("kv-cache", [vars(layer) for layer in layers] if layers else [cache.key_cache, cache.value_cache])
    sums.show("generate")


def main():
    parser = argparse.ArgumentParser()
    cases = (mlp, convnet, amp, lstm, resnet, llama, gpt2, qlora, unet, generate)
    parser.add_argument("case", choices=[case.__name__ for case in cases])
    name = parser.parse_args().case
    next(case for case in cases if case.__name__ == name)()
    print_peaks()


if __name__ == "__main__":
    main()
