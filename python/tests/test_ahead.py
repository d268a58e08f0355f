"""The longest batch that is still to come, read from datasets without making a sample."""

import unittest

import support  # noqa: F401  (puts the package on the path)

try:
    import torch
    from torch.utils import data

    from oomph import ahead
except ImportError:
    torch = None

try:
    import datasets
except ImportError:
    datasets = None

LENGTHS = [3, 9, 4, 4, 7, 2, 50, 5, 8, 6, 40, 1]


def padded(samples):
    rows = [torch.as_tensor(one["input_ids"]) for one in samples]
    return {"input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)}


def after(loader, count):
    """What is known after some batches."""
    known, given = ahead.Ahead(torch, loader), iter(loader)
    for _ in range(count):
        known.delivered(list(next(given)["input_ids"].shape))
    return known.tokens()


@unittest.skipIf(torch is None, "torch is not installed")
class Ahead(unittest.TestCase):
    def setUp(self):
        self.samples = [{"input_ids": [1] * length} for length in LENGTHS]

    def test_lists_and_parts_of_them(self):
        loader = data.DataLoader(self.samples, batch_size=2, collate_fn=padded)
        self.assertEqual(after(loader, 2), (18, 100))
        self.assertIsNone(after(loader, 4), "the longest has been there")
        part = data.DataLoader(data.Subset(self.samples, [0, 1, 2, 4, 10]), batch_size=2, collate_fn=padded)
        self.assertEqual(after(part, 2), (18, 80))
        drawn = data.DataLoader(self.samples, batch_size=2, collate_fn=padded, sampler=data.SubsetRandomSampler([0, 2, 8]))
        self.assertIn(after(drawn, 1), ((8, 16), None))

    @unittest.skipIf(datasets is None, "datasets is not installed")
    def test_columns(self):
        table = datasets.Dataset.from_dict({"input_ids": [[1] * length for length in LENGTHS], "labels": [[0]] * 12})
        loader = data.DataLoader(table, batch_size=2, collate_fn=padded)
        self.assertEqual(after(loader, 2), (18, 100))
        chosen = data.DataLoader(table.select([0, 1, 2, 4, 10]), batch_size=2, collate_fn=padded)
        self.assertEqual(after(chosen, 2), (18, 80))

    def test_training_alone_is_followed(self):
        follower, iterator = ahead.Follower(torch), data.dataloader._BaseDataLoaderIter
        self.addCleanup(setattr, iterator, "__init__", iterator.__init__)
        self.addCleanup(setattr, iterator, "__next__", iterator.__next__)
        follower._watch(data.dataloader)
        loader = data.DataLoader(self.samples, batch_size=2, collate_fn=padded)
        with torch.no_grad():
            list(loader)
        self.assertIsNone(follower.tokens())
        given = iter(loader)
        next(given), next(given)
        self.assertEqual(follower.tokens(), (18, 100))
        # As most loops are written: nothing but the loop holds the loader.
        follower._known = None
        for number, _ in enumerate(data.DataLoader(self.samples, batch_size=2, collate_fn=padded)):
            if number == 1:
                break
        self.assertEqual(follower.tokens(), (18, 100))

    def test_a_dataset_of_the_programs_own_is_not_asked(self):
        class Own(data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                raise AssertionError("a sample was made")

        self.assertIsNone(ahead.Ahead(torch, data.DataLoader(Own(), batch_size=2)).tokens())

    def test_what_the_program_cuts_is_not_waited_for(self):
        samples = [{"input_ids": [1] * 100} for _ in range(200)]
        cut = lambda batch: {"input_ids": torch.ones(len(batch), 64, dtype=torch.long)}
        self.assertIsNone(after(data.DataLoader(samples, batch_size=4, collate_fn=cut), 3))

    def test_batches_of_other_shapes_are_not_judged(self):
        loader = data.DataLoader(self.samples, batch_size=2, collate_fn=padded)
        known = ahead.Ahead(torch, loader)
        known.delivered([40])
        known.delivered([2, 9])
        self.assertIsNone(known.tokens())


if __name__ == "__main__":
    unittest.main()
