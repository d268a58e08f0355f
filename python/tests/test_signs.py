"""Forecasts of a full card: within 5 % for what leaks, and none for what fluctuates."""

import random
import re
import sys
import unittest

import support

sys.path.insert(0, support.PYTHON)

from oomph.signs import Signs

MIB = 1 << 20


def watched(series, capacity, extra=64 * MIB, retries=lambda step: 0):
    """What is said of a program that holds `series` bytes at the ends of its steps, and `extra` more within them."""
    signs, sentences = Signs(), []
    for step, held in enumerate(series, 1):
        if held + extra > capacity:
            return step, sentences
        sentences += signs.stepped(step, held, held + extra, retries(step), lambda: capacity - held)
    return None, sentences


class Forecasts(unittest.TestCase):
    def test_ten_leaks(self):
        for number in range(10):
            chance = random.Random(number)
            base, growth = chance.randint(100, 4000) * MIB, chance.randint(2, 40) * MIB
            noise = growth * chance.random() * 0.4
            series = (int(base + growth * step + chance.random() * noise) for step in range(100000))
            death, sentences = watched(series, base + growth * chance.randint(60, 3000))
            (sentence,) = sentences
            forecast = int(re.search(r"\(step (\d+)\)", sentence).group(1))
            self.assertLess(abs(forecast - death), 0.05 * death, (number, forecast, death))

    def test_pieces_between_what_is_kept_fill_the_card_too(self):
        signs, sentences, capacity = Signs(), [], 4500 * MIB
        for step in range(1, 40):
            held, pieces = (100 + 50 * step) * MIB, 13 * step * MIB
            peak = held + 42 * MIB
            sentences += signs.stepped(step, held, peak, 0, lambda: capacity - held, lost=(pieces + 50 * MIB, pieces))
        # 142 and 63 for each step reach 4500 in step 69.
        self.assertIn("50.00 MiB more are held after each step: the card is full in about 44 steps (step 69)", sentences[0])

    def test_ten_that_fluctuate(self):
        for number in range(10):
            chance = random.Random(number)
            base, width = chance.randint(500, 4000) * MIB, chance.randint(1, 500) * MIB
            kinds = (
                lambda step: base + chance.random() * width,
                lambda step: base + width * (step % 7) / 7,
                lambda step: base + width * min(step, 15) / 15,
                lambda step: base + width * (step // 50),
                lambda step: base + 512 * step,
            )
            kind = kinds[number % len(kinds)]
            _, sentences = watched((int(kind(step)) for step in range(400)), 1 << 60)
            self.assertEqual(sentences, [], number)

    def test_a_cache_that_is_given_back_twice_in_a_row(self):
        _, sentences = watched([MIB] * 40, 1 << 40, retries=lambda step: max(0, step - 10))
        self.assertEqual(len(sentences), 1)
        self.assertIn("two steps in a row (to step 12)", sentences[0])
        _, sentences = watched([MIB] * 40, 1 << 40, retries=lambda step: step // 5)
        self.assertEqual(sentences, [])

    def test_a_larger_batch_that_is_still_to_come(self):
        def sentences(capacity, lengths, coming, per_token=1000, gradients=None):
            signs, warnings, most, peak = Signs(), [], 0, 0
            for step, length in enumerate(lengths, 1):
                most, peak = max(most, 8 * length), max(peak, 100 * MIB + per_token * 8 * length)
                tokens = None if coming is None else (most, coming)
                warnings += signs.stepped(step, 100 * MIB, peak, 0, lambda: capacity - 100 * MIB, tokens, gradients)
            return warnings

        lengths = [500, 400, 510, 700, 600, 900, 300]
        (warnings,) = sentences(130 * MIB, lengths, 8 * 8192)
        self.assertIn("up to 65536 tokens are still to come, the largest so far had 5600: one takes about 162.50 MiB", warnings)
        self.assertIn("can have 130.00 MiB", warnings)
        self.assertEqual(sentences(170 * MIB, lengths, 8 * 8192), [])
        self.assertEqual(sentences(130 * MIB, lengths, None), [])
        # Where all batches were alike, what comes and goes in a step is the batch's only if it is much more than gradients.
        (warnings,) = sentences(130 * MIB, [500] * 7, 8 * 8192, gradients=MIB)
        self.assertIn("one takes about 162.50 MiB", warnings)
        self.assertEqual(sentences(170 * MIB, [500] * 7, 8 * 8192, gradients=MIB), [])
        self.assertEqual(sentences(130 * MIB, [500] * 7, 8 * 8192, gradients=2 * MIB), [])
        self.assertEqual(sentences(130 * MIB, [500] * 7, 8 * 8192), [])
        self.assertEqual(sentences(130 * MIB, lengths, 8 * 8192, per_token=0), [])


if __name__ == "__main__":
    unittest.main()
