"""A data set of random tokens, for programs that train language models."""

import torch


class Tokens(torch.utils.data.Dataset):
    """So many samples of so many tokens, the same at every run."""

    def __init__(self, count, length, vocabulary, classes=None):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocabulary, (count, length), generator=generator)
        self.labels = self.tokens if classes is None else torch.randint(0, classes, (count,), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}
