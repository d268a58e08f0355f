"""Tests of what a program lets PyTorch's allocator take of a card."""

import os
import types
import unittest
from unittest import mock

from oomph import fraction

GIB = 1 << 30


def torch(total, **native):
    return types.SimpleNamespace(
        _C=types.SimpleNamespace(**native), cuda=types.SimpleNamespace(mem_get_info=lambda device: (0, total))
    )


class Scales(unittest.TestCase):
    def test_a_short_decimal_is_a_share_of_any_card(self):
        for share in (0.25, 0.5, 0.9, 0.333, 1 / 3, 5 / 7):
            self.assertEqual(fraction.scales(share, 24 * GIB), "share", share)

    def test_bytes_over_the_total_are_bytes_on_any_card(self):
        for total in (12629049344, 25298141184, 2 << 40):
            for size in (4 * GIB, 500 << 20, 6 * 10**9):
                self.assertEqual(fraction.scales(size / total, total), "fixed", (size, total))


class Fractions(unittest.TestCase):
    def test_the_allocator_is_asked_where_it_can_be(self):
        asked = fraction.Fractions(torch(12 * GIB, _cuda_getMemoryFraction=lambda device: 0.25 if device else 1.0))
        self.assertEqual(asked.allowed(1, 2), {"bytes": 3 * GIB, "scales": "share", "retries": 2})
        self.assertIsNone(asked.allowed(0, 0))

    def test_an_older_torch_is_watched(self):
        given = []
        older = torch(12 * GIB, _cuda_setMemoryFraction=lambda *what: given.append(what))
        watched = fraction.Fractions(older)
        with mock.patch.dict(os.environ, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,per_process_memory_fraction:0.5"}):
            self.assertEqual(watched.allowed(0, 0)["bytes"], 6 * GIB)
            older._C._cuda_setMemoryFraction(0.75, 0)
            self.assertEqual((watched.allowed(0, 0)["bytes"], given), (9 * GIB, [(0.75, 0)]))
        self.assertIsNone(watched.allowed(1, 0))


if __name__ == "__main__":
    unittest.main()
