"""Small programs that end in every way a recording can: `endings.py CASE`. The sizes are meant for a card of 2 GiB.

Each case says with its first word what it does there: it `dies`, `leaks` until it dies, `recovers`, or `fits`.
"""

import argparse
import gc

import torch
from torch import nn
from torch.nn import functional

MIB = 2**20


def blob(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def mlp(width, depth):
    with torch.device("cuda"):
        return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)])


def train(model, batches, width, make=torch.optim.Adam, keep=None):
    optimizer = make(model.parameters())
    for rows in batches:
        loss = model(torch.randn(rows, width, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if keep is not None:
            keep(loss)


def dies_loading():
    return mlp(4096, 40)


def dies_in_forward():
    train(mlp(1024, 8), [64, 64, 65536], 1024)


def dies_in_backward():
    weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    inputs = torch.randn(122880, 1024, device="cuda")
    (inputs @ weight).exp().exp().sum().backward()


def dies_in_optimizer():
    train(mlp(4096, 9), [16], 4096)


def dies_fragmented():
    """Two blocks share each segment, and one of them is freed."""
    kept = [blob(9) for _ in range(140)]
    del kept[::2]
    return kept, blob(500)


def dies_of_pinned_segments():
    """Each large segment keeps a small piece in use."""
    whole = [blob(100) for _ in range(14)]
    del whole
    pins = [(blob(12), blob(80)) for _ in range(14)]
    pins = [first for first, _ in pins]
    return pins, blob(1300)


def dies_of_another_stream():
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        cached = blob(1200)
        del cached
        pin = blob(100)
    return pin, blob(700)


def dies_of_growing_batches():
    """Each batch is a little longer than the one before, so that no freed block fits again."""
    model = mlp(1024, 8)
    train(model, [2048 + 512 * step for step in range(40)], 1024)


def dies_generating():
    """A cache of keys that is copied whenever it grows."""
    cache = torch.empty(0, 64, 1024, device="cuda", dtype=torch.float16)
    while True:
        cache = torch.cat([cache, torch.empty(256, 64, 1024, device="cuda", dtype=torch.float16)])


def dies_of_attention():
    query = torch.randn(1, 16, 8192, 64, device="cuda")
    return functional.softmax(query @ query.transpose(-1, -2), dim=-1)


def leaks_losses():
    kept = []
    train(mlp(1024, 4), [4096] * 400, 1024, keep=lambda loss: kept.append(blob(24)))


def leaks_graphs():
    model = mlp(1024, 4)
    total = 0
    for _ in range(400):
        total = total + model(torch.randn(4096, 1024, device="cuda")).square().mean()


def leaks_outputs_of_evaluation():
    model = mlp(1024, 4).eval()
    outputs = []
    with torch.no_grad():
        for _ in range(400):
            outputs.append(model(torch.randn(8192, 1024, device="cuda")))


def leaks_hooks():
    model = mlp(1024, 4)
    seen = []
    model[2].register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))
    train(model, [8192] * 400, 1024)


def recovers_by_halving():
    model, rows = mlp(1024, 8), 131072
    while True:
        try:
            train(model, [rows] * 2, 1024)
            return
        except torch.OutOfMemoryError:
            rows //= 2
        gc.collect()
        torch.cuda.empty_cache()


def recovers_without_a_buffer():
    kept = blob(900)
    try:
        blob(1600)
    except torch.OutOfMemoryError:
        pass
    train(mlp(512, 4), [256] * 4, 512)
    return kept


def recovers_then_dies():
    try:
        blob(4000)
    except torch.OutOfMemoryError:
        pass
    return blob(900), blob(1400)


def recovers_by_flushing():
    """Cached blocks go back to the card when a larger one is wanted."""
    for size in (400, 600, 900, 1300, 1450):
        blob(size)


def fits_training():
    train(mlp(1024, 8), [512] * 6, 1024)


def fits_inference():
    model = mlp(2048, 8).eval()
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(256, 2048, device="cuda"))


def fits_convolutions():
    with torch.device("cuda"):
        model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.randn(16, 3, 64, 64, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def fits_mixed_precision():
    model = mlp(1024, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.randn(1024, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def fits_nearly():
    """More than three quarters of the card in one piece."""
    return blob(1536), blob(24)


CASES = {
    name.replace("_", "-"): case
    for name, case in list(globals().items())
    if name.split("_")[0] in ("dies", "leaks", "recovers", "fits")
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    result = CASES[parser.parse_args().case]()
    torch.cuda.synchronize()
    del result


if __name__ == "__main__":
    main()
