from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass
class TrainConfig:
    batch_size: int = 32
    seq_len: int = 512
    lr: float = 1e-4
    steps: int = 20


def main():
    config = TrainConfig()
    accelerator = Accelerator()
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=20000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    samples = torch.randint(0, 20000, (config.batch_size * config.steps, config.seq_len))
    loader = DataLoader(samples, batch_size=config.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    for batch in loader:
        outputs = model(input_ids=batch, labels=batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print("done", outputs.loss.item())


if __name__ == "__main__":
    main()
