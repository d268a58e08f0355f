"""The recording of what a training computes: fewer samples and blocks, and notes of each step."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from oomph import _protocol as protocol
from oomph.comparing import reducing

try:
    import torch
except ImportError:
    torch = None

HERE = os.path.dirname(os.path.abspath(__file__))

TRAINING = """
import json, os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from oomph import comparing, hook
comparing.install(torch, json.loads(os.environ["WANTED"]))
torch.manual_seed(3)
net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(6)], torch.nn.Linear(4, 2))
average = {name: value.clone() for name, value in net.state_dict().items()}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(100, 4), torch.randint(0, 2, (100,))), 8, num_workers=2, prefetch_factor=4)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y, reduction=os.environ.get("REDUCTION", "mean"))
        loss.backward()
        optimizer.step()
        for name, value in net.state_dict().items():
            average[name].lerp_(value, 0.1)
    print("loss", loss.item())
print("not reached")
"""


def wanted(**other):
    plain = {"steps": 5, "seed": 1, "samples": [], "divide": 2, "batch": 0, "few": 4, "perturbed": False, "still": False, "whole_precision": True,
             "fewer_blocks": True}
    return {**plain, **other}


@unittest.skipIf(torch is None, "needs PyTorch")
class Training(unittest.TestCase):
    """A small program, recorded in a process of its own."""

    def record(self, config, **environment):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            os.mkdir(os.path.join(folder, protocol.PATH_HOOK))
            script = os.path.join(folder, "train.py")
            with open(script, "w") as file:
                file.write(TRAINING)
            path = os.pathsep.join([os.path.dirname(HERE), *sys.path])
            variables = {**os.environ, "PYTHONPATH": path, protocol.PATH_RUN_VARIABLE: folder, "WANTED": json.dumps(config)}
            done = subprocess.run([sys.executable, script], env={**variables, **environment}, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.output = done.stdout
            found = os.listdir(os.path.join(folder, protocol.PATH_HOOK))
            name = next(name for name in found if name.endswith(protocol.PATH_COMPARED_END))
            with open(os.path.join(folder, protocol.PATH_HOOK, name)) as file:
                return json.load(file)

    def test_some_steps_over_a_last_batch_that_is_not_full(self):
        seen = self.record(wanted())
        self.assertEqual(len(seen["steps"]), 5)
        self.assertTrue(seen["ended"])
        # A batch of 8 is halved, and has two full batches and one of three.
        self.assertEqual(seen["loaders"], [{"batch": 4, "samples": 11}])
        self.assertEqual(seen["blocks"], [{"name": "Linear", "count": 6}])
        self.assertEqual(len(seen["steps"][0]["gradients"]), 6)
        self.assertEqual(seen["printed"], self.output.splitlines())
        self.assertNotIn("not reached", self.output)
        names = {value["name"] for value in seen["kept"]}
        self.assertIn("net.0.weight", names)
        self.assertIn("average['0.weight']", names)
        # What each round makes anew does not live on.
        self.assertFalse({"x", "y", "loss"} & names)

    def test_the_same_program_computes_the_same_and_another_loss_something_else(self):
        def norms(seen):
            return [piece["norm"] for step in seen["steps"] for piece in step["gradients"]]

        first = norms(self.record(wanted()))
        self.assertEqual(first, norms(self.record(wanted())))
        rounded = norms(self.record(wanted(perturbed=True)))
        self.assertNotEqual(first, rounded)
        self.assertTrue(all(abs(one - other) < 1e-4 * one for one, other in zip(first, rounded)))
        summed = norms(self.record(wanted(), REDUCTION="sum"))
        self.assertGreater(summed[0], 2 * first[0])


class Samples(unittest.TestCase):
    def test_the_last_batch_is_more_than_half_full_and_not_full(self):
        for batch in range(2, 40):
            last = reducing.few(batch) % batch
            self.assertTrue(0 < last < batch, batch)
            self.assertTrue(batch < 4 or 2 * last > batch, batch)
        self.assertEqual(reducing.few(1), 2)

    def test_the_first_of_something_looks_like_the_whole(self):
        class Data(list):
            classes = ("cat", "dog")

        few = reducing.Few(Data(range(100)), 11)
        self.assertEqual((len(few), few[3], few.classes, list(few)), (11, 3, ("cat", "dog"), list(range(11))))
