"""Sizes and branches that depend on values: masks, nonzero, unique, item."""

import torch

from common import device, print_peaks


def main():
    x = torch.arange(1000, device=device())
    even = x[x % 2 == 0]
    assert even.shape == (500,), even.shape
    assert torch.nonzero(x >= 990).flatten().tolist() == list(range(990, 1000))
    assert torch.unique(x // 100).numel() == 10
    assert x.sum().item() == 499500
    assert torch.masked_select(x, x < 7).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert bool((x == 999).any())

    scores = torch.linspace(0, 1, 101, device=device())
    keep = scores > 0.5
    boxes = torch.rand(101, 4, device=device())[keep]
    assert boxes.shape == (50, 4), boxes.shape
    values, order = torch.sort(scores, descending=True)
    assert values[0].item() == 1.0 and order[0].item() == 100
    if scores.max() > 0.99:
        features = torch.zeros(int(keep.sum()), 1024, 1024, device=device())
        assert features.shape[0] == 50
    else:
        raise AssertionError("the largest score is 1")
    print(f"kept={int(keep.sum())}")
    print_peaks()


if __name__ == "__main__":
    main()
