#!/usr/bin/env python3
"""Reads anew what `oomph fix` says that a fix does to the result, and what it does, in `meaning.csv`.

    meaning.py OOMPH PYTHON [CASE...]

Each case is a training written from the parts below, with 250 samples in batches of 16, so that the last batch is not full. `oomph fix`
is asked for a smaller micro-batch and for checkpointing. For the truth each patch is applied, and the program and the patched program
run on the processor in double precision with small sizes; what is compared are all weights, buffers and averages at the end, and what
was printed. Where a case draws random numbers on its way, only what does not hang on their order can be the same.
"""

import csv
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "meaning.csv")
FIELDS = ["date", "case", "remedy", "result", "difference", "first", "truth", "prints", "agrees", "seconds"]

HEAD = """import copy, math, torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
N, BATCH, L, W, DEPTH, K = 256, 64, 512, 1024, 16, 7
dev = "cuda" if torch.cuda.is_available() else "cpu"

class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.fc = nn.Linear(w, w)%(norm_init)s
    def forward(self, x):
        return x + torch.tanh(%(norm)s)

class Net(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.inp = nn.Linear(16, W)
        self.blocks = nn.ModuleList([Block(W) for _ in range(DEPTH)])
        self.head = nn.Linear(W, out)
    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = b(x)
        return self.head(%(pool)s)

xs = torch.randn(N, L, 16)
ys = %(targets)s
%(loader)s
net = Net(K).to(dev)
%(setup)s
opt = %(optimizer)s
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(dev), y.to(dev)
        opt.zero_grad()
%(loss)s
        loss.backward()
%(after)s
        opt.step()
%(end)s
    print(epoch, %(shown)s)
"""
PLAIN = {
    "norm_init": "", "norm": "self.fc(x)", "pool": "x.mean(1)", "targets": "torch.randint(0, K, (N,))", "setup": "",
    "loader": "loader = DataLoader(TensorDataset(xs, ys), batch_size=BATCH, shuffle=True)",
    "optimizer": "torch.optim.SGD(net.parameters(), lr=0.1)", "loss": "loss = F.cross_entropy(net(x), y)", "after": "", "end": "",
    "shown": "round(loss.item(), 6)",
}
REAL = "torch.randn(N, K)"
CASES = {
    "mean": {},
    "adamw": {"optimizer": "torch.optim.AdamW(net.parameters(), lr=1e-3)"},
    "sum": {"loss": "loss = F.cross_entropy(net(x), y, reduction='sum')", "optimizer": "torch.optim.SGD(net.parameters(), lr=1e-3)"},
    "class-weights": {"setup": "judge = nn.CrossEntropyLoss(weight=torch.arange(1., K + 1).to(dev))", "loss": "loss = judge(net(x), y)"},
    "ignored-labels": {
        "setup": "ys[::3] = -100\njudge = nn.CrossEntropyLoss(ignore_index=-100)", "loss": "loss = judge(net(x), y)",
    },
    "mask": {
        "targets": "(torch.rand(N) > 0.4).float()",
        "loss": "per = net(x).square().mean(1)\nloss = (per * y).sum() / y.sum()",
    },
    "root": {"targets": REAL, "loss": "loss = torch.sqrt(F.mse_loss(net(x), y))"},
    "ratio": {
        "targets": "torch.rand(N, K)",
        "loss": "p = torch.sigmoid(net(x))\nloss = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())",
    },
    "huber": {"targets": REAL, "loss": "loss = F.smooth_l1_loss(net(x), y)"},
    "distillation": {
        "setup": "teacher = copy.deepcopy(net).eval()",
        "loss": "with torch.no_grad():\n    soft = F.softmax(teacher(x) / 2, 1)\n"
                "out = net(x)\nloss = F.kl_div(F.log_softmax(out / 2, 1), soft, reduction='batchmean') + F.cross_entropy(out, y)",
    },
    "advantages": {
        "targets": "torch.randn(N)",
        "loss": "a = (y - y.mean()) / (y.std() + 1e-6)\nloss = -(F.log_softmax(net(x), 1)[:, 0] * a).mean()",
    },
    "advantages-inside": {
        "targets": "torch.randn(N)",
        "loss": "v = net(x)\na = y - v[:, 1].detach()\na = (a - a.mean()) / (a.std() + 1e-6)\n"
                "loss = -(F.log_softmax(v, 1)[:, 0] * a).mean()",
    },
    "contrast-einsum": {
        "loss": "z = F.normalize(net(x), dim=1)\ns = torch.einsum('id,jd->ij', z, z.roll(1, 1)) * 5\n"
                "loss = F.cross_entropy(s, torch.arange(len(s), device=s.device))",
    },
    "contrast-cosine": {
        "loss": "z = net(x)\ns = F.cosine_similarity(z[:, None], z.roll(1, 1)[None], dim=2) * 5\n"
                "loss = F.cross_entropy(s, torch.arange(len(s), device=s.device))",
    },
    "decorrelation": {
        "loss": "z = net(x)\nz = (z - z.mean(0)) / (z.std(0) + 1e-5)\nc = z.t() @ z / len(z)\nloss = (c - torch.eye(K, device=c.device)).square().sum()",
    },
    "batch-norm": {"norm_init": "\n        self.bn = nn.BatchNorm1d(w)", "norm": "self.bn(self.fc(x).transpose(1, 2)).transpose(1, 2)"},
    "dropout": {"norm": "F.dropout(self.fc(x), 0.1, self.training)"},
    "own-statistics": {
        "norm_init": "\n        self.register_buffer('seen', torch.zeros(()))",
        "norm": "self.note(self.fc(x))",
        "extra": "    def note(self, x):\n        self.seen.lerp_(x.detach().abs().mean(), 0.1)\n        return x\n",
    },
    "average": {
        "setup": "slow = copy.deepcopy(net)",
        "end": "with torch.no_grad():\n    for s, f in zip(slow.parameters(), net.parameters()):\n        s.lerp_(f, 0.05)",
    },
    "average-in-a-dict": {
        "setup": "slow = {k: v.clone() for k, v in net.state_dict().items()}",
        "end": "for k, v in net.state_dict().items():\n    slow[k].mul_(0.9).add_(v, alpha=0.1)",
    },
    "own-clipping": {
        "after": "for q in net.parameters():\n    q.grad.mul_((0.01 * q.detach().norm() / (q.grad.norm() + 1e-6)).clamp(max=1))",
    },
    "clipping-and-schedule": {
        "setup": "sizes = []", "after": "sizes.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0).item())",
        "optimizer": "torch.optim.AdamW(net.parameters(), lr=1e-3)\n"
                     "plan = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, epochs=2, steps_per_epoch=len(loader))",
        "end": "plan.step()",
    },
    "rate-by-hand": {"setup": "all_steps = 2 * len(loader)",
                     "loss": "for g in opt.param_groups:\n    g['lr'] = 0.1 * (1 - (epoch * len(loader) + i) / all_steps)\nloss = F.cross_entropy(net(x), y)"},
    "noise": {"after": "for q in net.parameters():\n    q.grad.add_(torch.randn(q.shape, generator=noise).to(q.device), alpha=1e-3)",
              "setup": "noise = torch.Generator().manual_seed(5)"},
    "counter": {"setup": "seen = 0\nhits = torch.zeros(K, device=dev)",
                "loss": "out = net(x)\nloss = F.cross_entropy(out, y)",
                "end": "seen += len(x)\nhits += F.one_hot(out.argmax(1), K).sum(0)",
                "shown": "round(loss.item(), 6), seen, int(hits.sum())"},
    "two-losses": {"loss": "out = net(x)\nfirst = F.cross_entropy(out, y)\nsecond = out.square().mean()\nloss = first + 0.1 * second",
                   "end": "log.append((first.item(), second.item()))", "setup": "log = []",
                   "shown": "round(loss.item(), 6), round(log[-1][0], 6), round(log[-1][1], 6)"},
    "running-mean": {"setup": "total = 0.0", "end": "total += loss.item() * x.size(0)", "shown": "round(total / N, 6)"},
    "scaler": {"setup": "scaler = torch.amp.GradScaler(dev)",
               "loss": "with torch.autocast(dev, dtype=torch.bfloat16):\n    loss = F.cross_entropy(net(x), y)",
               "plain-backward": "scaler.scale(loss).backward()", "plain-step": "scaler.step(opt); scaler.update()"},
    "gradient-penalty": {"loss": "x.requires_grad_()\nout = net(x)\ng, = torch.autograd.grad(out.sum(), x, create_graph=True)\n"
                                 "loss = F.cross_entropy(out, y) + g.square().sum((1, 2)).mean()"},
    "last-batch-dropped": {"loader": "loader = DataLoader(TensorDataset(xs, ys), batch_size=BATCH, shuffle=True, drop_last=True)"},
    "state": {"setup": "state = torch.zeros(K, device=dev)", "loss": "out = net(x) + state\nstate = out.detach().mean(0)\nloss = F.cross_entropy(out, y)"},
}
SMALL = "N, BATCH, L, W, DEPTH, K = 250, 16, 5, 16, 3, 7"
#: The last digits of double precision after some thirty steps, where a case has single precision in it.
ROUNDING = 1e-8

DOUBLE = "import torch; torch.set_default_dtype(torch.float64); torch.set_num_threads(1); torch.autocast = lambda *a, **k: __import__('contextlib').nullcontext()\n"
KEEP = """
_kept = {}
for _name, _value in [(n, v) for n, v in globals().items() if not n.startswith("_")]:
    if isinstance(_value, torch.nn.Module):
        _kept.update({"%s.%s" % (_name, k): v.detach().double() for k, v in _value.state_dict().items() if v.is_floating_point()})
    elif isinstance(_value, dict):
        _kept.update({"%s[%s]" % (_name, k): v.detach().double() for k, v in _value.items() if isinstance(v, torch.Tensor)})
    elif _name in ("hits", "state", "sizes"):
        _kept[_name] = torch.as_tensor(_value).double()
import sys as _sys
torch.save(_kept, _sys.argv[1])
"""


def program(case):
    """The text of a case."""
    parts = {**PLAIN, **CASES[case]}
    for name in ("loss", "after", "end"):
        lines = parts[name].splitlines() or [""]
        parts[name] = "\n".join("        " + line if line else "" for line in lines)
    text = HEAD % parts
    text = text.replace("        loss.backward()", "        " + parts.get("plain-backward", "loss.backward()"))
    text = text.replace("        opt.step()\n", "        " + parts.get("plain-step", "opt.step()") + "\n")
    if "extra" in parts:
        text = text.replace("\nclass Net", parts["extra"] + "\nclass Net", 1)
    return re.sub(r"\n\n\n+", "\n\n", re.sub(r"\n[ ]+\n", "\n", text))


def truth(python, text, folder, name):
    """What a program keeps and prints with small sizes on the processor, or its error."""
    path = os.path.join(folder, name + ".py")
    with open(path, "w") as file:
        file.write(DOUBLE + re.sub(r"^N, BATCH, .*", SMALL, text, flags=re.M) + KEEP)
    done = subprocess.run([python, path, path + ".pt"], capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1]
    compare = "import sys, torch, json; a = torch.load(sys.argv[1]); print(json.dumps({k: v.flatten().tolist() for k, v in a.items()}))"
    shown = subprocess.run([python, "-c", compare, path + ".pt"], capture_output=True, text=True, check=True)
    return json.loads(shown.stdout), done.stdout


def apart(one, other):
    """The largest relative difference of what both keep, and its name."""
    worst = (0.0, "")
    for name, before in one.items():
        after = other.get(name)
        if after is None or len(after) != len(before):
            continue
        far = sum((a - b) ** 2 for a, b in zip(before, after)) ** 0.5
        worst = max(worst, (far / (sum(a * a for a in before) ** 0.5 or 1.0), name))
    return worst


def read(oomph, python, case):
    """The rows of a case."""
    text = program(case)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "train.py"), "w") as file:
            file.write(text)
        words = [oomph, "fix", "--gpu", "gtx-1650", "--allow", "micro-batch,gradient-checkpointing", "--format", "json", "--", python, "train.py"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        day = datetime.date.today().isoformat()
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            yield {"date": day, "case": case, "result": "no answer", "agrees": "no", "first": done.stderr.strip()[-200:]}
            return
        before, printed = truth(python, text, folder, "before")
        for fix in answer["fixes"]:
            found = fix.get("comparison") or {}
            row = {
                "date": day, "case": case, "remedy": "+".join(fix["remedies"]), "result": fix["result"], "seconds": round(answer["elapsed_seconds"]),
                "difference": "" if found.get("difference") is None else "%.1e" % found["difference"],
                "first": found.get("first") or found.get("why") or "; ".join(found.get("reduced", [])[2:]),
            }
            with open(os.path.join(folder, "train.py"), "w") as file:
                file.write(text)
            if not fix.get("patch"):
                yield {**row, "truth": "no patch", "agrees": ""}
                continue
            subprocess.run(["git", "apply", "--unsafe-paths", "-"], input=fix["patch"], text=True, cwd=folder, check=True, capture_output=True)
            with open(os.path.join(folder, "train.py")) as file:
                after, said = truth(python, file.read(), folder, "after")
            if before is None or after is None:
                yield {**row, "truth": "fails: %s" % (printed if before is None else said), "agrees": ""}
                continue
            far, name = apart(before, after)
            numbers = [[float(n) for n in re.findall(r"[-\d.e]+", s)] for s in (printed, said)]
            alike = len(numbers[0]) == len(numbers[1]) and all(abs(a - b) <= 2e-6 + 1e-6 * abs(a) for a, b in zip(*numbers))
            same = far <= ROUNDING and alike
            claims = fix["result"] in ("same", "equivalent")
            fits = claims == same or fix["result"] in ("not-compared", "same-in-distribution")
            yield {**row, "truth": ("%.1e %s" % (far, name if far > ROUNDING else "")).strip(), "prints": "same" if alike else "other", "agrees": "yes" if fits else "no"}


def main():
    oomph, python = os.path.abspath(sys.argv[1]), sys.argv[2]
    wanted = sys.argv[3:] or list(CASES)
    rows = []
    if os.path.exists(TABLE):
        with open(TABLE, newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["case"] not in wanted]
    for case in wanted:
        for row in read(oomph, python, case):
            print(row, flush=True)
            rows.append(row)
        rows.sort(key=lambda row: (list(CASES).index(row["case"]), row.get("remedy", "")))
        with open(TABLE, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    wrong = ["%s %s" % (row["case"], row.get("remedy", "")) for row in rows if row.get("agrees") == "no"]
    print("%d rows, wrong: %s" % (len(rows), ", ".join(wrong) or "none"))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
