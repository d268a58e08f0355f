"""A classifier of sequences of different lengths, of which a few are much longer than the others, in a plain loop."""

import argparse

import torch
from torch import nn

from common import print_peaks


class Sequences(torch.utils.data.Dataset):
    """Mostly 32 to 64 tokens; the last eight have 1,024."""

    def __init__(self, count):
        lengths = torch.randint(32, 65, (count,), generator=torch.Generator().manual_seed(0))
        lengths[-8:] = 1024
        self.lengths = lengths.tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.full((self.lengths[index],), index % 1000)


def padded(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True)


def validate(model, batch):
    with torch.no_grad():
        model.eval()
        return model(batch).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--validate", action="store_true")
    args = parser.parse_args()
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Sequences(args.count), batch_size=args.batch_size, collate_fn=padded)
    for batch in loader:
        loss = model(batch.cuda()).logsumexp(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.validate:
            validate(model, torch.zeros(512, 4096, dtype=torch.long, device="cuda"))
            model.train()
    print_peaks()


if __name__ == "__main__":
    main()
