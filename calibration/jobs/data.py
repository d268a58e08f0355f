"""Data that means nothing, every sample as long as is asked."""

import torch
from datasets import Dataset
from torch.utils.data import Dataset as Samples


class Tokens(Samples):
    """Samples of `length` tokens with a label each."""

    def __init__(self, length, count=64):
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        generator = torch.Generator().manual_seed(place)
        ids = torch.randint(3, 250, (self.length,), generator=generator)
        return {"input_ids": ids, "labels": ids.clone()}


def pairs(length, count=64):
    """A prompt and two answers that together are `length` tokens with the end, a character each."""
    half = length // 2
    answer = "a" * (length - half - 1)
    return Dataset.from_list([{"prompt": "p" * half, "chosen": answer, "rejected": answer[::-1]}] * count)


def prompts(length, count=64):
    """Prompts of so many characters."""
    return Dataset.from_list([{"prompt": "p" * length}] * count)


def sentences(length, count=64):
    """Pairs of texts that are longer than so many tokens."""
    return Dataset.from_list([{"anchor": "a" * length, "positive": "b" * length}] * count)
