"""One way to run out of memory for each cause that `oomph explain` knows, with PyTorch's own recording of it.

`causes.py CASE SNAPSHOT` runs a case until it dies and leaves the snapshot; it prints the cause that the explanation
has to come to. The sizes are meant for a card of 12 GiB.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

GIB = 2**30
MIB = 2**20


def blob(size):
    """A tensor of so many bytes."""
    return torch.empty(int(size), dtype=torch.uint8, device="cuda")


def record(max_entries=1_000_000):
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=max_entries)


def mlp(width, depth):
    """A model made on the card, so that the host computes no random numbers."""
    with torch.device("cuda"):
        return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)])


def rows(count, width):
    """A batch."""
    return torch.randn(count, width, device="cuda")


def train(model, optimizer, batches, keep=lambda loss: None):
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch()).square().mean()
        keep(loss)
        loss.backward()
        optimizer.step()


def does_not_fit():
    """does-not-fit: weights of 32 GiB."""
    record()
    mlp(16384, 32)


def single_allocation():
    """single-allocation-too-large: the scores of attention over 64 k tokens, at once."""
    record()
    tokens = torch.empty(65536, 64, device="cuda")
    functional.softmax(tokens @ tokens.T, dim=-1)


def fragments():
    """fragmentation: a small tensor in each segment keeps the segment when the large ones are gone."""
    record()
    large, small = [], []
    for _ in range(110):
        whole = blob(100 * MIB)
        del whole
        small.append(blob(4 * MIB))
        large.append(blob(96 * MIB))
    large.clear()
    blob(2 * GIB)


def leak_losses():
    """leak: losses that keep their graphs."""
    record()
    model = mlp(4096, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []

    def keep(loss):
        losses.append(loss)

    for _ in range(1000):
        optimizer.zero_grad()
        loss = model(rows(2048, 4096)).square().mean()
        keep(loss)
        # A graph that is still referenced can only be kept whole.
        loss.backward(retain_graph=True)
        optimizer.step()


def leak_outputs():
    """leak: the outputs of an evaluation, all kept on the card."""
    record()
    model = mlp(4096, 4).eval()
    outputs = []
    with torch.no_grad():
        while True:
            batch = rows(8192, 4096)
            outputs.append(model(batch))


def kept_results():
    """kept-from-earlier-phase: the results of one evaluation, held while training goes on."""
    record()
    model = mlp(4096, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = lambda: rows(4096, 4096)
    train(model, optimizer, [batch] * 3)
    with torch.no_grad():
        results = [model(rows(32768, 4096)) for _ in range(14)]
    train(model, optimizer, [batch] * 3)
    # What would have fitted without the results.
    copy = [blob(512 * MIB) for _ in range(12)]
    return results, copy


def kept_by_exception():
    """kept-from-earlier-phase: the second attempt is made while the exception holds the frames of the first."""
    record()
    model = mlp(4096, 64)

    def attempt(count):
        model(rows(count, 4096)).square().mean().backward()

    try:
        attempt(8192)
    except torch.OutOfMemoryError:
        attempt(4096)


def earlier_model():
    """kept-from-earlier-phase: a model that has done its work is held while the next one is made."""
    record()
    encoder = mlp(8192, 24)
    with torch.no_grad():
        for _ in range(4):
            encoded = encoder(rows(64, 8192))
    decoder = mlp(16384, 6)
    return encoder, decoder, encoded


def longest_batch():
    """longest-batch: the lengths differ, and the longest comes late."""
    record()
    model = mlp(2048, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lengths = [6000, 5000, 7000, 6500, 5500, 6000, 32000]
    train(model, optimizer, [lambda count=count: rows(count, 2048) for count in lengths])


def lazy_optimizer():
    """lazy-optimizer-state: forward and backward fit, and then Adam makes its state."""
    record()
    model = mlp(8192, 16)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, [lambda: rows(16, 8192)] * 3)


def other_stream():
    """cache-of-another-stream: what a side stream has freed stays with it."""
    record()
    side = torch.cuda.Stream()
    held, rest = [], []
    with torch.cuda.stream(side):
        for _ in range(90):
            whole = blob(100 * MIB)
            del whole
            held.append(blob(12 * MIB))
            rest.append(blob(88 * MIB))
        rest.clear()
    blob(4 * GIB)


def other_pool():
    """cache-of-another-pool: what a CUDA graph has freed stays with the graph."""
    record()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        temporary = blob(7 * GIB)
        result = temporary[:1024].clone()
        del temporary
    blob(6 * GIB)
    return result


def memory_limit():
    """memory-limit: the program allows itself half of the card."""
    record()
    torch.cuda.set_per_process_memory_fraction(0.5)
    held = [blob(GIB) for _ in range(12)]
    return held


def recorded_too_late():
    """recorded-too-late: the model was there before the recording began."""
    model = mlp(8192, 24)
    record()
    model(rows(65536, 8192))


def ring_too_short():
    """ring-too-short: the recording holds the last 300 events only."""
    record(max_entries=300)
    model = mlp(8192, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        for _ in range(20):
            model(rows(1024, 8192))
    return train(model, optimizer, [lambda: rows(1024, 8192)])


CASES = {
    case.__name__: case
    for case in [
        does_not_fit,
        single_allocation,
        fragments,
        leak_losses,
        leak_outputs,
        kept_results,
        kept_by_exception,
        earlier_model,
        longest_batch,
        lazy_optimizer,
        other_stream,
        other_pool,
        memory_limit,
        recorded_too_late,
        ring_too_short,
    ]
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("snapshot")
    args = parser.parse_args()

    case = CASES[args.case]
    print(f"expected={case.__doc__.split(':')[0]}", flush=True)
    try:
        case()
    except torch.OutOfMemoryError as error:
        torch.cuda.memory._dump_snapshot(args.snapshot)
        print(error)
    else:
        torch.cuda.memory._dump_snapshot(args.snapshot)
        print("nothing failed")


if __name__ == "__main__":
    main()
