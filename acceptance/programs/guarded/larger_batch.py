"""Texts of up to 600 tokens and one of 4096: the batch that holds it comes late, and is too much for the card."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def padded(samples):
    return pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)


def main():
    texts = [{"input_ids": torch.ones(200 + number * 37 % 401, dtype=torch.long)} for number in range(320)]
    texts[250] = {"input_ids": torch.ones(4096, dtype=torch.long)}
    model = nn.Sequential(nn.Embedding(2000, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 8000)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for ids in DataLoader(texts, batch_size=8, collate_fn=padded):
        ids = ids.cuda()
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("ended")


if __name__ == "__main__":
    main()
