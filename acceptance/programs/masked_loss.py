"""A loss over the positions that have a label, as TRL's trainers compute it: counted forwards, again and backwards."""

import torch
from torch.utils.checkpoint import checkpoint

from common import device, print_peaks

SEQUENCES, LENGTH, WIDTH, WORDS = 4, 512, 256, 1000


def per_token(hidden, labels, head):
    mask = labels != -100
    scores = head(hidden[mask])
    chosen = torch.log_softmax(scores.float(), dim=-1).gather(1, labels[mask].unsqueeze(1)).squeeze(1)
    return chosen.new_zeros(mask.shape).masked_scatter(mask, chosen)


def soil():
    """Leaves small blocks behind that hold large numbers, as a program does that ran for a while."""
    for size in (64, 512, 4096):
        blocks = [torch.full((size,), 1_163_325_440, device=device()) for _ in range(64)]
        del blocks


def main():
    torch.manual_seed(0)
    body = torch.nn.Linear(WIDTH, WIDTH, device=device())
    head = torch.nn.Linear(WIDTH, WORDS, bias=False, device=device())
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])
    labels = torch.randint(0, WORDS, (SEQUENCES, LENGTH), device=device())
    labels[:, : LENGTH // 2] = -100
    for _ in range(3):
        hidden = body(torch.randn(SEQUENCES, LENGTH, WIDTH, device=device()))
        logged = checkpoint(per_token, hidden, labels, head, use_reentrant=False)
        loss = -logged.sum() / (labels != -100).sum()
        soil()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"counted={int((labels != -100).sum())}")
    print_peaks()


if __name__ == "__main__":
    main()
