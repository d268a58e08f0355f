"""What `oomph run --record` costs: `recorder.py OOMPH PYTHON ROUNDS OUT.csv`.

GPT-2 (12 layers, batch 4 of 512 tokens) and ResNet-50 (batch 32) take optimizer steps on a virtual card, where kernels take no
time: a step is what the host does, so that the ratios are those of a program that the host holds up, and the most that a
real one can see. Each round runs all settings once, in changing order; a row has the median of the rounds' medians.
"""

import csv
import os
import statistics
import subprocess
import sys
import tempfile

SETTINGS = ("off", "light", "full")

PROGRAM = """
import statistics, sys, time, torch
name = sys.argv[1]
if name == "gpt2":
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    ids = torch.randint(0, 50257, (4, 512), device="cuda")
    loss_of = lambda: model(input_ids=ids, labels=ids).loss
else:
    import torchvision
    model = torchvision.models.resnet50().cuda()
    images, classes = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (32,), device="cuda")
    loss_of = lambda: torch.nn.functional.cross_entropy(model(images), classes)
optimizer = torch.optim.AdamW(model.parameters())
taken = []
for step in range(60):
    begun = time.perf_counter()
    loss = loss_of()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    taken.append(time.perf_counter() - begun)
print("step %.6f" % statistics.median(taken[20:]))
"""


def step(oomph, python, script, model, setting):
    """The median seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        words = [oomph, "run", "--rehearse", "h100", "--no-check", "--record", setting, "--keep", folder, "--"]
        words += [python, script, model]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("step ")))


def main():
    oomph, python, rounds, out = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "steps.py")
        with open(script, "w") as file:
            file.write(PROGRAM)
        for model in ("gpt2", "resnet50"):
            taken = {setting: [] for setting in SETTINGS}
            for number in range(rounds):
                for setting in SETTINGS[number % 3 :] + SETTINGS[: number % 3]:
                    taken[setting].append(step(oomph, python, script, model, setting))
            off = statistics.median(taken["off"])
            for setting in SETTINGS:
                ratios = [one / other for one, other in zip(taken[setting], taken["off"])]
                rows.append({
                    "model": model, "record": setting, "rounds": rounds, "step_ms": "%.1f" % (1e3 * statistics.median(taken[setting])),
                    "added_ms": "%.1f" % (1e3 * (statistics.median(taken[setting]) - off)),
                    "ratio": "%.2f" % statistics.median(ratios), "least": "%.2f" % min(ratios), "most": "%.2f" % max(ratios),
                })  # fmt: skip
                print(rows[-1], flush=True)
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main()
