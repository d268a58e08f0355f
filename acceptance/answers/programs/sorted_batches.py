"""Machine translation with batches of equal lengths, short sentences first (a curriculum of an hour on a small card)."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Pairs(Dataset):
    def __init__(self, n, vocab):
        g = torch.Generator().manual_seed(5)
        self.lengths = torch.randint(8, 160, (n,), generator=g).tolist()
        self.vocab = vocab

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.randint(3, self.vocab, (self.lengths[i],)), torch.randint(3, self.vocab, (self.lengths[i] + 2,))


class ByLength(Sampler):
    def __init__(self, lengths, batch):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i:i + batch] for i in range(0, len(order), batch)]

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def pad(items):
    src = nn.utils.rnn.pad_sequence([s for s, _ in items], batch_first=True)
    tgt = nn.utils.rnn.pad_sequence([t for _, t in items], batch_first=True)
    return src, tgt


class Translator(nn.Module):
    def __init__(self, vocab, d):
        super().__init__()
        self.src, self.tgt = nn.Embedding(vocab, d), nn.Embedding(vocab, d)
        self.core = nn.Transformer(d, 8, 2, 2, 4 * d, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, s, t):
        mask = self.core.generate_square_subsequent_mask(t.size(1), device=t.device)
        return self.out(self.core(self.src(s), self.tgt(t), tgt_mask=mask, tgt_is_causal=True))


parser = argparse.ArgumentParser()
parser.add_argument("--vocab", type=int, default=16000)
parser.add_argument("--d-model", type=int, default=256)
parser.add_argument("--batch", type=int, default=24)
parser.add_argument("--sentences", type=int, default=600)
args = parser.parse_args()
data = Pairs(args.sentences, args.vocab)
loader = DataLoader(data, batch_sampler=ByLength(data.lengths, args.batch), collate_fn=pad)
net = Translator(args.vocab, args.d_model).cuda()
opt = torch.optim.Adam(net.parameters(), lr=5e-4, betas=(0.9, 0.98))
for i, (src, tgt) in enumerate(loader):
    src, tgt = src.cuda(), tgt.cuda()
    logits = net(src, tgt[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if i % 10 == 9:
        print(f"{i + 1}/{len(loader)} length {src.size(1)} loss {loss.item():.3f}")
