"""Loops: how source is instrumented, when a loop has shown what it does, and what is left out of it."""

import itertools
import sys
import textwrap
import unittest
import weakref

import support  # noqa: F401  (puts the package on the path)

from oomph.loops import census, length, rewrite, skim
from oomph.loops.attach import _early as early
from oomph.loops.course import Course
from oomph.loops.loop import ForLoop
from oomph.loops.progress import FLAT, GROWING, UNKNOWN, Progress, fills_after

MIB = 1 << 20


class Trends(unittest.TestCase):
    def read(self, values, skip=0, peak=lambda index: 7):
        progress = Progress(skip)
        for index, value in enumerate(values):
            progress.read(value, peak(index))
        return progress

    def test_too_few_say_nothing(self):
        self.assertEqual(self.read([5, 9]).trend(), (UNKNOWN, 0))

    def test_what_stays_is_flat(self):
        self.assertEqual(self.read([100 * MIB] * 4).trend(), (FLAT, 0))
        self.assertEqual(self.read([100 * MIB] * 4).unmoved, 3)

    def test_first_iterations_do_not_count(self):
        self.assertEqual(self.read([0, 300 * MIB, 500 * MIB, 500 * MIB, 500 * MIB], skip=2).trend(), (FLAT, 0))

    def test_constant_growth_and_small_growth(self):
        self.assertEqual(self.read([index * 12 * MIB for index in range(4)]).trend(), (GROWING, 12 * MIB))
        self.assertEqual(self.read([index * 512 for index in range(4)]).trend(), (GROWING, 512))

    def test_lengths_that_vary_are_no_growth(self):
        values = [(100 + 30 * (index * 7 % 5)) * MIB for index in range(14)]
        self.assertEqual(self.read(values).trend(), (FLAT, 0))

    def test_growth_below_variation_is_seen_in_the_long_run(self):
        values = [(100 + 20 * index + 15 * (index * 7 % 5)) * MIB for index in range(14)]
        trend, rate = self.read(values).trend()
        self.assertEqual(trend, GROWING)
        self.assertAlmostEqual(rate / MIB, 20, delta=4)

    def test_epochs(self):
        self.assertEqual(self.read([5 * MIB]).trend_of_epochs(), (UNKNOWN, 0))
        self.assertEqual(self.read([5 * MIB, 5 * MIB]).trend_of_epochs(), (FLAT, 0))
        self.assertEqual(self.read([5 * MIB, 9 * MIB]).trend_of_epochs(), (UNKNOWN, 0))
        self.assertEqual(self.read([5 * MIB, 9 * MIB, 13 * MIB]).trend_of_epochs(), (GROWING, 4 * MIB))

    def test_when_a_card_is_full(self):
        self.assertEqual(fills_after(10, 95), 9)
        self.assertIsNone(fills_after(0, 95))


class Lengths(unittest.TestCase):
    def test_through_enumerate_and_zip(self):
        self.assertEqual(length.length_of(enumerate(range(9))), 9)
        self.assertEqual(length.length_of(zip([1, 2, 3], range(9))), 3)
        self.assertIsNone(length.length_of(itertools.count()))

    def test_generators_name_their_loader_and_keep_nothing(self):
        class DataLoader:
            batch_size, dataset = 4, []

            def __len__(self):
                return 12

            def __iter__(self):
                batch = object()
                yield batch
                yield sys.getrefcount(batch)

        iterator = iter(DataLoader())
        next(iterator)
        self.assertEqual(length.length_of(enumerate(iterator)), 12)
        self.assertTrue(length.gives_batches(enumerate(iterator)))
        # Only the generator's own frame and the call's argument refer to the batch.
        self.assertEqual(next(iterator), 2)

    def test_choices_are_not_alike(self):
        self.assertTrue(length.may_differ([8, 16, 32]))
        self.assertTrue(length.may_differ(range(8, 128, 8)))
        self.assertFalse(length.may_differ(range(100)))
        self.assertFalse(length.gives_batches([1, 2]))

    def test_objects_whose_attributes_raise_are_left_alone(self):
        class Config:
            def __getattr__(self, name):
                raise KeyError(name)

            def __iter__(self):
                return iter([self])

        self.assertIsNone(length.length_of(Config()))
        self.assertFalse(length.gives_batches(Config()))
        self.assertEqual(skim.size_of([Config(), {"x": Config()}, Batch(32)]), Batch(32).shape[0])
        self.assertEqual(skim.size_of([["a", "abcd", ""], Batch(2)]), 12)
        self.assertEqual(skim.text_of([["a.png", "b.png"], Batch(32)]), 0, "names next to images")

    def test_objects_that_answer_to_every_name_say_nothing(self):
        class Results:
            """As pyparsing's: an empty text for whatever it lacks."""

            def __getattr__(self, name):
                return ""

            def __iter__(self):
                return iter([1])

        self.assertIsNone(length.inner_of(Results()))
        self.assertIsNone(length.length_of(Results()))
        self.assertFalse(length.gives_batches(Results()))


class Looking(unittest.TestCase):
    def test_a_module_that_is_named_like_a_librarys_is_looked_at(self):
        for module, seen in (("queue_of_results", True), ("logging.results", False), ("queue", False), ("tqdm_rows", True)):
            # Of a class that keeps its results.
            keeper = type("Keeper", (), {"__module__": module})()
            keeper.rows = [1, 2, 3]
            found = census.count(sys._getframe(), Tensorlike, Tensorlike)
            self.assertEqual(any(path[-2:] == ("keeper", "rows") for path in found), seen, module)

    def test_what_a_variable_held_is_let_go(self):
        def body():
            kept = Batch(32)
            census.count(sys._getframe(), Tensorlike, Tensorlike)
            found, kept = weakref.ref(kept), None
            return found()

        self.assertIsNone(body())


class FakeMeter:
    """Memory as the test says: `held` and `peak` in bytes."""

    on = True

    def __init__(self):
        self.held, self.peak = 0, 0
        self.windows = []

    def usable(self):
        return True

    def open(self):
        from oomph.meter import Window

        self.windows.append(Window())
        return self.windows[-1]

    def close(self, window):
        self.windows.remove(window)

    def read(self, reset=True):
        self.peak = max(self.peak, self.held)
        for window in self.windows:
            window.fold(0, self.peak, self.held)
        return {0: (self.peak, self.held)}


class Program:
    """Runs an instrumented program whose names are the test's."""

    def __init__(self, text, room=None, **names):
        self.meter = FakeMeter()
        self.course = Course(self.meter, {"mode": "peak-stable", "steps": 3, "budget_seconds": 60})
        self.course.abridger = Counts()
        self.course.headroom = lambda: None if room is None else room - self.meter.held
        names.update({
            rewrite.LOOP: lambda iterable, line, distinct=None, hands_out=False: ForLoop(self.course, iterable, "program.py", line, distinct),
            rewrite.NOW: lambda value, line, counted=None: self.course.now(value, line, early(*counted) if counted else 0),
            "step": self.step, "batch": self.batch, "backward": self.course.ran_backward, "leak": self.leak, "did": [],
            "step_now": lambda: self.course.step_now(self.course.steps),
        })  # fmt: skip
        self.names = names
        exec(rewrite.instrument(textwrap.dedent(text), "program.py"), names)
        self.did = names["did"]

    def batch(self):
        """A forward pass that takes some time."""
        import time

        time.sleep(0.0005)
        self.meter.held = max(self.meter.held, 64 * MIB)

    def step(self):
        self.batch()
        self.course.stepped()

    def leak(self, size=MIB):
        self.batch()
        self.meter.held += size


class Counts:
    """Counts what a program keeps, and abridges nothing."""

    replaces = False

    def look(self, loop):
        loop.kept.look(census.count(sys._getframe(1), Tensorlike, Tensorlike), loop.iterations())

    def begin(self, course, loop, rate):
        return None


class Tensorlike:
    """What no program of these tests has."""


class Loader:
    """A loader of batches whose processing takes long enough to be worth shortening."""

    batch_size = 4
    dataset = ()

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(range(self.count))


class Batch:
    """Something with a shape, as a tensor has."""

    ndim = 1

    def __init__(self, size):
        self.shape = (size,)


def slow(loop):
    return 1.0


class Shortened(unittest.TestCase):
    def setUp(self):
        from oomph.loops.loop import Loop

        # The pace comes from the processor's clock, which a test would have to burn.
        plain, Loop.pace = Loop.pace, slow
        self.addCleanup(setattr, Loop, "pace", plain)

    def test_epochs_end_early_and_what_follows_happens(self):
        program = Program(
            """
            for epoch in range(40):
                for x in loader:
                    step(); did.append("t")
                for x in loader:
                    batch(); did.append("e")
                did.append(epoch)
            did.append("end")
            """,
            loader=Loader(1000),
        )
        self.assertEqual([one for one in program.did if isinstance(one, int)], [0, 1])
        self.assertEqual(program.did[-1], "end")
        self.assertLess(program.did.count("t"), 20)
        self.assertLess(program.did.count("e"), 20)
        kinds = {one["kind"] for one in program.course.as_list()}
        self.assertEqual(kinds, {"epochs", "training", "evaluation"})

    def test_an_epoch_that_differs_is_run(self):
        program = Program(
            """
            for epoch in range(40):
                if epoch == 25:
                    did.append("unfrozen")
                for x in loader:
                    step()
                did.append(epoch)
            """,
            loader=Loader(1000),
        )
        self.assertIn("unfrozen", program.did)
        self.assertLess(len(program.did), 10)

    def test_what_is_done_every_so_often_is_done_once(self):
        program = Program(
            """
            count = 0
            for x in loader:
                step()
                count += 1
                if count % 500 == 0:
                    did.append(count)
            """,
            loader=Loader(1000),
        )
        self.assertEqual(len(program.did), 1)
        self.assertLess(program.names["count"], 20)

    def test_a_choice_of_sizes_is_run_whole(self):
        program = Program(
            """
            for size in [8, 16, 32, 64]:
                for x in range(100):
                    step()
                did.append(size)
            """
        )
        self.assertEqual(program.did, [8, 16, 32, 64])

    def test_accumulation_is_not_ended_before_its_steps(self):
        program = Program(
            """
            for i, x in enumerate(loader):
                backward(); batch()
                if (i + 1) % 32 == 0:
                    step(); did.append(i)
            """,
            loader=Loader(1000),
        )
        self.assertEqual(program.did[:4], [31, 63, 95, 127])
        self.assertLess(len(program.did), 12)

    def test_the_step_is_that_of_the_whole_program(self):
        program = Program(
            """
            for epoch in range(2):
                for x in loader:
                    step()
                did.append(step_now())
            """,
            loader=Loader(1000),
        )
        self.assertEqual(program.did, [1001, 2001])

    def test_what_is_done_early_says_the_step_in_which_it_is_due(self):
        program = Program(
            """
            count = 0
            for x in loader:
                step()
                count += 1
                if count % 500 == 0:
                    did.append(step_now() - 1)
            """,
            loader=Loader(1000),
        )
        self.assertEqual(program.did, [500])

    def test_a_loader_of_unknown_length_is_counted_and_its_larger_batches_run(self):
        program = Program(
            """
            for x in batches():
                step(); did.append((x.shape[0], step_now() - 1))
            did.append(step_now() - 1)
            """,
            batches=lambda: (Batch(64 if index == 70 else 32) for index in range(90)),
        )
        sizes = [one for one in program.did[:-1] if one[0] == 64]
        self.assertEqual(sizes, [(64, 71)])
        self.assertEqual(program.did[-1], 90)
        self.assertLess(len(program.did), 20)

    def test_an_endless_loader_loses_count(self):
        program = Program(
            """
            for x in batches():
                step()
            did.append(step_now())
            """,
            batches=lambda: (Batch(32) for _ in itertools.count()),
        )
        self.assertEqual(program.did, [0])

    def test_a_buffer_that_is_full_grows_no_more(self):
        program = Program(
            """
            for x in loader:
                step()
                if x < 12:
                    leak(MIB)
                did.append(x)
            """,
            loader=Loader(1000), MIB=MIB, room=100 * MIB,
        )  # fmt: skip
        (found,) = program.course.as_list()
        self.assertIsNone(found["growth"])

    def test_a_loop_that_fills_a_list_is_run_whole_where_that_costs_little(self):
        from oomph.loops.loop import Loop

        text = """
            feats = []
            for x in loader:
                batch(); feats.append(Batch(4))
            """
        Loop.pace = lambda loop: 0.02
        program = Program(text, loader=Loader(1000), Batch=Batch)
        self.assertEqual(len(program.names["feats"]), 1000)
        self.assertEqual(program.course.cut_short, {})
        Loop.pace = slow
        program = Program(text, loader=Loader(1000), Batch=Batch)
        self.assertLess(len(program.names["feats"]), 20)
        self.assertEqual(list(program.course.cut_short), ["feats"])

    def test_layers_and_setting_up_are_left_alone(self):
        program = Program(
            """
            for layer in iter(range(200)):
                leak(); did.append(layer)
            """
        )
        self.assertEqual(len(program.did), 200)


class Growing(unittest.TestCase):
    def setUp(self):
        from oomph.loops.loop import Loop

        plain, Loop.pace = Loop.pace, slow
        self.addCleanup(setattr, Loop, "pace", plain)

    def test_a_leak_that_fills_the_card_soon_is_followed(self):
        from oomph.loops.loop import Loop

        Loop.pace = lambda loop: 0.1
        program = Program("for x in loader:\n    leak(MIB); step(); did.append(x)\n", room=264 * MIB, loader=Loader(400), MIB=MIB)
        # The fake card refuses nothing, so the loop goes on to where it would be full, and beyond.
        self.assertGreater(len(program.did), 190)

    def test_a_leak_that_fills_the_card_in_the_next_epoch_is_followed(self):
        from oomph.loops.loop import Loop

        Loop.pace = lambda loop: 0.2
        text = """
            for epoch in range(3):
                for x in loader:
                    leak(MIB); step(); did.append(step_now() - 1)
            """
        program = Program(text, room=(64 + 90) * MIB, loader=Loader(60), MIB=MIB)
        self.assertEqual(program.did[:90], list(range(1, 91)))

    def test_a_card_is_full_after_as_many_steps_as_were_made(self):
        text = """
            for epoch in range(2):
                for x in loader:
                    leak(MIB); step(); did.append(step_now() - 1)
            """
        program = Program(text, loader=Loader(5000), MIB=MIB)
        self.assertLess(program.did[-1], 60)

    def test_a_leak_over_a_long_loop_is_extrapolated(self):
        program = Program("for x in loader:\n    leak(MIB); step(); did.append(x)\n", loader=Loader(5000), MIB=MIB)
        (found,) = program.course.as_list()
        self.assertTrue(found["shortened"])
        self.assertLess(len(program.did), 30)
        self.assertEqual(found["growth"]["bytes_per_iteration"], MIB)
        self.assertEqual(found["growth"]["at_end_bytes"], found["growth"]["peak_bytes"] + (5000 - len(program.did)) * MIB)

    def test_what_an_earlier_epoch_left_out_is_counted(self):
        program = Program(
            """
            for epoch in range(2):
                for x in loader:
                    leak(MIB); step()
            """,
            loader=Loader(5000), MIB=MIB,
        )  # fmt: skip
        grown = [one for one in program.course.as_list() if one["growth"] and one["kind"] == "training"]
        self.assertAlmostEqual(grown[0]["growth"]["at_end_bytes"], (64 + 10000) * MIB, delta=80 * MIB)


class Filling(unittest.TestCase):
    """A buffer with a capacity, which an iteration adds members to until it is full."""

    def room(self, counts, iterations, run, rate, limit=50, each=MIB):
        from oomph.loops.witness import Witness

        witness = Witness(None)
        witness._at = list(range(1, len(counts) + 1))
        witness._growing.filling["buffer"] = {"limit": limit, "count": counts, "bytes": [count * each for count in counts]}
        return witness.room(iterations, run, rate)

    def test_what_is_left_of_the_capacity_is_what_is_left_of_the_growth(self):
        self.assertEqual(self.room([10, 11, 12], 3, MIB, MIB), 38)
        # Two iterations later.
        self.assertEqual(self.room([10, 11, 12], 5, MIB, MIB), 36)

    def test_an_iteration_whose_inner_loop_was_shortened_adds_more_in_the_whole_program(self):
        # It has run 2 of 10 rounds: the buffer of 50 is full after 5 iterations, 3 of which have been made.
        self.assertEqual(self.room([2, 4, 6], 3, 2 * MIB, 10 * MIB), 2)

    def test_a_buffer_that_takes_little_of_the_growth_decides_nothing(self):
        self.assertIsNone(self.room([10, 11, 12], 3, 2 * MIB, 2 * MIB))
        self.assertIsNone(self.room([10, 10, 10], 3, MIB, MIB))


class Source(unittest.TestCase):
    def changed(self, text):
        return rewrite.instrument(textwrap.dedent(text), "x.py") is not None

    def test_lines_stay_where_they_are(self):
        code = rewrite.instrument("for x in y:\n    f(x)\n\nraise ValueError\n", "x.py")
        names = {rewrite.LOOP: lambda iterable, *_: iterable, "y": [1], "f": lambda x: None}
        try:
            exec(code, names)
        except ValueError as error:
            self.assertEqual(error.__traceback__.tb_next.tb_lineno, 4)

    def test_layers_are_not_looked_at(self):
        self.assertFalse(self.changed("class A(nn.Module):\n    def forward(self, x):\n        for b in self.bs: x = b(x)\n"))
        self.assertTrue(self.changed("class T(Trainer):\n    def run(self, x):\n        for b in self.bs: x = b(x)\n"))

    def test_what_a_compiler_reads_stays(self):
        body = "def f(x):\n    for i in range(3): x[i] = math.sqrt(i)\n"
        self.assertTrue(self.changed(body))
        for decorator in ("cuda.jit", "njit", 'cuda.jit("void(f4[:])", device=True)', "torch.compile(dynamic=True)", "jax.jit"):
            self.assertFalse(self.changed("@%s\n%s" % (decorator, body)), decorator)
        self.assertTrue(self.changed("@functools.cache\n" + body))
        self.assertFalse(self.changed("@jitclass(spec)\nclass A:\n  def f(self):\n    for i in range(3): g(i)\n"))
        self.assertFalse(self.changed(body + "kernel = cuda.jit(f)\n"))
        self.assertFalse(self.changed(body + 'kernel = cuda.jit("void(f4[:])")(f)\n'))

    def test_endless_loops_and_bare_ones_stay(self):
        self.assertFalse(self.changed("while True:\n    f()\n"))
        self.assertFalse(self.changed("for x in y:\n    z += x\n"))

    def test_what_cannot_be_parsed_is_left_to_python(self):
        self.assertIsNone(rewrite.instrument("for in", "x.py"))


if __name__ == "__main__":
    unittest.main()
