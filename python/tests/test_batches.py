"""Batches of different sizes: the range that is seen, and the batch of the longest samples, on PyTorch's loader."""

import gc
import random
import types
import unittest
import weakref

import support  # noqa: F401  (puts the package on the path)

from oomph import batches, hook, longest

try:
    import torch
    from torch.utils import data
except ImportError:
    torch = None

LENGTHS = [3, 9, 4, 4, 7, 2, 50, 5, 8, 6, 40, 1]


class Texts:
    """Sequences of different lengths, which say where they stand."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        random.random()
        return {"input_ids": torch.full((LENGTHS[index],), index)}


def padded(samples):
    return {"input_ids": torch.nn.utils.rnn.pad_sequence([one["input_ids"] for one in samples], batch_first=True)}


class Record:
    def __init__(self):
        self.steps = 0
        self.work = None
        self.program = types.SimpleNamespace(has_optimizer=lambda: True)
        self.peaks = {0: (0, 0)}

    def refresh_peaks(self):
        return self.peaks


@unittest.skipIf(torch is None, "torch is not installed")
class Loading(unittest.TestCase):
    """Loops over loaders, each batch one step."""

    def setUp(self):
        module = data.dataloader
        plain = module._BaseDataLoaderIter.__init__, module._BaseDataLoaderIter.__next__
        self.addCleanup(lambda: setattr(module._BaseDataLoaderIter, "__init__", plain[0]))
        self.addCleanup(lambda: setattr(module._BaseDataLoaderIter, "__next__", plain[1]))
        self.record = Record()
        self.batches = batches.Batches(torch, self.record)
        self.batches._watch(module)

    def loop(self, loader):
        """The samples of each batch, for a program that makes a step on each."""
        found = []
        for batch in loader:
            found.append(batch["input_ids"].max(dim=1).values.tolist())
            self.record.steps += 1
            shape = batch["input_ids"].shape
            self.record.peaks = {0: (shape.numel() * 10, shape.numel())}
            self.batches.stepped()
        return found

    def test_the_third_batch_is_of_the_longest_samples_and_the_others_stay(self):
        found = self.loop(data.DataLoader(Texts(), batch_size=2, collate_fn=padded))
        self.assertEqual(found, [[0, 1], [2, 3], [6, 10], [6, 7], [8, 9], [10, 11]])
        document = self.batches.as_dict()
        self.assertEqual(document["longest"], {"step": 3, "elements": 100, "shape": [2, 50], "peak_allocated": 100, "peak_reserved": 1000})
        self.assertEqual(document["usual"]["peak_allocated"], 8)
        self.assertEqual((document["seen"]["min"], document["seen"]["unit"]), (8, "tokens"))

    def test_workers_that_persist_end_with_their_loader(self):
        # The garbage collector would end the threads first through which the workers hear of it.
        loader = data.DataLoader(Texts(), batch_size=2, collate_fn=padded, num_workers=1, persistent_workers=True)
        gc.disable()
        self.addCleanup(gc.enable)
        self.assertEqual(self.loop(loader)[2], [6, 10])
        iterator = weakref.ref(loader._iterator)
        (worker,) = loader._iterator._workers
        del loader
        self.assertIsNone(iterator())
        self.assertEqual(worker.exitcode, 0)

    def test_random_numbers_and_the_order_are_the_programs(self):
        def order():
            random.seed(5)
            generator = torch.Generator().manual_seed(1)
            return self.loop(data.DataLoader(Texts(), batch_size=2, shuffle=True, collate_fn=padded, generator=generator)), random.random()

        self.batches.wanted = False
        plain = order()
        self.record.steps, self.batches.wanted, self.batches.seen = 0, True, None
        found = order()
        self.assertNotEqual(found[0][2], plain[0][2])
        self.assertEqual(found[0][:2] + found[0][3:], plain[0][:2] + plain[0][3:])
        self.assertEqual(found[1], plain[1])

    def test_batches_of_one_size_are_left_alone_and_not_mentioned(self):
        looked = []

        class Images(Texts):
            def __len__(self):
                return 1000

            def __getitem__(self, index):
                looked.append(index)
                return {"input_ids": torch.full((16,), index)}

        found = self.loop(data.DataLoader(Images(), batch_size=2, sampler=range(12), collate_fn=padded))
        self.assertEqual(found[2], [4, 5])
        self.assertIsNone(self.batches.as_dict())
        self.assertLess(len(looked), 60)

    def test_only_what_is_trained_on_counts(self):
        self.record.steps = 5
        with torch.no_grad():
            for batch in data.DataLoader(Texts(), batch_size=2, collate_fn=padded):
                self.assertLess(batch["input_ids"].shape[1], 51)
        self.assertIsNone(self.batches.seen)

    def test_a_part_of_a_dataset_has_its_own_longest_samples(self):
        sampler = data.SubsetRandomSampler([0, 1, 2, 3, 4, 5, 7])
        loader = data.DataLoader(Texts(), batch_size=2, sampler=sampler, collate_fn=padded)
        self.assertEqual(self.batches.longest_batch(loader)["input_ids"].shape, (2, 9))

    def test_what_the_collate_function_makes_of_samples_decides(self):
        # Each is a prompt's length and those of its two answers. The third has the longest text, the second the most tokens.
        sizes = [(3, 2, 2), (3, 8, 8), (1, 15, 1), (2, 3, 4)]

        class Preferences:
            def __len__(self):
                return len(sizes)

            def __getitem__(self, index):
                return {name: [index] * size for name, size in zip(("prompt", "chosen", "rejected"), sizes[index])}

        def paired(samples):
            rows = [torch.tensor(one["prompt"] + one[name]) for name in ("chosen", "rejected") for one in samples]
            return {"input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)}

        def apart(samples):
            names = "prompt", "chosen", "rejected"
            rows = {name: [torch.tensor(one[name]) for one in samples] for name in names}
            return {name + "_input_ids": torch.nn.utils.rnn.pad_sequence(rows[name], batch_first=True) for name in names}

        one = self.batches.longest_batch(data.DataLoader(Preferences(), batch_size=1, collate_fn=paired))
        self.assertEqual(one["input_ids"].shape, (2, 16))
        both = self.batches.longest_batch(data.DataLoader(Preferences(), batch_size=2, collate_fn=apart))
        self.assertEqual([tensor.shape[1] for tensor in both.values()], [3, 15, 8])

    def test_samples_that_are_joined_are_drawn(self):
        def joined(samples):
            return {"input_ids": torch.cat([one["input_ids"] for one in samples]).unsqueeze(0)}

        # With 12 samples in batches of 6, the largest of two batches by chance is not that of the six longest.
        sizes = set()
        for collate in (joined, padded):
            batch = self.batches.longest_batch(data.DataLoader(Texts(), batch_size=6, collate_fn=collate))
            sizes.add(batch["input_ids"].numel())
        self.assertIn(6 * 50, sizes)
        self.assertLess(min(sizes), sum(sorted(LENGTHS)[-6:]))
        self.assertGreater(min(sizes), sum(LENGTHS) // 2)

    def test_a_sampler_is_known_by_how_it_makes_batches(self):
        class Seeded(data.BatchSampler):
            seed = 0

        class Grouped(data.BatchSampler):
            def __iter__(self):
                return iter(sorted(super().__iter__(), key=len))

        for kind, taken in ((Seeded, True), (Grouped, False)):
            sampler = kind(data.SubsetRandomSampler(range(6)), 2, drop_last=False)
            batch = self.batches.longest_batch(data.DataLoader(Texts(), batch_sampler=sampler, collate_fn=padded))
            self.assertEqual(batch["input_ids"].shape if taken else batch, (2, 9) if taken else None)

    def test_what_cannot_be_read_is_left_alone(self):
        def moody(samples):
            if len(samples) == 2 and samples[0]["input_ids"][0] == 6:
                raise ValueError("no")
            return padded(samples)

        found = self.loop(data.DataLoader(Texts(), batch_size=2, sampler=[0, 1, 2, 3, 4, 5], collate_fn=moody))
        self.assertEqual(found, [[0, 1], [2, 3], [4, 5]])

        class Buckets(data.Sampler):
            batch_size = 2

            def __iter__(self):
                return iter([[0, 1], [2, 3], [6]])

        found = self.loop(data.DataLoader(Texts(), batch_sampler=Buckets(), collate_fn=padded))
        self.assertEqual(found[2], [6])

    def test_accelerates_loader_runs_one_batch_ahead(self):
        try:
            from accelerate.data_loader import prepare_data_loader
        except ImportError:
            self.skipTest("accelerate is not installed")
        followed = data.dataloader._BaseDataLoaderIter.__next__
        # Another part of the hook follows the loader, and is between.
        around = {"plain": followed}
        exec(compile("def follow(self):\n    return plain(self)\n", hook.__file__, "exec"), around)
        data.dataloader._BaseDataLoaderIter.__next__ = around["follow"]
        order = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 6, 10]
        plain = data.DataLoader(Texts(), batch_size=2, sampler=order, collate_fn=padded)
        loader = prepare_data_loader(plain, put_on_device=False)
        found = self.loop(loader)
        self.assertEqual(found[3], [6, 10])
        self.assertEqual(self.batches.longest["step"], 4)
        self.assertEqual(self.batches.longest["peak_allocated"], 100)


@unittest.skipIf(torch is None, "torch is not installed")
class Sizes(unittest.TestCase):
    """How large samples and batches are."""

    def test_columns_say_how_long_samples_are(self):
        try:
            import datasets
        except ImportError:
            self.skipTest("datasets is not installed")
        table = datasets.Dataset.from_dict({"input_ids": [[1] * n for n in LENGTHS], "id": list(range(len(LENGTHS)))})
        self.assertEqual(longest.columns(table), {"input_ids": LENGTHS})
        self.assertEqual(longest.columns(table.select([6, 0])), {"input_ids": [50, 3]})
        texts = datasets.Dataset.from_dict({"text": ["ab", "abc"], "label": [1, 0]})
        self.assertEqual(longest.columns(texts), {"text": [2, 3]})
        self.assertIsNone(longest.columns(Texts()))

    def test_the_longest_samples_are_padded_as_others_are(self):
        self.assertEqual(longest.candidates({"text": [7, 9, 3, 9, 8, 9]}, range(6), 3), [[5, 3, 4]])
        self.assertEqual(longest.candidates({"text": [7, 9, 3]}, range(3), 1), [[1]])

    def test_a_search_is_bounded(self):
        now = [0.0]

        class Slow(Texts):
            def __len__(self):
                return 10**9

            def __getitem__(self, index):
                now[0] += 0.01
                return {"input_ids": torch.zeros(index % 7 + 1)}

        searching = batches.Batches(torch, Record(), clock=lambda: now[0])
        parts, looked = searching._lengths(Slow(), range(10**9))
        self.assertEqual([len(one) for one in longest.candidates(parts, looked, 4)], [4])
        self.assertLess(now[0], 2.1)

    def test_objects_hold_the_tensors_of_a_batch(self):
        class Store:
            def __init__(self, owner, **tensors):
                self.owner, self.tensors = owner, tensors

        class Graph:
            def __init__(self, nodes):
                self.store = Store(self, x=torch.zeros(nodes, 8), edges=torch.zeros(2, nodes, dtype=torch.long))

        self.assertEqual(batches.measured(torch, Graph(5))[:2], (40, "elements"))
        self.assertEqual(longest.extent(torch, [Graph(5), Graph(2)]), 70)
        # How many samples a graph of graphs has, its tensors do not say.
        self.assertEqual(batches.samples_of(torch, Graph(5)), 0)

    def test_tokens_before_elements(self):
        batch = {"input_ids": torch.zeros(2, 8, dtype=torch.long), "pixel_values": torch.zeros(2, 3, 32, 32)}
        self.assertEqual(batches.measured(torch, batch), (16, "tokens", [2, 8]))
        pair = {"prompt_input_ids": torch.zeros(2, 3), "chosen_input_ids": torch.zeros(2, 5)}
        self.assertEqual(batches.measured(torch, pair), (16, "tokens", None))
        self.assertEqual(batches.measured(torch, (torch.zeros(2, 3, 4, 4), torch.zeros(2)))[:2], (96, "elements"))
        self.assertEqual(batches.measured(torch, ["text"])[0], 0)


if __name__ == "__main__":
    unittest.main()
