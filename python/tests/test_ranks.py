"""Ranks that do not run: which ones do, where they are placed, and what the store says for the others."""

import os
import struct
import sys
import types
import unittest

import support

from oomph import ranks
from oomph.ranks import starters, store


class Chosen(unittest.TestCase):
    def test_a_few_ranks_all_run(self):
        self.assertIsNone(ranks.chosen(None, 1))
        self.assertIsNone(ranks.chosen(None, 4))
        self.assertIsNone(ranks.chosen("all", 1024))
        self.assertIsNone(ranks.chosen("0-7", 8))

    def test_of_many_the_first_two_and_the_last(self):
        self.assertEqual(ranks.chosen(None, 5), [0, 1, 4])
        self.assertEqual(ranks.chosen(None, 1024), [0, 1, 1023])

    def test_named_ranks_and_always_the_first(self):
        self.assertEqual(ranks.chosen("last", 64), [0, 63])
        self.assertEqual(ranks.chosen("3, 5-6", 8), [0, 3, 5, 6])
        self.assertEqual(ranks.chosen("2,99,4-9", 6), [0, 2, 4, 5])
        self.assertEqual(ranks.chosen("0,1,last", 4), [0, 1, 3])


class Places(unittest.TestCase):
    def job(self, world, each, running, cards):
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(cards)))
        try:
            return starters.Job(world, each, running)
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if before is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = before

    def test_each_rank_has_a_card_of_its_own(self):
        job = self.job(64, 8, [0, 8, 16, 63], 8)
        places = job.places()
        own = [places[rank][rank % job.each] for rank in job.running]
        self.assertEqual(len(set(own)), 4)
        for visible in places.values():
            self.assertEqual(sorted(visible), [str(card) for card in range(8)])

    def test_more_ranks_than_cards_are_more_machines(self):
        self.assertEqual(self.job(64, 64, [0, 1, 63], 8).each, 8)
        self.assertEqual(self.job(8, 8, [0, 1, 7], 8).each, 8)

    def test_a_rank_that_fails_ends_the_others(self):
        job = self.job(3, 3, [0, 1, 2], 0)

        def command(rank, local):
            return [sys.executable, "-c", "import sys, time; sys.exit(7) if %d else time.sleep(60)" % rank]

        with self.assertRaises(SystemExit) as ended:
            job.run(command, {})
        self.assertEqual(ended.exception.code, 7)


class _Base:
    """What torch's `Store` is to a subclass."""


class _Plain:
    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)

    def wait(self, keys, *timeout):
        missing = [key for key in keys if key not in self.values]
        assert not missing, "it would wait forever for %s" % missing


class Answers(support.RunCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.pop, "OOMPH_RUN", None)
        os.environ["OOMPH_RUN"] = self.run_folder
        self.make = store.answering(_Base)

    def present(self, unique_id):
        first, second, _ = struct.unpack("<3Q", unique_id[:24])
        with open(os.path.join(self.run_folder, "ranks", "%x-%x" % (first, second), "present")) as file:
            return file.read()

    def test_a_group_without_its_first_rank_agrees_on_an_id(self):
        one, other = (self.make(_Plain(), "2", [1, 3]) for _ in range(2))
        one.wait(["2//cuda//nccl_storekey_0"])
        unique_id = one.get("2//cuda//nccl_storekey_0")
        self.assertEqual(unique_id, other.get("2//cuda//nccl_storekey_0"))
        self.assertNotEqual(unique_id, one.get("2//cuda//nccl_storekey_1"))
        self.assertEqual(len(unique_id), 128)
        self.assertEqual(self.present(unique_id), "1,3")

    def test_a_first_rank_that_runs_is_heard(self):
        plain = _Plain()
        unique_id = struct.pack("<3Q", 5, 6, store._MARK).ljust(128, b"\0")
        self.make(plain, "0", [0, 7]).set("nccl_storekey_0", unique_id)
        self.assertEqual(self.make(plain, "0", [0, 7]).get("nccl_storekey_0"), unique_id)
        self.assertEqual(self.present(unique_id), "0,7")
        with self.assertRaises(AssertionError):
            self.make(_Plain(), "0", [0, 7]).wait(["nccl_storekey_0"])

    def test_pairs_and_further_ids_are_known_by_their_keys(self):
        group = self.make(_Plain(), "0", [0, 1, 7])
        group.wait(["0//cuda//6:7", "0//nccl_storekey_0_3"])
        self.assertEqual(self.present(group.get("0//cuda//6:7")), "1")
        self.assertEqual(len(group.get("0//nccl_storekey_0_3")), 128)


class Launchers(unittest.TestCase):
    def test_spawned_functions_keep_their_rank(self):
        called = []
        module = types.SimpleNamespace(
            start_processes=lambda fn, args, nprocs, *rest, **options: [fn(index, *args) for index in range(nprocs)]
        )
        starters.spawn(module, "last")
        module.start_processes(lambda rank, word: called.append((rank, word)), ("word",), 8)
        self.assertEqual(called, [(0, "word"), (7, "word")])
        self.assertNotIn(ranks.VARIABLE, os.environ)


if __name__ == "__main__":
    unittest.main()
