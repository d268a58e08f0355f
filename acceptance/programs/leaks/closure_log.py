"""A logging function made by a closure keeps the keywords that it is given."""
import torch
from torch import nn


def make_logger():
    records = []

    def log(**values):
        records.append(values)

    return log, records


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


log, records = make_logger()
model = nn.Sequential(*[Block(256) for _ in range(3)], nn.Linear(256, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(101):
    tokens = torch.randn(8, 128, 256, device="cuda")
    target = torch.randint(0, 1000, (8, 128), device="cuda")
    optimizer.zero_grad()
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    log(step=step, loss=loss, entropy=entropy)
    if step % 5 == 0:
        print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")
print(len(records), "records")
