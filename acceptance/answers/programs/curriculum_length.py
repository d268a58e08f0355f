"""A language model whose context grows while it trains: 64 tokens at first, 32 more every fourth step, 512 at most."""
import itertools

import torch
import torch.nn as nn

VOCAB, DIM, MAX_STEPS = 32000, 256, 64


class LM(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(1024, DIM)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(DIM, 4, 4 * DIM, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        n = ids.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=ids.device)
        h = self.tok(ids) + self.pos(torch.arange(n, device=ids.device))
        for block in self.blocks:
            h = block(h, src_mask=mask, is_causal=True)
        return self.head(h)


def context(step):
    return min(512, 64 + 32 * (step // 4))


def tokens():
    g = torch.Generator().manual_seed(0)
    for step in itertools.count():
        yield torch.randint(VOCAB, (8, context(step) + 1), generator=g)


model = LM().cuda()
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
global_step = 0
for ids in tokens():
    ids = ids.cuda()
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    global_step += 1
    if global_step % 15 == 0:
        print(f"step {global_step} context {ids.size(1) - 1} loss {loss.item():.3f}")
    if global_step >= MAX_STEPS:
        break
