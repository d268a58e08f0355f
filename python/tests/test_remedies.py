"""Remedies applied from outside: what they change, what they leave the same, and how they say so.

The programs run on the CPU, where every number is real: a remedy that is exact has to give the same weights. What each
saves is a matter of cards, and `acceptance/programs/fixes` holds the programs for that.
"""

import importlib.util
import json
import os
import types
import unittest
from unittest import mock

import support

from oomph import remedies
from oomph.remedies.remedy import Refused, Remedy

try:
    import torch
except ImportError:
    torch = None

# A plain loop as users write it: momentum, a schedule, clipping, a loader that does not divide evenly, kept losses.
LOOP = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_default_dtype(torch.{dtype})

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(16, 50)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def main():
    model = Net()
    optimizer = torch.optim.{optimizer}
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    data = torch.utils.data.TensorDataset(torch.randn(72, 16), torch.randint(0, 50, (72,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    losses = []
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            {clip}
            optimizer.step()
            schedule.step()
            losses.append(loss)
    model.eval()
    out = model(x)
    print(len(loader), [round(value, 12) for value in schedule.get_last_lr()], len(losses), out.grad_fn is None)
    print(*(repr(value) for p in model.parameters() for value in p.detach().double().reshape(-1)[:7].tolist()))
main()
"""


@unittest.skipIf(torch is None, "torch is not installed")
class Case(support.RunCase):
    """Runs programs with and without remedies."""

    def ask(self, *remedies):
        """Have hook.json name remedies, as ids or as (id, options)."""
        path = os.path.join(self.run_folder, "hook.json")
        with open(path) as file:
            config = json.load(file)
        config["remedies"] = [
            {"id": one, "options": {}} if isinstance(one, str) else {"id": one[0], "options": one[1]} for one in remedies
        ]
        with open(path, "w") as file:
            json.dump(config, file)

    def record(self):
        """The one record of the last run."""
        found = [record for record in self.records() if record["program"]]
        self.assertEqual(len(found), 1)
        folder = os.path.join(self.run_folder, "hook")
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        return found[0]

    def run_with(self, program, *remedies):
        """The lines that a program prints under remedies, and its record."""
        self.ask(*remedies)
        return self.passes(program).splitlines(), self.record()


class Loop(Case):
    def program(self, dtype="float64", optimizer="SGD(model.parameters(), 0.1, momentum=0.9)", clip=True):
        clip = "nn.utils.clip_grad_norm_(model.parameters(), 0.05)" if clip else "pass"
        return LOOP.format(dtype=dtype, optimizer=optimizer, clip=clip)

    def weights_agree(self, *remedies, states=("applied",), program=None, places=10):
        """The weights after training are the same with the remedies and without; gives both outputs and the record."""
        program = program or self.program()
        plain, _ = self.run_with(program)
        changed, record = self.run_with(program, *remedies)
        self.assertEqual(tuple(one["state"] for one in record["remedies"]), states, record["remedies"])
        for one, other in zip(plain[1].split(), changed[1].split()):
            self.assertAlmostEqual(float(one), float(other), places=places)
        return plain[0].split(), changed[0].split(), record

    def test_micro_batches_train_the_same_model(self):
        # Batches of 32, 32 and 8 in pieces of 8, 8 and 2: the shares differ from batch to batch.
        plain, changed, record = self.weights_agree(("micro-batch", {"divide_by": 4}))
        # The loader is as long and the schedule as far as usual, while the loop ran four times as often.
        self.assertEqual(plain[:2], changed[:2])
        self.assertEqual((plain[2], changed[2]), ("6", "24"))
        self.assertEqual(record["optimizer_steps"], 6)
        self.assertEqual(
            record["remedies"][0]["evidence"], "6 steps let through and 18 held back; the largest micro-batch has 8 rows"
        )

    def test_a_batch_that_cannot_be_divided_is_left_alone(self):
        plain, changed, record = self.weights_agree(("micro-batch", {"divide_by": 64}), states=("refused",))
        self.assertEqual(plain, changed)
        self.assertEqual(record["remedies"][0]["what"], "the batch of the DataLoader is 32: it cannot be divided by 64")

    def test_checkpointing_computes_the_same(self):
        for name, blocks in (("gradient-checkpointing", 4), ("checkpointing-every-n-layers", 2), ("selective-checkpointing", 4)):
            _, _, record = self.weights_agree(name)
            self.assertEqual(record["remedies"][0]["evidence"], "%d of %d blocks recomputed in backward" % (blocks, blocks))

    def test_chunks_give_the_same_loss(self):
        _, _, record = self.weights_agree(
            ("chunked-cross-entropy", {"chunks": 4}), program=self.program(dtype="float32"), places=5
        )
        self.assertEqual(record["remedies"][0]["evidence"], "at most 8 of 32 tokens have logits at a time")

    def test_saved_tensors_come_back_the_same(self):
        _, _, record = self.weights_agree("activation-offload")
        self.assertRegex(record["remedies"][0]["evidence"], r"^[1-9]\d* bytes saved in host memory, [1-9]\d* tensors")

    def test_steps_in_backward_give_the_same_weights(self):
        _, _, record = self.weights_agree("optimizer-in-backward", program=self.program(clip=False))
        self.assertEqual(record["remedies"][0]["evidence"], "156 steps of single parameters in backward")

    def test_optimizers_in_host_memory_give_the_same_weights(self):
        for name, clip in (("optimizer-cpu-offload", True), ("gradient-cpu-offload", False)):
            program = self.program(optimizer="AdamW(model.parameters(), lr=0.01)", clip=clip)
            # Matrices are worked on by the host here, and vectors by the optimizer that is left on the card.
            program = "from oomph.remedies import host_optimizer; host_optimizer.SMALLEST = 100\n" + program
            _, _, record = self.weights_agree(name, program=program)
            self.assertRegex(record["remedies"][0]["evidence"], r" MiB of weights and gradients wait in host memory")

    def test_lifetimes(self):
        plain, changed, record = self.weights_agree(
            "zero-grad-none", "no-grad", "detach-losses", "foreach-off", states=("applied",) * 4
        )
        self.assertEqual((plain[3], changed[3]), ("False", "True"))
        self.assertIn("tensors in losses (", record["remedies"][2]["what"])
        self.assertEqual(record["remedies"][2]["evidence"], "6 tensors freed of their graphs")

    def test_other_optimizers_are_really_there(self):
        adam = self.program(optimizer="AdamW(model.parameters(), lr=0.01)", dtype="float32")
        _, record = self.run_with(adam, "sgd")
        self.assertEqual(record["remedies"][0]["what"], "torch.optim.SGD in place of torch.optim.AdamW")
        self.assertEqual([one["class"] for one in record["program"]["optimizers"]], ["SGD"])
        _, record = self.run_with(adam, "adafactor")
        self.assertEqual(record["remedies"][0]["state"], "applied")
        if importlib.util.find_spec("torchao") is None:
            # One that cannot be had does not keep another from seeing what is made.
            _, record = self.run_with(adam, "sgd", "adam-4bit")
            self.assertEqual([one["state"] for one in record["remedies"]], ["applied", "refused"])
        _, record = self.run_with(self.program(), "adam-8bit")
        self.assertEqual(record["remedies"][0]["state"], "unused")
        self.assertEqual(record["remedies"][0]["what"], "the program made no Adam or AdamW of torch")

    def test_a_model_that_is_not_trained_makes_no_graph(self):
        program = (
            "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
            "teacher, judge, student = (nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))\n"
            "optimizer = torch.optim.SGD(student.parameters(), lr=0.1)\n"
            "for _ in range(3):\n    x = torch.randn(8, 4)\n    out = student(x)\n    aim = teacher(x)\n"
            "    loss = (out - aim).square().mean() + judge(out).mean()\n"
            "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
            "print(aim.grad_fn is None)\nprint([p.tolist() for p in student.parameters()])\n"
        )
        plain, record = self.run_with(program)
        # The judge leads the student's gradients on.
        self.assertEqual([call["line"] for call in record["program"]["untrained"]], [9])
        # A module that holds the student in a list is led to it.
        hidden = program.replace("aim = teacher(x)", "aim = teacher(x) + hides(x)").replace(
            "for _ in range(3):\n", "hides = Hides()\nfor _ in range(3):\n", 1
        )
        hides = (
            "class Hides(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.own, self.held = nn.Linear(4, 4), [student]\n"
            "    def forward(self, x):\n        return self.own(self.held[0](x))\n"
        )
        _, record = self.run_with(hidden.replace("hides = ", hides + "hides = ", 1))
        self.assertEqual([call["class"] for call in record["program"]["untrained"]], ["Sequential"])
        changed, record = self.run_with(program, "untrained-no-grad")
        self.assertEqual(record["remedies"][0]["evidence"], "3 results of 3 calls have no graph")
        self.assertEqual((plain[0], changed[0]), ("False", "True"))
        self.assertEqual(plain[1:], changed[1:])

    def test_types(self):
        plain = self.program(dtype="float32")
        _, record = self.run_with(plain, "autocast")
        self.assertEqual(record["remedies"][0]["evidence"], "a layer's result was bfloat16")
        _, record = self.run_with(plain, "pure-bf16")
        self.assertRegex(record["remedies"][0]["evidence"], r"^parameters: bfloat16 [0-9.]+ MiB$")

    def test_what_is_not_known_is_refused(self):
        _, record = self.run_with(self.program(), "no-such-remedy", ("vae-slicing", {}))
        self.assertEqual([one["state"] for one in record["remedies"]], ["refused", "unused"])


class Program(Case):
    def test_a_loop_is_recognized(self):
        path = os.path.join(self.user, "train.py")
        with open(path, "w") as file:
            file.write(LOOP.format(dtype="float32", optimizer="AdamW(model.parameters())", clip="pass"))
        done = self.python("", command=[support.sys.executable, path])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        program = self.record()["program"]
        with open(path) as file:
            lines = file.read().splitlines()
        self.assertEqual(program["task"], "training")
        self.assertEqual(program["loop"], {"recognized": True, "file": path, "line": lines.index("            optimizer.step()") + 1})
        self.assertEqual(program["loaders"], [
            {"batch_size": 32, "first_batch": {"0": [32, 16], "1": [32]}},
        ])  # fmt: skip
        model = program["models"][0]
        self.assertEqual((model["class"], model["library"], model["dtype"]), ("Net", "plain", "float32"))
        self.assertEqual(model["blocks"], [{"path": "layers", "class": "Block", "count": 4}])
        self.assertEqual((model["parameters"], model["bytes"]), (5266, 4 * 5266))
        self.assertEqual(program["optimizers"][0]["class"], "AdamW")
        self.assertEqual(program["optimizers"][0]["parameters"], 5266)
        kept = program["kept"]
        self.assertEqual([(one["kind"], one["name"], one["line"]) for one in kept], [
            ("loss-history", "losses", lines.index("            losses.append(loss)") + 1),
        ])  # fmt: skip
        self.assertIn("torch", program["imports"])

    def test_the_search_keeps_nothing_alive(self):
        out = self.passes(
            """
            import torch, weakref
            w = torch.ones(4, requires_grad=True)
            o = torch.optim.SGD([w], 0.1)
            seen = []
            def step():
                x = torch.ones(4)
                seen.append(weakref.ref(x))
                (w * x).sum().backward()
                o.step()
                del x
                print(seen[-1]() is None)
            for i in range(5):
                step()
            """
        )
        self.assertEqual(out, "True\n" * 5)


class Beginning(unittest.TestCase):
    def test_a_remedy_that_refuses_to_be_made_is_reported_under_its_own_name(self):
        class Waiting(Remedy):
            def attach(self, moments):
                pass

        def make(name, options):
            if name == "second":
                raise Refused("it needs a card")
            return Waiting(name, options)

        record = types.SimpleNamespace(remedies=[])
        with mock.patch.object(remedies, "make", make):
            remedies.install(None, record, {"remedies": [{"id": "first"}, {"id": "second"}]})
        reports = [report() for report in record.remedies]
        self.assertEqual([(one["id"], one["state"]) for one in reports], [("first", "unused"), ("second", "refused")])
        self.assertEqual(reports[1]["what"], "it needs a card")


if __name__ == "__main__":
    unittest.main()
