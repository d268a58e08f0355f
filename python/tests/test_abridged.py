"""Abridged loops: what a shortened loop leaves behind is what the whole one leaves."""

import linecache
import os
import textwrap
import time
import unittest

import support  # noqa: F401  (puts the package on the path)
import test_loops

from oomph.loops import abridged, attach, rewrite, sizing
from oomph.loops.abridged import Abridger
from oomph.loops.course import Course
from oomph.loops.loop import Loop
from oomph.loops.results import Result

try:
    import torch
except ImportError:
    torch = None


SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program_of_a_test.py")

program_of = []
"""The program that runs."""


class Program:
    """Runs an instrumented program on the CPU, with loops that seem to take long."""

    def __init__(self, text, **names):
        self.course = Course(test_loops.FakeMeter(), {"mode": "peak-stable", "steps": 3, "budget_seconds": 60})
        self.course.abridger = Abridger(torch, lambda: False)
        # Not a whole number, which would be one of the counters that are looked for.
        self.forwards = 0.0
        before = attach._course
        attach._course = self.course
        names.update({
            rewrite.LOOP: attach.loop, rewrite.GOES_ON: attach.goes_on, rewrite.OVER: attach.over, rewrite.NOW: attach.now,
            "torch": torch, "Net": self.net(), "Images": Images, "DataLoader": torch.utils.data.DataLoader,
            "stepped": self.stepped,
        })  # fmt: skip
        self.names = names
        program_of[:] = [self]
        try:
            # Where Python looks for source, so that it can be read as that of a file.
            text = textwrap.dedent(text)
            linecache.cache[SOURCE] = len(text), None, text.splitlines(True), SOURCE
            sizing._uses_around.cache_clear()
            exec(rewrite.instrument(text, SOURCE), names)
        finally:
            attach._course = before

    def stepped(self):
        self.course.ran_backward()
        self.course.stepped()

    def net(program):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 8)

            def forward(self, x):
                program.forwards += 1.0
                time.sleep(0.001)
                return self.inner(x)

        return Net


SIZES = {
    "a part of a buffer": ("rows, at = torch.empty(203, 8), 0", "rows[at:at + len(x)] = net(x); at += len(x)", "rows[:at]"),
    "a size": ("n = 0", "net(x); n += len(x)", "torch.empty(n, 8)"),
    "a number of another name": ("n = 0", "net(x); n = n + len(x)", "[k := n, torch.empty((k, 8))][1]"),
    "an attribute": ("o = type('O', (), {})(); o.n = 0", "net(x); o.n += len(x)", "torch.empty(8, 2 * o.n // 2).t()"),
    "a function of its own": ("array = lambda k: torch.empty(k, 8); n = 0", "net(x); n += len(x)", "array(n)"),
    "the number of the loop": ("i = 0", "net(x); i += 1", "torch.empty(i, 16).view(-1, 8)[:203]"),
}
"""Ways in which sizes follow from what a loop counts."""
PARTS = {
    "a part": "n / 7",
    "a text": "'%d of 7'.format(n)",
    "a tensor": "torch.tensor([n, 7])",
    "a line of a table": "[dict(n=n), str(n), f'{n}'] and print(end=str(n)[:0])",
}


class Images(torch.utils.data.Dataset if torch is not None else object):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.zeros(4), i % 10


WAYS = {
    "a list": ("feats = []", "feats.append(net(x))", "torch.cat(feats)"),
    "a list that is extended": ("feats = []", "feats.extend(net(x))", "torch.stack(feats)"),
    "a dictionary": ("feats = {}", "feats[len(feats)] = net(x)", "torch.cat(list(feats.values()))"),
    "a tuple": ("feats = ()", "feats += (net(x),)", "torch.cat(feats)"),
    "a tensor": ("feats = torch.empty(0, 8)", "feats = torch.cat([feats, net(x)])", "feats"),
    "a nested list": ("feats = {'a': []}", "feats['a'].append({'z': net(x)})", "torch.cat([one['z'] for one in feats['a']])"),
    "a count": ("n = 0", "net(x); n += len(x)", "torch.empty(n, 8)"),
    "labels": ("ys = []", "net(x); ys.extend(y.tolist())", "torch.empty(len(ys), 8)"),
}


@unittest.skipUnless(torch is not None, "needs torch")
class Collected(unittest.TestCase):
    def setUp(self):
        plain, Loop.pace = Loop.pace, test_loops.slow
        self.addCleanup(setattr, Loop, "pace", plain)

    def collected(self, before, body, after, rows=203, inside=False):
        text = f"""
            net = Net().eval()
            {before}
            with torch.no_grad():
                for x, y in DataLoader(Images({rows}), batch_size=2):
                    {body}
                out = {after}
            """
        if inside:
            lines = textwrap.dedent(text).strip().splitlines()
            text = "\n".join(["def run():", *("    " + line for line in lines), "    return out", "out = run()"])
        program = Program(text)
        return program, tuple(program.names["out"].shape)

    def test_each_way_of_collecting_leaves_what_the_whole_loop_leaves(self):
        for name, way in WAYS.items():
            with self.subTest(name):
                program, shape = self.collected(*way)
                self.assertEqual(shape, (203, 8))
                self.assertLess(program.forwards, 30, "computations were left out")
                self.assertEqual(program.course.as_list(), [])

    def test_comprehensions_and_generators(self):
        for text in (
            "out = torch.cat([net(x) for x, y in loader])",
            "out = torch.cat(list(net(x) for x, y in loader))",
            "out = torch.cat(list({i: net(x) for i, (x, y) in enumerate(loader)}.values()))",
            "def rows():\n    for x, y in loader:\n        yield net(x)\nout = torch.cat(list(rows()))",
            "out = []\nit = iter(loader)\nwhile (b := next(it, None)) is not None:\n    stepped()\n    out.append(net(b[0]))\nout = torch.cat(out)",
        ):
            with self.subTest(text):
                text = "net = Net().eval()\nloader = DataLoader(Images(203), batch_size=2)\ntorch.set_grad_enabled(False)\n" + text
                try:
                    program = Program(text)
                finally:
                    torch.set_grad_enabled(True)
                self.assertEqual(program.names["out"].shape, (203, 8))
                self.assertLess(program.forwards, 30)

    def test_counters_that_sizes_follow_from_are_counted_to_the_end_however_long_that_takes(self):
        plain, abridged._COUNTERS = abridged._COUNTERS, 0.0
        self.addCleanup(setattr, abridged, "_COUNTERS", plain)
        for name, way in SIZES.items():
            for text in ("collected", "in a function"):
                with self.subTest(name, text=text):
                    program, shape = self.collected(*way, inside=text == "in a function")
                    self.assertEqual(shape[0] // 2, 101)
                    self.assertLess(program.forwards, 30)
                    self.assertEqual(program.course.cut_short, {})
        for name, after in PARTS.items():
            with self.subTest(name):
                program = Program(
                    f"""
                    net = Net().eval()
                    n = 0
                    with torch.no_grad():
                        for x, y in DataLoader(Images(203), batch_size=2):
                            net(x); n += len(x)
                        out = {after}
                    """
                )
                self.assertLess(program.names["n"], 60, "it is cut")
                self.assertEqual(program.course.cut_short, {})

    def test_what_is_sized_by_a_count_that_was_cut_short_is_named(self):
        plain, Abridger.begin = Abridger.begin, lambda *_: None
        self.addCleanup(setattr, Abridger, "begin", plain)
        program, _ = self.collected("rows, at = torch.empty(203, 8), 0", "rows[at:at + len(x)] = net(x); at += len(x)", "rows[:at]")
        self.assertLess(program.names["at"], 60)
        self.assertEqual(list(program.course.cut_short), ["at"])

    def test_a_hook_that_collects_is_called_in_each_iteration(self):
        program, _ = self.collected(
            "rows = []; net.inner.register_forward_hook(lambda module, given, out: rows.append(out))", "net(x)", "torch.cat(rows)"
        )
        self.assertEqual(program.names["out"].shape, (203, 8))

    def test_samples_of_a_loader_without_a_length_are_drawn_and_put_together_only_where_their_shapes_are_new(self):
        for varies, most in ((False, 30), (True, 40)):
            with self.subTest(varies=varies):
                seen = {"drawn": 0.0, "joined": 0.0}

                class Stream(torch.utils.data.IterableDataset):
                    def __iter__(self, seen=seen, varies=varies):
                        for i in range(203):
                            seen["drawn"] += 1
                            yield torch.zeros(2 + (i // 2 % 3 if varies else 0), 4), i % 10

                def joined(samples, seen=seen):
                    seen["joined"] += 1
                    return torch.cat([x for x, _ in samples]), torch.tensor([y for _, y in samples])

                program = Program(
                    """
                    net = Net().eval()
                    feats = []
                    with torch.no_grad():
                        for x, y in DataLoader(Stream(), batch_size=2, collate_fn=joined):
                            feats.append(net(x))
                    out = torch.cat(feats)
                    """,
                    Stream=Stream, joined=joined,
                )  # fmt: skip
                rows = sum(2 + (i // 2 % 3 if varies else 0) for i in range(203))
                self.assertEqual(program.names["out"].shape, (rows, 8))
                self.assertEqual(seen["drawn"], 203)
                self.assertLess(seen["joined"], most)
                self.assertLess(program.forwards, most)

    def test_a_whole_iteration_between_abridged_ones_is_no_sign_of_growth_that_they_lack(self):
        # Memory has grown by more than 2 % after each iteration, and nobody knows the last one.
        def kept(x):
            program_of[0].course.meter.held += 1 << 20
            return x

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(torch.zeros(203, 4))

        program = Program(
            """
            net = Net().eval()
            feats = []
            with torch.no_grad():
                for x in DataLoader(Stream(), batch_size=2):
                    feats.append(kept(net(x)))
            """,
            Stream=Stream, kept=kept,
        )  # fmt: skip
        self.assertEqual(len(program.names["feats"]), 102)
        self.assertLess(program.forwards, 60)

    def test_a_loop_that_goes_on_as_it_was_goes_on_with_the_batches_that_are_left(self):
        # Abridged iterations of a module that keeps behind its own back lack what whole ones leave.
        for workers in (0, 2):
            with self.subTest(workers=workers):
                program = Program(
                    f"""
                    net = Net().eval()
                    hidden = []
                    class Sly(torch.nn.Module):
                        def forward(self, x):
                            hidden.append(net(x))
                            return x
                    sly, seen, n = Sly(), [], 0
                    with torch.no_grad():
                        for x, y in DataLoader(Images(31), batch_size=2, num_workers={workers}):
                            sly(x); seen.append(y.tolist()); n += 1
                    """
                )
                seen = program.names["seen"]
                self.assertLess(len(program.names["hidden"]), 16, "some were abridged")
                self.assertEqual((program.names["n"], len(seen), seen[-1]), (16, 16, [0]))
                self.assertEqual(seen[-3:-1], [[6, 7], [8, 9]])

    def test_blocks_of_several_sizes_are_no_sign_that_something_is_lacking(self):
        class Meter(test_loops.FakeMeter):
            def read(self, reset=True):
                self.odd = not getattr(self, "odd", False)
                self.held = 1000 << 20 if self.odd else 1001 << 20
                return super().read(reset)

        plain, test_loops.FakeMeter = test_loops.FakeMeter, Meter
        self.addCleanup(setattr, test_loops, "FakeMeter", plain)
        program, shape = self.collected(*SIZES["a part of a buffer"])
        self.assertEqual(shape, (203, 8))
        self.assertLess(program.forwards, 60)

    def test_sizes_that_follow_from_contents_are_those_of_the_whole_loop(self):
        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 400

            def __getitem__(self, index):
                return {"n": 50 if index == 301 else 2}

        def longest(samples):
            return torch.zeros(len(samples), max(one["n"] for one in samples), 4)

        class Sized(torch.nn.Linear):
            most = 0

            def forward(self, x):
                time.sleep(0.001)
                Sized.most = max(Sized.most, x.shape[1])
                return super().forward(x)

        names = {"Numbers": Numbers, "longest": longest, "net": Sized(4, 8)}
        collects = "kept = []\nfor x in DataLoader(Numbers(), 2, collate_fn=longest):\n    kept.append(net(x).flatten(0, 1).detach())\n"
        program = Program(collects + "out = torch.cat(kept)\n", **names)
        self.assertEqual(program.names["out"].shape, (199 * 4 + 2 * 50, 8))
        Sized.most = 0
        # What keeps nothing is cut, and what is left of it looked at.
        Program("def run():\n    for x in DataLoader(Numbers(), 2, collate_fn=longest):\n        net(x)\nrun()\n", **names)
        self.assertEqual(Sized.most, 50)

    def test_an_evaluation_has_the_larger_batches_that_come_late(self):
        rows = [torch.zeros(9 if index > 300 else 3, 4) for index in range(400)]
        seen = []

        def stacked(samples):
            return torch.stack(samples)

        class Sized(torch.nn.Linear):
            def forward(self, x):
                time.sleep(0.001)
                seen.append(x.shape[1])
                return super().forward(x)

        text = "def run():\n    for x in DataLoader(rows, 1, collate_fn=stacked):\n        net(x)\nrun()\n"
        Program(text, rows=rows, stacked=stacked, net=Sized(4, 8))
        self.assertEqual(max(seen), 9)
        self.assertLess(len(seen), 40)

    def test_batches_of_texts_that_are_longer_come_late(self):
        texts = [("a" * (90 if index == 301 else 8), index % 3) for index in range(400)]
        for trains in ("", "; stepped()"):
            seen = []

            class Sized(torch.nn.Linear):
                def forward(self, x, seen=seen):
                    time.sleep(0.001)
                    seen.append(len(x))
                    return super().forward(x)

            text = "def run():\n    for x, y in DataLoader(texts, 2):\n        net(torch.zeros(max(map(len, x)), 4))%s\nrun()\n" % trains
            Program(text, texts=texts, net=Sized(4, 8))
            self.assertEqual(max(seen), 90, trains)
            self.assertLess(len(seen), 40)

    def test_texts_of_other_lengths_are_put_together_anew(self):
        program = Program(
            """
            net = Net().eval()
            feats = []
            with torch.no_grad():
                for x in DataLoader(Texts(), batch_size=2, collate_fn=joined):
                    feats.append(net(x))
            out = torch.cat(feats)
            """,
            Texts=type("Texts", (torch.utils.data.IterableDataset,), {"__iter__": lambda self: iter("a" * (1 + i // 80) for i in range(200))}),
            joined=lambda texts: torch.zeros(sum(map(len, texts)), 4),
        )  # fmt: skip
        self.assertEqual(program.names["out"].shape, (80 + 160 + 120, 8))

    def test_values_of_small_results_are_those_that_were_seen_in_whichever_order_they_lie(self):
        plain = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
        both = torch.arange(40.0)
        laid = [plain, plain.to(memory_format=torch.channels_last), plain.transpose(1, 3), both[::2], both[4:14]]
        laid += [torch.ones(1).expand(4), torch.ones(3, 1).expand(3, 4)[1:]]
        for out in (laid, [plain], both.view(5, 8).t()):
            again = Result(torch, out, [], torch.nn.Identity()).make([])
            for one, other in zip(out, again):
                self.assertEqual(one.stride(), other.stride())
                self.assertTrue(torch.equal(one, other))
                self.assertNotEqual(one.data_ptr(), other.data_ptr())

    def test_training_keeps_its_gradients_and_collects(self):
        program = Program(
            """
            net = Net()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            opt.register_step_post_hook(lambda *_: stepped())
            feats, losses = [], []
            for x, y in DataLoader(Images(203), batch_size=2):
                z = net(x)
                z += 1
                loss = z.mean()
                opt.zero_grad(); loss.backward(); opt.step()
                feats.append(z.detach()); losses.append(loss.item())
            """
        )
        self.assertEqual(torch.cat(program.names["feats"]).shape, (203, 8))
        self.assertEqual(len(program.names["losses"]), 102)
        self.assertLess(program.forwards, 30)
        self.assertIsNotNone(program.names["net"].inner.weight.grad)
        self.assertEqual(program.course.steps + program.course.skipped_steps, 102)
        self.assertNotIn("step", vars(program.names["opt"]))

    def test_epochs_that_collect_are_all_made(self):
        program = Program(
            """
            net = Net()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            opt.register_step_post_hook(lambda *_: stepped())
            feats = []
            for epoch in range(6):
                for x, y in DataLoader(Images(203), batch_size=2):
                    z = net(x)
                    opt.zero_grad(); z.mean().backward(); opt.step()
                    feats.append(z.detach())
            """
        )
        self.assertEqual(torch.cat(program.names["feats"]).shape, (6 * 203, 8))
        self.assertLess(program.forwards, 120)

    def test_the_steps_of_a_while_that_is_abridged_are_counted(self):
        program = Program(
            """
            net = Net()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            opt.register_step_post_hook(lambda *_: stepped())
            for epoch in range(2):
                feats, i = [], 0
                while i < 203:
                    z = net(torch.zeros(min(2, 203 - i), 4))
                    opt.zero_grad(); z.mean().backward(); opt.step()
                    feats.append(z.detach())
                    i += 2
            """
        )
        self.assertEqual(torch.cat(program.names["feats"]).shape, (203, 8))
        self.assertLess(program.forwards, 60)
        self.assertEqual(program.course.steps + program.course.skipped_steps, 204)

    def test_a_body_that_keeps_elsewhere_is_not_abridged(self):
        # What a module keeps behind its own back is seen as growth that an abridged iteration lacks.
        program = Program(
            """
            net = Net().eval()
            hidden = []
            class Sly(torch.nn.Module):
                def forward(self, x):
                    hidden.append(net(x))
                    return x
            sly = Sly()
            with torch.no_grad():
                for x, y in DataLoader(Images(203), batch_size=2):
                    sly(x)
                out = torch.cat(hidden)
            """
        )
        rows = len(program.names["out"])
        self.assertTrue(rows == 203 or program.course.cut_short, "%d rows and no word of it" % rows)

    def test_a_loop_that_is_left_leaves_the_program_to_torch(self):
        for leaves in ("if len(feats) == 60: break", "if len(feats) == 60: raise KeyError(60)"):
            with self.subTest(leaves):
                program = Program(
                    f"""
                    net = Net()
                    feats = []
                    def run():
                        for x, y in DataLoader(Images(203), batch_size=2):
                            feats.append(net(x))
                            {leaves}
                    try:
                        run()
                    except KeyError as error:
                        seen = interrupted(error.__traceback__)
                    before = calls()
                    net(torch.zeros(2, 4))
                    called = calls() - before
                    """,
                    interrupted=lambda traceback: program_of[0].course.abridger.interrupted_in(traceback),
                    calls=lambda: program_of[0].forwards,
                )
                self.assertEqual(program.names["called"], 1)
                if "raise" in leaves:
                    self.assertEqual(program.names["seen"]["line"], 5)

    def test_what_a_loop_without_results_does_is_cut(self):
        program = Program(
            """
            net = Net().eval()
            def run(loader):
                with torch.no_grad():
                    for x, y in loader:
                        net(x)
            run(DataLoader(Images(2003), batch_size=2))
            """
        )
        self.assertLess(program.forwards, 30)
        (found,) = program.course.as_list()
        self.assertTrue(found["shortened"])


if __name__ == "__main__":
    unittest.main()
