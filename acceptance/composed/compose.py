#!/usr/bin/env python3
"""Composes a program from habits that people have, one for each seed: `compose.py SEED > program.py`.

The parts are drawn independently (data, workers, collate, device, loop, precision, what is kept and how, what is done with it),
so that two habits meet that nobody thought of together. It needs PyTorch, torchvision and Transformers, and prints its own peak.
"""

from __future__ import annotations

import random
import sys

HEAD = """\
import collections, dataclasses, functools, itertools, os, random
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
torch.manual_seed({seed})
device = {device}
"""

IMAGES = """\
class Images(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return {item}
make = Images
"""

STREAM = """\
class Stream(IterableDataset):
    def __init__(self, n): self.n = n
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, self.n, stride): yield torch.randn(3, {size}, {size}), i % 10
make = Stream
"""

TENSORS = """\
def make(n): return TensorDataset(torch.randn(640, 3, {size}, {size})[torch.arange(n) % 640], torch.arange(n) % 10)
"""

COLLATE = """\
def collate(rows):
    height = max(x.shape[1] for x, _ in rows)
    padded = [F.pad(x, (0, 0, 0, height - x.shape[1])) for x, _ in rows]
    return torch.stack(padded), torch.tensor([y for _, y in rows])
"""

NET = """\
class Net(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), {norm}, nn.ReLU(), nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout({dropout}),
        )
        self.head = nn.Linear(width * 16, 10)
    def forward(self, x, features=False):
        z = self.body(x)
        return z if features else self.head(z)
model = Net().to(device)
"""

DEVICES = ("'cuda'", "torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "'cuda:0'", "torch.cuda.current_device()")
OPTIMIZERS = (
    "torch.optim.AdamW(model.parameters(), lr=1e-3)",
    "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "torch.optim.Adam([{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': 1e-2}])",
)
LOOPS = ("for b in {over}:", "for i, b in enumerate({over}):", "batches = iter({over})\nwhile (b := next(batches, None)) is not None:")
UNPACKED = ("x, y = b; x, y = x.to(device, non_blocking=True), y.to(device)", "x, y = [t.cuda() for t in b]")

#: How results are stored: before the loop, in its body, and what is made of them. `{z}` is the result of an iteration.
STORES = {
    "list": ("rows = []", "rows.append({z})", "torch.cat(rows)"),
    "host": ("rows = []", "rows.append({z}.cpu())", "torch.cat(rows).to(device)"),
    "extended": ("rows = []", "rows.extend({z})", "torch.stack(rows)"),
    "dictionary": ("rows = {{}}", "rows[i] = {z}", "torch.cat(list(rows.values()))"),
    "deque": ("rows = collections.deque()", "rows.append({z}.cpu())", "torch.cat(list(rows)).to(device)"),
    "numpy": ("rows = []", "rows.append({z}.cpu().numpy())", "torch.from_numpy(np.concatenate(rows)).to(device)"),
    "joined": ("rows = None", "z = {z}; rows = z if rows is None else torch.cat([rows, z])", "rows"),
    "buffer": (
        "rows = torch.empty({n}, {width} * 16, device=device); at = 0", "z = {z}; rows[at:at + len(z)] = z; at += len(z)",
        "rows[:at]",
    ),
    "tuple": ("rows = ()", "rows += ({z},)", "torch.cat(rows)"),
    "half": ("rows = []", "rows.append({z}.half())", "torch.cat(rows).float()"),
    "attribute": ("class Store: pass\n    store = Store(); store.rows = []", "store.rows.append({z})", "torch.cat(store.rows)"),
    "closure": ("rows = []\n    def keep(z): rows.append(z)", "keep({z})", "torch.cat(rows)"),
    "counted": ("n = 0", "n += len({z})", "torch.zeros(n, {width} * 16, device=device)"),
}

#: What is done with all results together.
USES = {
    "similarity": "sim = F.normalize(bank) @ F.normalize(bank).T; print(sim.shape)",
    "neighbours": "d = torch.cdist(bank[:2048], bank); print(d.topk(5, largest=False).indices.shape)",
    "products": "p = model.head(bank).softmax(1); print(torch.einsum('ni,nj->nij', p, p).sum(0).shape)",
    "covariance": "c = torch.cov(bank.T); print(c.shape)",
    "second loop": "print(torch.cat([model.head(part) for part in bank.split(256)]).shape)",
}

TRAINER = """\
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
class Texts(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return {{"input_ids": torch.full(({length},), 5), "labels": i % {labels}}}
config = BertConfig(vocab_size=999, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, num_labels={labels})
args = TrainingArguments("out", per_device_train_batch_size={batch}, per_device_eval_batch_size={batch}, num_train_epochs={epochs},
                         report_to=[], eval_strategy={when!r}, save_strategy="no", disable_tqdm=True)
trainer = Trainer(BertForSequenceClassification(config), args, train_dataset=Texts(640), eval_dataset=Texts({n}))
trainer.train()
bank = torch.tensor(trainer.predict(Texts({n})).predictions).cuda()
sim = bank @ bank.T
print("PEAK", torch.cuda.max_memory_allocated())
"""


class Composer:
    """Draws the parts of one program and joins them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.lines = [HEAD.format(seed=seed, device=self.pick(DEVICES))]
        self.size, self.batch, self.width = self.pick([32, 64]), self.pick([16, 32, 50]), self.pick([32, 64])

    def text(self) -> str:
        """The whole program."""
        pick = self.pick
        if pick(range(10)) == 0:
            labels, n = pick([10, 400]), pick([1500, 5001])
            when, epochs, length = pick(["no", "epoch"]), pick([1, 2]), pick([16, 48])
            return self.lines[0] + TRAINER.format(labels=labels, n=n, when=when, epochs=epochs, length=length, batch=self.batch)
        kind = self.data()
        norm = pick(["nn.BatchNorm2d(width)", "nn.Identity()", "nn.GroupNorm(8, width)"])
        self.say(NET.format(width=self.width, norm=norm, dropout=pick([0.0, 0.1])))
        self.train(kind)
        self.collect(kind)
        if pick([True, False]):
            self.say("torch.save({'model': model.state_dict(), 'opt': opt.state_dict()}, 'last.pt')")
        self.say("print('PEAK', torch.cuda.max_memory_allocated())")
        return "\n".join(self.lines) + "\n"

    def say(self, text: str, indent: int = 0) -> None:
        """Add lines."""
        self.lines += [" " * indent + line for line in text.split("\n")]

    def data(self) -> str:
        """The dataset and its loader."""
        pick, size = self.pick, self.size
        kind = pick(["pairs", "pairs", "dictionary", "tensors", "stream", "varying"])
        if kind == "tensors":
            self.say(TENSORS.format(size=size))
        elif kind == "stream":
            self.say(STREAM.format(size=size))
        else:
            height = "%d + 16 * (i %% 3)" % size if kind == "varying" else str(size)
            image = "torch.randn(3, %s, %d)" % (height, size)
            item = "{'image': %s, 'label': i %% 10, 'name': f'n{i}'}" % image if kind == "dictionary" else "(%s, i %% 10)" % image
            self.say(IMAGES.format(item=item))
        workers = pick([0, 0, 2])
        options = ["batch_size=%d" % self.batch, "num_workers=%d" % workers]
        if kind != "stream" and pick([True, False]):
            options.append("shuffle=True")
        if workers and pick([True, False]):
            options.append("persistent_workers=True")
        options += [option for option in ("pin_memory=True", "drop_last=True") if pick([True, False])]
        if kind == "varying" or kind in ("pairs", "stream") and pick([True, False]):
            self.say(COLLATE)
            options.append("collate_fn=collate")
        self.say("def load(n): return DataLoader(make(n), %s)" % ", ".join(options))
        return kind

    def unpacked(self, kind: str) -> str:
        """How a batch is sent to the card."""
        return "x, y = b['image'].to(device), b['label'].to(device)" if kind == "dictionary" else self.pick(UNPACKED)

    def train(self, kind: str) -> None:
        """A training, with what it keeps of each step."""
        pick = self.pick
        self.say("opt = " + pick(OPTIMIZERS))
        precision = pick([None, None, "torch.float16", "torch.bfloat16"])
        scaled = precision == "torch.float16"
        if scaled:
            self.say("scaler = torch.amp.GradScaler('cuda')")
        keeps = pick(["nothing", "numbers", "losses", "features", "features"])
        body = [self.unpacked(kind)]
        loss = "z = model(x, True); loss = F.cross_entropy(model.head(z), y)"
        body += ["with torch.autocast('cuda', %s):" % precision, "    " + loss] if precision else [loss]
        body += ["opt.zero_grad(set_to_none=%s)" % pick(["True", "False"])]
        body += ["scaler.scale(loss).backward(); scaler.step(opt); scaler.update()" if scaled else "loss.backward(); opt.step()"]
        kept = {"numbers": "history.append(loss.item())", "losses": "history.append(loss.detach())",
                "features": "kept.append(z.detach()%s)" % pick(["", ".cpu()", "[:4]"])}
        body += [kept[keeps]] if keeps in kept else []
        self.say("history, kept = [], []\nloader = load(%d)" % pick([640, 1000]))
        self.say("for epoch in range(%d):\n    model.train()" % pick([1, 2, 3]))
        self.loop(body, "loader", 4)
        if keeps == "losses":
            self.say("    print(epoch, torch.stack(history).mean().item())")
        if keeps == "features":
            self.say("kept = torch.cat(kept).float().to(device); print(torch.cdist(kept[:8000], kept).shape)")

    def collect(self, kind: str) -> None:
        """An evaluation that gathers, and what is done with all of it."""
        pick = self.pick
        use = pick(["nothing", "accuracy", *USES])
        if use == "nothing":
            return
        n = pick([6000, 10000])
        self.say("loader = load(%d); model.eval()" % n)
        if use == "accuracy":
            self.say("correct = total = 0\nwith torch.no_grad():")
            self.loop([self.unpacked(kind), "p = model(x).argmax(1); correct += (p == y).sum().item(); total += len(y)"], "loader", 4)
            return
        z, image = "model(x, True)", "b['image']" if kind == "dictionary" else "b[0]"
        self.say("@torch.%s()\ndef embed():" % pick(["no_grad", "inference_mode"]))
        store = pick([*STORES, "comprehension", "generator"])
        if store in ("comprehension", "generator"):
            one = "model(%s.to(device), True) for b in loader" % image
            self.say("    return torch.cat(%s)" % ("[%s]" % one if store == "comprehension" else "list(%s)" % one))
        else:
            before, during, after = (part.format(z=z, n=n, width=self.width) for part in STORES[store])
            self.say("    %s\n    for i, b in enumerate(loader):\n        %s\n        %s" % (before, self.unpacked(kind), during))
            self.say("    return " + after)
        self.say("bank = embed()\nwith torch.no_grad():\n    " + USES[use])

    def loop(self, body: list[str], over: str, indent: int) -> None:
        """A loop over a loader, in one of the ways in which people write it."""
        self.say(self.pick(LOOPS).format(over=over), indent)
        for line in body:
            self.say(line, indent + 4)


if __name__ == "__main__":
    print(Composer(int(sys.argv[1])).text(), end="")
