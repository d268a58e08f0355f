"""Sentiment with a BiLSTM; sentences are padded to the longest of their batch, and one review is very long."""
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, n=1200, vocab=20000):
        rng = random.Random(0)
        lengths = [min(600, max(5, int(rng.lognormvariate(3.7, 0.5)))) for _ in range(n)]
        lengths[777] = 4000
        self.items = [(torch.randint(1, vocab, (k,)), rng.randint(0, 1)) for k in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    xs, ys = zip(*batch)
    return pad_sequence(xs, batch_first=True), torch.tensor(ys, dtype=torch.float)


class Sentiment(nn.Module):
    def __init__(self, vocab=20000, dim=300, hidden=512):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, hidden, 5, padding=2)
        self.attn = nn.Linear(hidden, 1)
        self.fc = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, 1))

    def forward(self, x):
        h = torch.relu(self.conv(self.emb(x).transpose(1, 2))).transpose(1, 2)
        w = torch.softmax(self.attn(torch.tanh(h)), dim=1)
        return self.fc((w * h).sum(1)).squeeze(1)


def main():
    torch.manual_seed(7)
    loader = DataLoader(Reviews(), batch_size=32, shuffle=True, collate_fn=collate, num_workers=0)
    model = Sentiment().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(1):
        for step, (x, y) in enumerate(loader, start=1):
            x, y = x.cuda(), y.cuda()
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(epoch, step, tuple(x.shape), loss.item())


main()
