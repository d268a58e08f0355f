"""A transformer encoder with flags for the batch and for accumulation."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("-b", "--batch-size", type=int, default=32)
    p.add_argument("--accum-steps", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


def main(args):
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(TensorDataset(torch.rand(256, 128, 512)), batch_size=args.batch_size, shuffle=True)
    for step, (x,) in enumerate(loader):
        loss = model(x.cuda()).square().mean() / args.accum_steps
        loss.backward()
        if (step + 1) % args.accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(get_args())
