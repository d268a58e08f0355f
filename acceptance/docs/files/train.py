"""Train a small language model: the `train.py` of the documentation. Without a GPU it makes two tiny steps."""

import argparse
import os

import torch
import yaml
from torch import nn


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", help="a YAML file with values for the other options")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    if args.config:
        with open(args.config) as file:
            parser.set_defaults(**yaml.safe_load(file))
        args = parser.parse_args()
    return args


def main():
    args = parse_args()
    vocabulary, width = 50000, 256
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        vocabulary, width, args.batch_size, args.seq_len, args.steps = 100, 32, 1, 8, 2
    torch.manual_seed(0)
    is_job = "WORLD_SIZE" in os.environ
    if is_job:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    model = Model(vocabulary, width, layers=4).to(device)
    if is_job:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        tokens = torch.randint(vocabulary, (args.batch_size, args.seq_len), device=device)
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if is_job:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
