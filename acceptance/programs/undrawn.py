"""Weights that are initialised on the host leave the generator where drawing them would have left it."""

import torch
from torch import nn

from common import print_peaks


def drawn(weight, method):
    """The method itself, by somebody who wants the numbers."""
    getattr(weight, method)()
    assert weight.std() > 0, "a tensor that is not a weight was not drawn"


def main():
    undrawn = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for seed, before, shape in ((0, 0, (1024, 768)), (1, 7, (1001, 1003)), (2, 1300, (4096, 4096)), (3, 624, (64, 8))):
            weight = torch.empty(shape, dtype=dtype)
            for method, initialise in (
                ("normal_", nn.init.normal_), ("normal_", nn.init.kaiming_normal_), ("uniform_", nn.init.xavier_uniform_),
            ):
                numbers = []
                for draw in (lambda: drawn(weight, method), lambda: initialise(weight)):
                    torch.manual_seed(seed)
                    torch.rand(before)
                    draw()
                    numbers.append(torch.cat([torch.rand(1300), torch.randn(40)]))
                assert torch.equal(*numbers), (dtype, seed, shape, method)
                undrawn += not weight.any()
    nn.Linear(8, 8).to("cuda")
    print(f"undrawn={undrawn}")
    print_peaks()


main()
