"""Two processes on one card: each one sees in the free memory what the other holds."""

import subprocess
import sys

import torch

GIB = 2**30


def child():
    free, _ = torch.cuda.mem_get_info()
    block = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    print(free, torch.cuda.mem_get_info()[0], block.numel())
    print(torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated())


def main():
    torch.zeros(1, device="cuda")
    before, _ = torch.cuda.mem_get_info()
    block = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
    held = torch.cuda.mem_get_info()[0]
    output = subprocess.run(
        [sys.executable, __file__, "child"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    child_before, child_after, child_bytes, child_reserved, child_allocated = map(int, output.split())
    after = torch.cuda.mem_get_info()[0]

    assert before - held == block.numel(), (before, held)
    assert child_before <= held, "the child does not see what its parent holds"
    assert child_before - child_after == child_bytes, (child_before, child_after)
    assert after == held, "the card still holds what the child had, though the child has ended"
    print("each saw the other")
    # The report's framework figures are the sum over the processes of a card.
    print(f"max_memory_reserved={torch.cuda.max_memory_reserved() + child_reserved}")
    print(f"max_memory_allocated={torch.cuda.max_memory_allocated() + child_allocated}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        child()
    else:
        main()
