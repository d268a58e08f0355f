"""Losses that compare the samples of a batch are distinguished from those that do not by their graphs."""

import unittest

import support  # noqa: F401

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "needs torch")
class Contrast(unittest.TestCase):
    def compares(self, loss, sizes=(16,)):
        from oomph.program.contrast import compares_samples

        return compares_samples([loss], set(sizes))

    def setUp(self):
        self.encoder = torch.nn.Linear(8, 8)
        self.rows = torch.randn(16, 8)
        self.places = torch.arange(16)

    def test_pairs_are_compared(self):
        left, right = self.encoder(self.rows), self.encoder(self.rows * 2)
        scores = torch.nn.functional.normalize(left) @ torch.nn.functional.normalize(right).t() / 0.07
        self.assertTrue(self.compares(torch.nn.functional.cross_entropy(scores, self.places)))

    def test_hard_negatives_are_further_columns(self):
        left, right = self.encoder(self.rows), self.encoder(torch.randn(32, 8))
        self.assertTrue(self.compares(torch.nn.functional.cross_entropy(left @ right.t(), self.places)))

    def test_two_views_of_each_sample(self):
        views = self.encoder(torch.cat([self.rows, self.rows + 1]))
        scores = (views @ views.t()).masked_fill(torch.eye(32, dtype=torch.bool), -1e9)
        self.assertTrue(self.compares((scores.logsumexp(1) - scores[:, 0]).mean()))

    def test_a_classifier_with_as_many_classes_compares_none(self):
        logits = torch.nn.Linear(8, 16)(self.encoder(self.rows))
        self.assertFalse(self.compares(torch.nn.functional.cross_entropy(logits, self.places)))
        without_bias = torch.nn.Linear(8, 16, bias=False)(self.encoder(self.rows))
        self.assertFalse(self.compares(torch.nn.functional.cross_entropy(without_bias, self.places)))

    def test_attention_within_a_sample_compares_none(self):
        tokens = self.encoder(torch.randn(16, 12, 8))
        scores = torch.softmax(tokens @ tokens.transpose(1, 2), -1)
        self.assertFalse(self.compares((scores @ tokens).mean()))


if __name__ == "__main__":
    unittest.main()
