"""Batches whose size follows from what is in their samples, not from the shapes of these."""

import collections
import dataclasses
import random
import unittest

import support  # noqa: F401  (puts the package on the path)
from test_batches import Record

from oomph import batches, contents

try:
    import numpy
    import torch
    from torch.utils.data import DataLoader, default_collate
except ImportError:
    torch = None


def made(length, samples):
    return torch.zeros(len(samples), int(length), 2)


@dataclasses.dataclass
class Clip:
    frames: object
    seconds: float


Pair = collections.namedtuple("Pair", "x n")


def with_number(n):
    return {"x": numpy.ones(4), "n": n}


def masked(n):
    # What a tokenizer gives that pads all texts to one length.
    return {"ids": torch.arange(32), "mask": (torch.arange(32) < n).long()}


def trimmed(samples):
    mask = torch.stack([one["mask"] for one in samples])
    return torch.stack([one["ids"] for one in samples])[:, : mask.sum(1).max()]


def joined(samples):
    for one in samples:
        # As Hugging Face's collators do.
        one["label"] = one.pop("n")
    return {"x": torch.stack([torch.as_tensor(one["x"]) for one in samples]), "label": torch.tensor([one["label"] for one in samples])}


FOLLOWS = {
    "a number": (with_number, lambda s: made(max(one["n"] for one in s), s)),
    "a number that is seldom large": (with_number, lambda s: made(max(64, *(one["n"] for one in s)), s)),
    "a rounded number": (with_number, lambda s: made(-(-max(one["n"] for one in s) // 32) * 32, s)),
    "a tensor of one number": (lambda n: (torch.ones(4), torch.tensor(n)), lambda s: made(max(n for _, n in s), s)),
    "the largest of a tensor": (lambda n: (torch.tensor([1, n, 0]),), lambda s: made(torch.stack([x for x, in s]).max(), s)),
    "an array": (lambda n: (numpy.array([1, n]),), lambda s: made(max(x.max() for x, in s), s)),
    "a mask": (masked, trimmed),
    "marks": (lambda n: {"keep": torch.arange(32) < n}, lambda s: made(max(one["keep"].sum() for one in s), s)),
    "a time": (lambda n: Clip(torch.ones(4), n / 10), lambda s: made(max(one.seconds for one in s) * 10, s)),
    "a row of numbers": (lambda n: [[1, n, 2]], lambda s: made(max(max(row) for row, in s), s)),
    "a named tuple": (lambda n: Pair(torch.ones(4), n), lambda s: made(max(one.n for one in s), s)),
    "a list": (lambda n: (n,), lambda s: [[0] * n for n, in s]),
}
STAYS = {
    "labels": (with_number, joined),
    "labels by number": (lambda n: (torch.ones(4), n), lambda s: (torch.stack([x for x, _ in s]), torch.tensor([n for _, n in s]))),
    "a full row": (lambda n: masked(32), trimmed),
}


class Samples:
    """Samples of which one, late, is larger than the others."""

    def __init__(self, sample, usual=10, large=200):
        self.sample, self.usual, self.large = sample, usual, large

    def __len__(self):
        return 400

    def __getitem__(self, index):
        random.random()
        return self.sample(self.large if index == 331 else self.usual)


@unittest.skipIf(torch is None, "torch is not installed")
class Contents(unittest.TestCase):
    def test_what_follows_from_contents_is_found_in_whichever_way_it_is_written(self):
        for name, (sample, collate) in FOLLOWS.items():
            with self.subTest(name):
                self.assertTrue(contents.of_loader(torch, DataLoader(Samples(sample), 4, collate_fn=collate)))

    def test_what_does_not_is_left_alone(self):
        for name, (sample, collate) in STAYS.items():
            with self.subTest(name):
                self.assertFalse(contents.of_loader(torch, DataLoader(Samples(sample), 4, collate_fn=collate)))
        self.assertFalse(contents.of_loader(torch, DataLoader(Samples(with_number), 4, collate_fn=default_collate)))
        self.assertFalse(contents.of_loader(torch, DataLoader(Samples(with_number), batch_size=None)))

    def test_the_function_gets_samples_and_random_numbers_of_its_own(self):
        kept = [with_number(3) for _ in range(4)]
        state = random.getstate(), torch.get_rng_state()

        def collate(samples):
            random.random(), torch.rand(1)
            return joined(samples)

        self.assertFalse(contents.decide(torch, collate, kept, lambda: kept))
        self.assertEqual([sorted(one) for one in kept], [["n", "x"]] * 4)
        self.assertEqual(random.getstate(), state[0])
        self.assertTrue(torch.equal(torch.get_rng_state(), state[1]))

    def test_a_function_that_fails_or_draws_sizes_may_vary(self):
        def fails(samples):
            return [one["no such"] for one in samples]

        def draws(samples):
            return made(random.randint(1, 10**6), samples[:0])

        for collate in (fails, draws):
            self.assertTrue(contents.decide(torch, collate, FOLLOWS, lambda: [with_number(3)]))

    def test_shapes_of_samples_that_come_later_are_seen(self):
        rows = [torch.ones(2 + (index > 200)) for index in range(400)]
        self.assertTrue(contents.may_vary(torch, DataLoader(rows, 4, collate_fn=lambda s: s[0])))
        self.assertFalse(contents.may_vary(torch, DataLoader(rows[:100], 4, collate_fn=lambda s: s[0])))

    def test_the_batch_of_the_longest_samples_goes_by_contents(self):
        finder = batches.Batches(torch, Record())
        for name, (sample, collate) in FOLLOWS.items():
            if name in ("a list", "a mask", "marks"):
                continue
            with self.subTest(name):
                batch = finder.longest_batch(DataLoader(Samples(sample), 4, collate_fn=collate))
                self.assertGreaterEqual(batch.shape[1], 200)
        batch = finder.longest_batch(DataLoader(Samples(masked, large=30), 4, collate_fn=trimmed))
        self.assertEqual(tuple(batch.shape), (4, 30))

    def test_the_largest_number_may_be_one_that_counts_samples(self):
        class Numbered(Samples):
            def __getitem__(self, index):
                row = {"n": 200 if index == 331 else 10, "x": torch.ones(2)}
                return {**row, **{"id_%d" % k: k * 10**6 - index for k in range(1, 6)}}

        finder = batches.Batches(torch, Record())
        batch = finder.longest_batch(DataLoader(Numbered(with_number), 4, collate_fn=lambda s: made(max(one["n"] for one in s), s)))
        self.assertEqual(batch.shape[1], 200)


if __name__ == "__main__":
    unittest.main()
