"""A word-level LSTM language model, trained with truncated back-propagation through time."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, state=None):
        hidden, state = self.lstm(self.embedding(tokens), state)
        return self.head(hidden), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=int, default=20000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--bptt", type=int, default=70)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()

    model = LanguageModel(args.vocabulary, args.width, args.layers).to(device())
    optimizer = torch.optim.Adam(model.parameters())
    state = None
    for step in range(args.steps):
        tokens = torch.randint(0, args.vocabulary, (args.batch_size, args.bptt + 1), device=device())
        logits, state = model(tokens[:, :-1], state)
        state = tuple(s.detach() for s in state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")
    print_peaks()


if __name__ == "__main__":
    main()
