"""Notes which samples a program took, in the order in which it took them, so that two runs can be compared."""

import os

import torch


def begin():
    """The program was started, perhaps not for the first time."""
    note("start")


def note(words):
    if os.environ.get("RANK", "0") == "0":
        with open("seen.txt", "a") as file:
            file.write(words + "\n")


def taken(indices):
    """A batch of these samples was made."""
    note(" ".join(str(int(index)) for index in indices))


def made(steps):
    """The training has made so many optimizer steps in all."""
    note("steps %d" % steps)
    print("steps=%d" % steps)


class Numbers(torch.utils.data.Dataset):
    """Samples with a number of their own. One of them may be much longer than the others."""

    def __init__(self, count, length, longest=None, at=None, vocabulary=1000):
        self.count, self.length, self.longest, self.at = count, length, longest, at
        self.vocabulary = vocabulary

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        length = self.longest if index == self.at else self.length + index % 8
        return {"index": index, "input_ids": torch.full((length,), index % self.vocabulary)}


def padded(samples):
    """A batch of texts, as long as the longest."""
    taken(sample["index"] for sample in samples)
    longest = max(len(sample["input_ids"]) for sample in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sample in enumerate(samples):
        ids[row, : len(sample["input_ids"])] = sample["input_ids"]
        mask[row, : len(sample["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids}
