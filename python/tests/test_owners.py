"""Naming the bytes: what is noted, what is forgotten, what tensors and graphs are asked. None of it needs a GPU."""

import json
import os
import threading
import unittest
import unittest.mock

import support

from oomph.owners import notes as notes_module
from oomph.owners.kept import Lengths
from oomph.owners.notes import Notes
from oomph.owners.share import Share

try:
    import torch
except ImportError:
    torch = None

WITH_TORCH = unittest.skipIf(torch is None, "torch is not installed")


class Allocator:
    """The numbers that torch keeps of one device."""

    def __init__(self):
        self.allocated = 0
        self.peak = 0

    def stats(self, device):
        return {
            "allocation": {"all": {"allocated": self.allocated}},
            "allocated_bytes": {"all": {"peak": self.peak}},
            "reserved_bytes": {"all": {"peak": self.peak}},
        }


class Places(unittest.TestCase):
    def setUp(self):
        self.allocator = Allocator()
        self.notes = Notes(self.allocator.stats)
        self.notes.starts[0] = 0

    def test_counts_survive_a_reset_of_the_statistics(self):
        self.allocator.allocated = 70
        self.notes.counts_reset(0)
        self.allocator.allocated = 5
        self.assertEqual(self.notes.count(0), 75)

    def test_a_moment_is_read_once(self):
        self.allocator.allocated = 3
        moment = self.notes.moment()
        self.assertEqual(moment.at(0), 3)
        self.allocator.allocated = 9
        self.assertEqual((moment.at(0), self.notes.moment().at(0)), (3, 9))

    def entry(self, address, name="weight"):
        return (0, self.notes.count(0), address, 512, "parameter", name, [128], "float32")

    def test_what_lasts_is_noted_once_per_place(self):
        for address in (4096, 4096, 8192, 8192):
            self.notes.name_lasting("weight", self.entry(address))
        self.assertEqual([entry[2] for entry in self.notes.lasting], [4096, 8192])
        # After a move the same address may be another block.
        self.notes.generation += 1
        self.notes.name_lasting("weight", self.entry(8192))
        self.assertEqual(len(self.notes.lasting), 3)

    def test_steps_away_from_the_peak_are_forgotten_and_said_to_be(self):
        for step in range(1, 41):
            self.allocator.allocated += 1
            if step == 20:
                self.allocator.peak = 1000
            for number in range(notes_module.ENOUGH // 10):
                self.notes.name(self.entry(512 * number, "step-%d" % step))
            self.notes.phase(0, self.allocator.allocated, "forward", True)
            self.notes.phase(0, self.allocator.allocated, "forward", False)
            self.notes.close(step + 1)
        kept = {entry["name"] for entry in self.notes.as_dict(1)["names"]}
        # A block without a name is still attributed by its phase.
        phases = self.notes.as_dict(1)["phases"]
        self.assertEqual([phase["step"] for phase in phases[::2]], list(range(1, 41)))
        self.assertEqual([phase["begin"] for phase in phases], [True, False] * 40)
        self.assertIn("step-20", kept)
        self.assertIn("step-1", kept)
        self.assertIn("step-40", kept)
        self.assertNotIn("step-30", kept)
        self.assertFalse(self.notes.as_dict(1)["complete"]["names"])

    def test_a_short_run_is_kept_whole(self):
        for step in range(1, 30):
            self.notes.name(self.entry(512, "step-%d" % step))
            self.notes.close(step + 1)
        document = self.notes.as_dict(1)
        self.assertEqual(len(document["names"]), 29)
        self.assertEqual(document["complete"], {"names": True, "modules": True})

    def test_a_window_is_bounded(self):
        for number in range(notes_module.MAX_MODULES + 10):
            self.notes.module(0, number, "enter", "a")
        document = self.notes.as_dict(1)
        self.assertEqual(len(document["modules"]), notes_module.MAX_MODULES)
        self.assertFalse(document["complete"]["modules"])

    def test_the_document(self):
        self.allocator.allocated = 7
        self.notes.name(self.entry(4096))
        self.notes.module(0, 7, "enter", "layer.0")
        self.notes.phase(0, 7, "forward", True)
        document = json.loads(json.dumps(self.notes.as_dict(12)))
        self.assertEqual(
            document,
            {
                "schema": "oomph.names/1",
                "pid": 12,
                "devices": {"0": {"allocations_at_start": 0, "allocations_at_snapshot": 7}},
                "names": [
                    {"device": 0, "at": 7, "address": 4096, "size": 512, "owner": "parameter", "name": "weight",
                     "shape": [128], "dtype": "float32"}
                ],
                "modules": [{"device": 0, "at": 7, "enter": "layer.0"}],
                "phases": [{"device": 0, "at": 7, "phase": "forward", "step": 1, "begin": True}],
                "complete": {"names": True, "modules": True},
            },
        )


class Kept(unittest.TestCase):
    class Module:
        pass

    def looks(self, lengths, module=None, kind=list):
        module = module or self.Module()
        return [self.lengths.owner(module, "outputs", kind(zip(range(length), range(length)))) for length in lengths][-1]

    def setUp(self):
        self.lengths = Lengths()

    def test_a_list_that_gets_longer_holds_steps(self):
        self.assertEqual(self.looks([0, 0, 1, 2]), "activation")
        self.assertEqual(self.looks([0, 40]), "activation", "nobody looked in between")
        self.assertEqual(self.looks([1, 2, 3], kind=dict), "activation")
        self.assertIsNone(self.looks([0, 0, 1]), "it may be a table that is made late")

    def test_tables_do_not(self):
        self.assertEqual(self.looks([3, 3, 3]), "buffer")
        self.assertEqual(self.looks([0, 3, 3]), "buffer", "made at the first call")
        self.assertEqual(self.lengths.owner(self.Module(), "scale", 1.0), "buffer")

    def test_another_module_at_the_same_address_begins_anew(self):
        for _ in range(50):
            self.assertIsNone(self.looks([0, 1]))


class TimeShare(unittest.TestCase):
    def test_observing_stops_when_it_has_taken_its_share(self):
        with unittest.mock.patch("oomph.owners.share.time") as time:
            time.process_time.return_value = time.thread_time.return_value = time.perf_counter.return_value = 0.0
            share = Share()
            self.assertTrue(share.left())
            since = share.start()
            time.process_time.return_value = time.thread_time.return_value = 2.0
            # Other work had the processors most of the time, which is not the program's.
            time.perf_counter.return_value = 100.0
            share.end(since)
            self.assertFalse(share.left())
            time.process_time.return_value = 100.0
            self.assertTrue(share.left())


class Seen:
    """A moment that keeps the addresses of what it is shown."""

    def __init__(self):
        self.addresses = set()

    def see(self, tensors, tensor, owner, name, **options):
        self.addresses.add(tensor.data_ptr())


@WITH_TORCH
class Threads(unittest.TestCase):
    def setUp(self):
        from oomph.owners.modules import Modules
        from oomph.owners.tensors import Tensors
        from oomph.quiet import Quiet

        self.notes = Notes(Allocator().stats)
        self.modules = Modules(torch, Tensors(torch), self.notes, Share(), Quiet(torch))

    def work(self, model):
        """Call a model and run its backward pass, as far as the hook sees it."""
        self.modules._called_here(self.modules.root_of(model))
        self.modules.workers.pass_begins()
        model(torch.ones(1, 2)).sum().backward()
        self.modules.workers.pass_ended()

    def seen(self):
        seen = Seen()
        self.modules.see_gradients(seen)
        return seen.addresses

    def test_gradients_of_a_thread_that_lives_are_left_alone(self):
        """The other thread may let go of them in C++ at any time, and then reading them ends the process."""
        several = []
        self.modules.workers.on_several = lambda: several.append(True)
        first, second, never_called = (torch.nn.Linear(2, 2, bias=False) for _ in range(3))
        self.work(first)
        own = first.weight.grad.data_ptr()
        self.assertEqual(self.seen(), {own})
        done, go_on = threading.Event(), threading.Event()

        def other():
            try:
                self.work(second)
            finally:
                done.set()
            go_on.wait()

        thread = threading.Thread(target=other)
        thread.start()
        done.wait()
        self.addCleanup(thread.join)
        self.addCleanup(go_on.set)
        self.modules.root_of(never_called)
        never_called(torch.ones(1, 2)).sum().backward()
        self.assertEqual(self.seen(), {own})
        self.assertEqual(len(several), 1)
        # A part that both call is nobody's alone.
        self.work(torch.nn.Sequential(first, second))
        self.assertEqual(self.seen(), {own})
        go_on.set()
        thread.join()
        self.assertEqual(self.seen(), {model.weight.grad.data_ptr() for model in (first, second, never_called)})

    def test_a_pass_is_known_from_within(self):
        inside = []
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda gradient: inside.append(self.modules.workers.is_in_pass()))
        y.sum().backward()
        self.assertEqual((inside, self.modules.workers.is_in_pass()), ([True], False))


@WITH_TORCH
class Graphs(unittest.TestCase):
    def setUp(self):
        from oomph.owners.graph import Graph
        from oomph.owners.tensors import Tensors
        from oomph.quiet import Quiet

        self.tensors = Tensors(torch)
        self.graph = Graph(torch, self.tensors, Quiet(torch))
        native = torch._C._autograd
        original = native._push_saved_tensors_default_hooks
        self.addCleanup(setattr, native, "_push_saved_tensors_default_hooks", original)
        self.graph.attach()

    def test_saved_tensors_are_found(self):
        x = torch.ones(4, 4, requires_grad=True)
        hidden = x.exp()
        saved = {tensor.data_ptr() for _, tensor in self.graph.saved([(hidden * hidden).sum()])}
        self.assertIn(hidden.data_ptr(), saved)

    def test_a_function_written_in_python(self):
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                ctx.kept = x * 3
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                return grad

        x = torch.ones(3, requires_grad=True)
        found = dict(self.graph.saved([Own.apply(x).sum()]))
        self.assertTrue(any(name.endswith("saved_tensors.0") for name in found), found)
        self.assertTrue(any(name.endswith(".kept") for name in found), found)

    def test_a_checkpoint_is_not_computed_again_and_its_input_is_found(self):
        from torch.utils.checkpoint import checkpoint

        calls = []

        def block(x):
            calls.append(1)
            return (x.exp() * x).sin()

        x = torch.ones(8, requires_grad=True)
        inner = x * 2
        loss = checkpoint(block, inner, use_reentrant=False).sum()
        found = {tensor.data_ptr() for _, tensor in self.graph.saved([loss])}
        self.assertEqual(len(calls), 1)
        self.assertIn(inner.data_ptr(), found)
        loss.backward()
        self.assertEqual(len(calls), 2)
        self.assertTrue(torch.isfinite(x.grad).all())

    def test_unpack_hooks_do_not_run_in_a_walk_and_do_in_backward(self):
        unpacked = []

        def unpack(x):
            unpacked.append(1)
            return x

        x = torch.ones(8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            loss = x.exp().sum()
        list(self.graph.saved([loss]))
        self.assertEqual(unpacked, [])
        loss.backward()
        self.assertEqual(unpacked, [1])

    def test_a_walk_over_a_freed_graph_or_one_changed_in_place(self):
        x = torch.ones(8, requires_grad=True)
        y = x.exp()
        loss = (y * y).sum()
        y.detach().add_(1)
        list(self.graph.saved([loss]))
        loss2 = x.exp().sum()
        loss2.backward()
        list(self.graph.saved([loss2]))

    def test_nothing_is_kept_alive(self):
        import weakref

        x = torch.ones(1000, requires_grad=True)
        hidden = x.exp()
        loss = (hidden * 2).sum()
        list(self.graph.saved([loss]))
        died = weakref.ref(hidden)
        del hidden, loss
        self.assertIsNone(died())

    def test_values_hold_tensors(self):
        class State:
            def __init__(self):
                self.absmax = torch.ones(2)
                self.code = torch.ones(3)

        weight = torch.nn.Parameter(torch.ones(2))
        weight.quant_state = State()
        self.assertEqual([name for name, _ in self.tensors.extras(weight)], [".quant_state.absmax", ".quant_state.code"])
        nested = {"a": [torch.ones(1), (torch.ones(1), 5)], "b": "text"}
        nested["c"] = nested
        self.assertEqual([path for path, _ in self.tensors.inside(nested)], ["a.0", "a.1.0"])

    def test_fake_and_cpu_tensors_stand_on_no_device_memory(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.empty(4)
        self.assertEqual(list(self.tensors.storages(fake)), [])
        self.assertEqual(list(self.tensors.storages(torch.ones(4))), [])


class Off(support.RunCase):
    config = {"history": True}

    @WITH_TORCH
    def test_a_process_without_a_gpu_leaves_nothing(self):
        self.passes("import torch; torch.nn.Linear(3, 3)(torch.ones(1, 3)).sum().backward()")
        folder = os.path.join(self.run_folder, "hook")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        self.assertFalse([name for name in names if "snapshot" in name or "names" in name])


if __name__ == "__main__":
    unittest.main()
