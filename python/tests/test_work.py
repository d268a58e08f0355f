"""The work of a step: which of several is reported, and what of it."""

import json
import types
import unittest

import support  # noqa: F401

from oomph.work import Work


def made(operations):
    """Work whose virtual GPU counts these operations at each step."""
    left = [json.dumps({"products": [["f16", count, 1, 1]], "kernels": []}).encode() for count in operations]

    def cut(buffer, room):
        text = left.pop(0)
        buffer[: len(text)] = text
        return len(text)

    work = Work()
    work._cut = cut
    return work


class WorkTest(unittest.TestCase):
    def test_the_step_in_the_middle_is_reported_without_the_first(self):
        # The first holds the loading, and an evaluation came before the fourth.
        work = made([999, 10, 12, 500, 11, 11])
        for _ in range(5):
            work.delivered(4)
            work.stepped()
        self.assertEqual(work.as_dict()["samples"], 4)
        # What is read of a loader outside the loop belongs to no step.
        work.delivered(1000)
        work.stepped()
        document = work.as_dict()
        self.assertEqual(document["products"][0][1], 11)
        self.assertEqual((document["steps"], document["samples"]), (5, 4))

    def test_one_step_is_none(self):
        work = made([10])
        work.stepped()
        self.assertIsNone(work.as_dict())

    def test_what_an_optimizer_moves_on_the_host_is_counted(self):
        class Tensor:
            shape, grad = (10,), 0

            def __init__(self, device):
                self.device = types.SimpleNamespace(type=device)

            def numel(self):
                return 10

            def element_size(self):
                return 4

        optimizer = types.SimpleNamespace(param_groups=[{"params": [Tensor("cpu"), Tensor("cuda")]}], state={})
        work = made([1, 1])
        work.stepped()
        work.optimized(optimizer)
        work.stepped()
        # The parameter is read and written, its gradient read.
        self.assertEqual(work.as_dict()["host_bytes"], 120)


if __name__ == "__main__":
    unittest.main()
