"""Trainings whose memory moves from step to step and does not fill the card: fluctuating.py MODE [KEPT].

With KEPT each step also keeps up to so many MiB forever, and the program goes on until the card is full.
"""

import collections
import random
import sys

import torch
from torch import nn

random.seed(0)


def perceptron(width=512, layers=4):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)]).cuda()


class Reader(nn.Module):
    """A small transformer over tokens."""

    def __init__(self, width=256):
        super().__init__()
        self.embed = nn.Embedding(8000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 8000)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids)))


def tokens(batch, length):
    return torch.randint(0, 8000, (batch, length), device="cuda")


def language_loss(model, ids):
    return nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def lengths(steps):
    """Each batch is as long as its longest text."""
    model = Reader().cuda()
    yield model
    for _ in range(steps):
        yield language_loss(model, tokens(16, max(random.randint(16, 320) for _ in range(4))))


def buckets(steps):
    """Texts of like lengths come together, in changing order."""
    model = Reader().cuda()
    yield model
    for _ in range(steps):
        length = random.choice([32, 64, 128, 256])
        yield language_loss(model, tokens(4096 // length, length))


def samples(steps):
    """Batches of random sizes, as a filter leaves them."""
    model = perceptron()
    yield model
    for _ in range(steps):
        yield model(torch.randn(random.randint(64, 4096), 512, device="cuda")).square().mean()


def resolutions(steps):
    """Images of another size each ten steps."""
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 1, 1)).cuda()
    yield model
    for step in range(steps):
        if step % 10 == 0:
            side = random.choice([96, 128, 160, 192, 224, 256])
        yield model(torch.randn(8, 3, side, side, device="cuda")).square().mean()


def replay(steps):
    """A buffer that is full after forty steps and then forgets."""
    model = perceptron()
    yield model
    seen = collections.deque(maxlen=40)
    for _ in range(steps):
        seen.append(torch.randn(1024, 512, device="cuda"))
        yield model(torch.cat(random.sample(seen, min(8, len(seen))))).square().mean()


def evaluation(steps):
    """Every fifteenth step keeps what an evaluation found until the next."""
    model = perceptron()
    yield model
    found = []
    for step in range(steps):
        if step % 15 == 0:
            found = [torch.randn(random.randint(256, 4096), 512, device="cuda") for _ in range(10)]
        yield model(torch.randn(512, 512, device="cuda")).square().mean() + 0 * sum(one.mean() for one in found)


def waves(steps):
    """Lengths rise for thirty steps and begin again."""
    model = Reader().cuda()
    yield model
    for step in range(steps):
        yield language_loss(model, tokens(16, 32 + 8 * (step % 30)))


def history(steps):
    """Losses are kept with their graphs and let go of every twentieth step."""
    model = perceptron()
    yield model
    losses = []
    for step in range(steps):
        loss = model(torch.randn(2048, 512, device="cuda")).square().mean()
        losses.append(loss)
        if step % 20 == 19:
            losses.clear()
        yield loss


def graphs(steps):
    """Graphs with as many nodes and edges as chance has it."""
    model = perceptron()
    yield model
    for _ in range(steps):
        nodes = int(random.lognormvariate(7, 0.6)) + 16
        edges = torch.randint(0, nodes, (2, 8 * nodes), device="cuda")
        states = torch.randn(nodes, 512, device="cuda")
        gathered = torch.zeros_like(states).index_add_(0, edges[0], states[edges[1]])
        yield model(gathered).square().mean()


def losing(steps):
    """A cache of features with random evictions."""
    model = perceptron()
    yield model
    cache = {}
    for step in range(steps):
        cache[step] = torch.randn(random.randint(64, 2048), 512, device="cuda")
        while len(cache) > 12 and random.random() < 0.9:
            del cache[random.choice(list(cache))]
        yield model(cache[max(cache)]).square().mean()


MODES = {
    one.__name__: one
    for one in (lengths, buckets, samples, resolutions, replay, evaluation, waves, history, graphs, losing)
}  # fmt: skip


def main():
    kept = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    losses, held = MODES[sys.argv[1]](10**6 if kept else 150), []
    optimizer = torch.optim.AdamW(next(losses).parameters())
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kept:
            held.append(torch.empty(random.randint(1, kept << 20), dtype=torch.uint8, device="cuda"))
    print("peak=%d" % torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
