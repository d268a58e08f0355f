"""Values of small tensors: on the CPU with kernels that forget their results, and on a virtual GPU where there is one."""

import mmap
import os
import sys
import threading
import unittest
import unittest.mock
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    from oomph import values
    from oomph.values import dynamic, unknown
    from oomph.values.kernels import Kernels
    from oomph.values.operations import OPENED


class Heard:
    """Stands for the record of a run."""

    def __init__(self):
        self.sentences = []
        self.sizes = []

    def warn(self, sentence):
        self.sentences.append(sentence)

    def note_unknown_size(self, operation, site, most, taken):
        self.sizes.append((operation, most, taken))


#: Operators that count on the device. On a GPU without arithmetic they would read memory that nothing wrote.
COUNTING = ("aten::nonzero", "aten::nonzero.out", "aten::masked_select", "aten::masked_select.out", "aten::_unique2",
            "aten::masked_scatter_backward", "aten::unique_consecutive")


def forgetful(kernels, operation):
    """The operator as a GPU without arithmetic has it: right shapes, right effects on no memory at all."""
    native = operation.call

    def call(*args, **kwargs):
        before = [
            (tensor, tensor.clone())
            for tensor in operation.mutates(args, kwargs)
            if isinstance(tensor, torch.Tensor)
        ]
        inputs = []
        kernels.collect(args, inputs)
        shared = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        out = native(*args, **kwargs)
        for tensor, old in before:
            if tensor.size() == old.size():
                tensor.copy_(old)
        for tensor in kernels.results(out):
            if tensor.numel() and tensor.untyped_storage().data_ptr() not in shared:
                tensor.untyped_storage().fill_(0x5A)
        return out

    return call


def counts(name):
    """Stands for an operator that would count on the device."""

    def call(*args, **kwargs):
        raise AssertionError("%s would take its size from memory that nothing wrote" % name)

    return call


if torch is not None:

    class ForgetfulKernels(Kernels):
        """The kernels with the CPU in place of the GPU."""

        def __init__(self, *args):
            super().__init__(*args)
            self.capturing = lambda: False

        def on_device(self, tensor):
            return tensor.device.type == "cpu"

        def operation(self, name):
            operation = super().operation(name)
            operation.call = forgetful(self, operation) if name not in COUNTING else counts(name)
            return operation


session = None
heard = Heard() if torch is not None else None


def setUpModule():
    global session
    if torch is None:
        raise unittest.SkipTest("torch is not installed")
    if session is not None:
        return
    if torch.cuda.is_available():
        session = values.install(torch, "small", heard)
        torch.zeros(1, device="cuda")
    else:
        session = values._Session(torch, "small", heard, "balanced", "most")
        session.begin(ForgetfulKernels(torch, "small", unknown.Warner(heard)))
        if session.kernels is None:
            raise AssertionError(heard.sentences)
        session.leave()


DEVICE = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"


class Case(unittest.TestCase):
    def setUp(self):
        heard.sentences.clear()
        heard.sizes.clear()
        session.kernels.warn._said.clear()
        session.enter()
        self.addCleanup(session.leave)

    def read(self, tensor):
        """The values of a device tensor as nested lists, without going through a kernel."""
        session.leave()
        try:
            return session.kernels.memory.alias(tensor.detach()).tolist()
        finally:
            session.enter()

    def close(self, tensor, expected, tolerance=1e-5):
        got = self.read(tensor)
        session.leave()
        try:
            a, b = torch.tensor(got, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
            self.assertEqual(a.shape, b.shape)
            self.assertTrue(torch.allclose(a, b, atol=tolerance, rtol=tolerance), "%s is not %s" % (got, expected))
        finally:
            session.enter()


class Small(Case):
    def test_factories_and_arithmetic(self):
        x = torch.arange(6, device=DEVICE)
        self.assertEqual(self.read(x), [0, 1, 2, 3, 4, 5])
        self.assertEqual(self.read(torch.ones(3, device=DEVICE) * 2 + 1), [3.0, 3.0, 3.0])
        self.assertEqual(self.read(torch.full((2,), 7, device=DEVICE)), [7, 7])
        self.assertEqual(int(x.sum()), 15)
        self.assertEqual(self.read(x.view(2, 3).t().contiguous()), [[0, 3], [1, 4], [2, 5]])
        self.assertEqual(self.read(torch.cat([x, x])[4:8]), [4, 5, 0, 1])
        self.assertEqual(self.read(torch.eye(2, device=DEVICE)), [[1.0, 0.0], [0.0, 1.0]])

    def test_in_place_out_views_and_scalars(self):
        x = torch.zeros(4, device=DEVICE)
        x[1:3].add_(5)
        x.t()
        self.assertEqual(self.read(x), [0.0, 5.0, 5.0, 0.0])
        x[0] = 9
        torch.mul(x, 2, out=x)
        self.assertEqual(self.read(x), [18.0, 10.0, 10.0, 0.0])
        y = torch.empty(4, device=DEVICE)
        torch.add(x, 1, out=y)
        self.assertEqual(self.read(y), [19.0, 11.0, 11.0, 1.0])
        x += y
        self.assertEqual(x[0].item(), 37.0)
        self.assertTrue(bool((x > 0).all()))

    def test_lists_and_several_results(self):
        items = [torch.ones(2, device=DEVICE), torch.ones(3, device=DEVICE)]
        torch._foreach_add_(items, 1)
        self.assertEqual([self.read(one) for one in items], [[2.0, 2.0], [2.0, 2.0, 2.0]])
        made = torch._foreach_mul(items, 3.0)
        self.assertEqual(self.read(made[1]), [6.0, 6.0, 6.0])
        value, index = torch.tensor([3, 9, 4], device=DEVICE).max(0)
        self.assertEqual((value.item(), index.item()), (9, 1))
        top = torch.tensor([3.0, 9.0, 4.0], device=DEVICE).topk(2)
        self.assertEqual(self.read(top.indices), [1, 2])

    def test_sizes_that_depend_on_values(self):
        x = torch.arange(6, device=DEVICE)
        mask = x % 2 == 0
        self.assertEqual(self.read(mask.nonzero()), [[0], [2], [4]])
        self.assertEqual(self.read(x[mask]), [0, 2, 4])
        self.assertEqual(self.read(torch.masked_select(x, mask)), [0, 2, 4])
        self.assertEqual(self.read(torch.where(mask)[0]), [0, 2, 4])
        found, inverse, counts = torch.tensor([3, 1, 3], device=DEVICE).unique(return_inverse=True, return_counts=True)
        self.assertEqual([self.read(one) for one in (found, inverse, counts)], [[1, 3], [1, 0, 1], [1, 2]])
        self.assertEqual(self.read(torch.unique_consecutive(torch.tensor([1, 1, 2], device=DEVICE))), [1, 2])
        repeats = torch.tensor([1, 0, 2], device=DEVICE)
        self.assertEqual(self.read(torch.tensor([7, 8, 9], device=DEVICE).repeat_interleave(repeats)), [7, 9, 9])
        self.assertEqual(self.read(torch.bincount(repeats)), [1, 1, 1])
        self.assertEqual(self.read(torch.histc(torch.tensor([1.0, 2.0, 1.0], device=DEVICE), 2)), [2.0, 1.0])
        self.assertTrue(torch.equal(x, x.clone()))
        self.assertFalse(torch.equal(x, x + 1))
        self.assertEqual(heard.sentences, [])

    def test_sizes_of_results_that_the_caller_gives(self):
        x = torch.tensor([3, 0, 5], device=DEVICE)
        out = torch.empty(0, dtype=torch.int64, device=DEVICE)
        self.assertIs(torch.nonzero(x, out=out), out)
        self.assertEqual(self.read(out), [[0], [2]])
        self.assertEqual(self.read(torch.masked_select(x, x > 0, out=torch.empty(7, dtype=torch.int64, device=DEVICE))), [3, 5])
        bins = torch.empty(2, device=DEVICE)
        torch.histc(torch.tensor([1.0, 2.0, 1.0], device=DEVICE), 2, out=bins)
        self.assertEqual(self.read(bins), [2.0, 1.0])

    def test_backward_of_scattering_through_a_mask(self):
        mask = torch.tensor([True, False, True], device=DEVICE)
        source = torch.tensor([5.0, 6.0, 7.0], device=DEVICE, requires_grad=True)
        (torch.zeros(3, device=DEVICE).masked_scatter(mask, source) * torch.tensor([1.0, 2.0, 3.0], device=DEVICE)).sum().backward()
        self.assertEqual(self.read(source.grad), [1.0, 3.0, 0.0])

    def test_places_in_the_storage_are_left_to_the_device(self):
        x = torch.zeros(6, device=DEVICE)
        out = torch.as_strided_scatter(x, torch.ones(2, device=DEVICE), (2,), (1,), 1)
        self.assertEqual(out.shape, (6,))

    def test_nothing_that_counts_is_left_to_the_device(self):
        """PyTorch marks the operators whose shape depends on values."""
        left = []
        for name in torch._C._dispatch_get_all_op_names():
            if not name.startswith("aten::") or not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
                continue
            base, _, overload = name.partition(".")
            tags = torch._C._get_operation_overload(base, overload)[2]
            if torch.Tag.dynamic_output_shape in tags and dynamic.function_for(name[6:]) is None:
                left.append(name)
        left = [name for name in left if name[6:].partition(".")[0] not in OPENED]
        self.assertEqual(left, [])

    def test_assignment_through_masks(self):
        x = torch.arange(4, device=DEVICE)
        mask = x > 1
        x[mask] = torch.tensor([10, 20], device=DEVICE)
        self.assertEqual(self.read(x), [0, 1, 10, 20])
        x[mask] = 0
        self.assertEqual(self.read(x), [0, 1, 0, 0])
        two = torch.zeros(2, 2, device=DEVICE)
        two[torch.tensor([True, False], device=DEVICE)] = torch.ones(1, 2, device=DEVICE)
        self.assertEqual(self.read(two), [[1.0, 1.0], [0.0, 0.0]])

    def test_backward_through_a_mask(self):
        x = torch.arange(4.0, device=DEVICE).requires_grad_()
        (x[x > 1] * 3).sum().backward()
        self.assertEqual(self.read(x.grad), [0.0, 0.0, 3.0, 3.0])

    def test_training_step(self):
        torch.manual_seed(0)
        w = torch.ones(3, 1, device=DEVICE, requires_grad=True)
        x = torch.tensor([[1.0, 2.0, 3.0]], device=DEVICE)
        optimizer = torch.optim.Adam([w], lr=0.1)
        for _ in range(3):
            loss = ((x @ w) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.assertLess(loss.item(), 36.0)
        self.assertGreater(loss.item(), 10.0)

    def test_linear_algebra(self):
        matrix = torch.tensor([[2.0, 1.0], [1.0, 2.0]], device=DEVICE)
        self.close(torch.linalg.eigvalsh(matrix), [1.0, 3.0])
        self.close(torch.linalg.eigh(matrix)[0], [1.0, 3.0])
        self.close(torch.linalg.svdvals(matrix), [3.0, 1.0])
        self.close(torch.linalg.eigvals(matrix).real.sort()[0], [1.0, 3.0])
        self.close(torch.linalg.inv(matrix), [[2 / 3, -1 / 3], [-1 / 3, 2 / 3]])
        self.close(torch.linalg.pinv(matrix, hermitian=True), [[2 / 3, -1 / 3], [-1 / 3, 2 / 3]])
        self.close(torch.linalg.matrix_norm(matrix, 2), 3.0)
        self.close(torch.linalg.matrix_exp(torch.zeros(2, 2, 2, device=DEVICE)), [[[1.0, 0.0], [0.0, 1.0]]] * 2)
        wide = torch.stack([matrix] * 3)
        self.assertEqual(torch.linalg.lstsq(wide, wide).solution.shape, (3, 2, 2))
        self.assertEqual(torch.linalg.svd(wide, full_matrices=False)[1].shape, (3, 2))
        self.assertEqual(torch.linalg.eigh(wide)[1].shape, (3, 2, 2))
        self.assertEqual(heard.sentences, [])

    def test_repeated_and_changed_views(self):
        x = torch.arange(6.0, device=DEVICE)
        for _ in range(3):
            x.view(2, 3)[1].add_(1)
            y = x.view(3, 2).t() * 2
        self.assertEqual(self.read(x), [0.0, 1.0, 2.0, 6.0, 7.0, 8.0])
        self.assertEqual(self.read(y), [[0.0, 4.0, 14.0], [2.0, 12.0, 16.0]])
        z = torch.complex(x, x + 1).conj().imag
        self.assertEqual(self.read(z + 0), [-1.0, -2.0, -3.0, -7.0, -8.0, -9.0])
        x[2:4] = torch.tensor([9.0, 9.0], device=DEVICE)
        self.assertEqual(self.read(x.to(torch.int32)), [0, 1, 9, 9, 7, 8])

    def test_operators_of_others_keep_their_kernel_for_the_device(self):
        library = torch.library.Library("oomph_test", "DEF")
        self.addCleanup(library._destroy)
        library.define("which(Tensor x) -> int")
        library.impl("which", lambda x: 1, "CompositeExplicitAutograd")
        library.impl("which", lambda x: 2, "CUDA" if DEVICE == "cuda" else "CPU")
        self.assertEqual(torch.ops.oomph_test.which(torch.ones(1, device=DEVICE)), 2)

    def test_what_older_pytorch_lacks(self):
        # Before 2.4 no kernel can call past itself, and 2.1 reads the names of keys with the older function alone.
        kernels = session.kernels
        operation = kernels.operation("aten::isin.Tensor_Tensor")
        with unittest.mock.patch.object(torch._C, "_dispatch_find_schema_or_throw", return_value=object()):
            kernel = kernels._opened(operation)
        self.assertFalse(hasattr(kernel, "with_keyset"))
        found = kernel(torch.arange(4, device=DEVICE), torch.tensor([1, 3], device=DEVICE))
        self.assertEqual(self.read(found), [False, True, False, True])
        with unittest.mock.patch.object(torch._C, "_parse_dispatch_key", None, create=True):
            self.assertEqual(Kernels(torch, "small", unknown.Warner(heard)).key, kernels.key)

    def test_half_precision(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = torch.tensor([1.0, 2.0], device=DEVICE).to(dtype)
            self.assertEqual(self.read((x * 2).float()), [2.0, 4.0])
            self.close(torch.linalg.vector_norm(x).float(), 5.0**0.5, 1e-2)
            self.close(torch.cumsum(x, 0).float(), [1.0, 3.0])
            self.close(torch.softmax(x, 0).sum().float(), 1.0, 1e-2)

    def test_random_numbers_leave_the_seed_alone(self):
        session.leave()
        torch.manual_seed(3)
        expected = torch.rand(2).tolist()
        torch.manual_seed(3)
        session.enter()
        for make in (
            lambda: torch.randn(8, device=DEVICE),
            lambda: torch.rand_like(torch.zeros(4, device=DEVICE)),
            lambda: torch.randperm(8, device=DEVICE),
            lambda: torch.nn.functional.dropout(torch.ones(8, device=DEVICE), 0.5),
            lambda: torch.zeros(4, device=DEVICE).normal_(),
            lambda: torch.multinomial(torch.ones(8, device=DEVICE), 3),
            lambda: torch.bernoulli(torch.full((4,), 0.5, device=DEVICE)),
        ):
            make()
        order = torch.randperm(8, device=DEVICE)
        self.assertEqual(sorted(self.read(order)), list(range(8)))
        session.leave()
        if DEVICE == "cuda":
            self.assertEqual(torch.rand(2).tolist(), expected)

    def test_vmap_and_inference_mode(self):
        with torch.inference_mode():
            x = torch.arange(3.0, device=DEVICE)
            x.mul_(2)
            self.assertEqual(self.read(x), [0.0, 2.0, 4.0])
        y = torch.vmap(lambda row: row.sum())(torch.ones(2, 3, device=DEVICE))
        self.assertEqual(self.read(y), [3.0, 3.0])
        gradient = torch.func.grad(lambda t: (t * t).sum())(torch.tensor([2.0], device=DEVICE))
        self.assertEqual(self.read(gradient), [4.0])

    def test_user_modes_see_each_operation_once(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Counting(TorchDispatchMode):
            seen = 0

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                Counting.seen += 1
                return func(*args, **(kwargs or {}))

        x = torch.ones(2, device=DEVICE)
        with Counting():
            x.add_(1)
        self.assertEqual(Counting.seen, 1)
        self.assertEqual(self.read(x), [2.0, 2.0])

    def test_fake_tensors_stay_fake(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            x = torch.ones(4, device="cpu") + 1
            self.assertEqual(type(x).__name__, "FakeTensor")
        self.assertEqual(torch.ones(3, device="meta").add(1).device.type, "meta")

    def test_errors_of_the_program_pass_through(self):
        with self.assertRaises(RuntimeError):
            torch.ones(2, device=DEVICE) + torch.ones(3, device=DEVICE)
        self.assertEqual(self.read(torch.ones(2, device=DEVICE)), [1.0, 1.0])

    def test_threads(self):
        import threading

        found = []

        def work():
            found.append(self.read(torch.arange(3, device=DEVICE)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(found, [[0, 1, 2]])


class Unknown(Case):
    def big(self):
        return torch.ones(300, 300, device=DEVICE)

    def test_reductions_of_large_tensors_are_zero(self):
        loss = self.big().mean()
        self.assertEqual(loss.item(), 0.0)
        self.assertFalse(bool(torch.isnan(loss)))
        self.assertTrue(bool(torch.isfinite(loss)))
        self.assertEqual(heard.sentences, [])

    def test_large_tensors_are_finite(self):
        infinite = float("inf")
        # The flags of the second are too many to be written.
        for x in (self.big(), torch.ones(2000, 1000, device=DEVICE)):
            for asked in (torch.all, torch.any):
                for flags in (torch.isnan, torch.isinf, lambda x: x != x, lambda x: x.abs() == infinite):
                    self.assertFalse(bool(asked(flags(x))))
                for flags in (lambda x: x == x, lambda x: x.abs() != infinite):
                    self.assertTrue(bool(asked(flags(x))))
            self.assertFalse(bool(torch.all(torch.isnan(x), dim=0).any()))
        self.assertTrue(bool(torch.isfinite(self.big()).all()))
        self.assertEqual(heard.sentences, [])
        # What other flags say is not known.
        self.assertTrue(bool((x > 3).all()))
        self.assertEqual(len(heard.sentences), 1)

    def test_branches_are_reported_once_per_line(self):
        loss = self.big().mean()
        for _ in range(3):
            if loss > 1:
                pass
        self.assertEqual(len(heard.sentences), 1)
        self.assertRegex(heard.sentences[0], r"test_values\.py:\d+: the program reads a number or a flag")

    def test_a_loop_that_ends_by_a_loss_is_reported_and_one_that_prints_it_is_not(self):
        loss = self.big().mean()
        for _ in range(3):
            shown = loss.item()
            if shown != shown:
                continue
        self.assertEqual(heard.sentences, [])
        if DEVICE == "cpu":
            # A CPU hands out a number without asking any kernel.
            return
        for _ in range(3):
            low = loss.item()
            if low < 0.1:
                break
        self.assertEqual(len(heard.sentences), 1)
        self.assertRegex(heard.sentences[0], r"test_values\.py:\d+: whether the program continues depends on a number")

    def test_what_overrides_torch_does_not_read_itself(self):
        class Labelled(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                made = super().__torch_function__(function, types, args, kwargs or {})
                if not isinstance(made, torch.Tensor):
                    return made
                return made

        large = self.big().as_subclass(Labelled)
        if not (large.sum() > 5):
            raise ValueError("a healthy run does not raise")
        if DEVICE == "cpu":
            return
        heard.sentences.clear()
        print(large.mean().item())
        self.assertEqual(heard.sentences, [])

    def test_unknown_masks_select_everything(self):
        x = self.big()
        if DEVICE == "cuda":
            # A CPU would look at the positions, which are too many to be written.
            self.assertEqual(x[x > 0].numel(), 90000)
        self.assertEqual((x > 0).nonzero().shape, (90000, 2))
        self.assertEqual(x.unique().numel(), 90000)
        said = "the number of selected elements depends on a value that was never computed; all are taken, the most there"
        self.assertIn(said, heard.sentences[0])
        self.assertEqual(len(heard.sentences), 3 if DEVICE == "cuda" else 2)
        rows = x.sum(1) > 5
        self.assertEqual(x[rows].shape, (300, 300))
        x[rows] = torch.zeros(7, 300, device=DEVICE)

    def test_known_masks_over_large_tensors_select_what_they_select(self):
        x = self.big()
        mask = torch.arange(300, device=DEVICE) < 10
        self.assertEqual(x[mask].shape, (10, 300))
        self.assertEqual(x[mask.unsqueeze(1).expand(300, 300)].shape, (3000,))
        leaf = self.big().requires_grad_()
        leaf[mask].sum().backward()
        self.assertEqual(leaf.grad.shape, (300, 300))
        self.assertEqual(heard.sentences, [])

    def test_an_expanded_mask_is_counted_once(self):
        mask = torch.zeros(300, 300, dtype=torch.bool, device=DEVICE)
        mask[7, 8] = True
        wide = mask.expand(1024, 300, 300)
        self.assertGreater(wide.numel(), dynamic._READ_AT_MOST)
        self.assertEqual(wide.nonzero().shape, (1024, 3))
        self.assertEqual(heard.sentences, [])

    def test_backward_of_scattering_takes_no_more_than_the_source_had(self):
        known = torch.arange(300, device=DEVICE) < 10
        for mask, many in ((known, 20), (self.big()[:, 0] > 0, 10), (self.big() > 0, 300)):
            grad = torch.ones((), device=DEVICE).expand(mask.shape)
            self.assertEqual(torch.ops.aten.masked_scatter_backward(grad, mask, (many,)).shape, (many,))
        self.assertEqual(heard.sizes, [("masked_scatter_backward", 10, 10), ("masked_scatter_backward", 300, 300)])

    def test_the_same_mask_is_counted_alike_forwards_and_backwards(self):
        hidden = self.big().requires_grad_()
        mask = hidden.detach()[:, 0] > 0
        taken = hidden[mask]
        back = torch.zeros(300, device=DEVICE).masked_scatter(mask, taken.sum(1))
        back.sum().backward()
        self.assertEqual((taken.shape, hidden.grad.shape), ((300, 300), (300, 300)))
        self.assertEqual({(most, taken) for _, most, taken in heard.sizes}, {(300, 300)})

    def test_both_ends_of_an_unknown_size(self):
        x = self.big()
        session.kernels.unknown_sizes = "least"
        self.addCleanup(setattr, session.kernels, "unknown_sizes", "most")
        self.assertEqual((x > 0).nonzero().shape, (1, 2))
        values, inverse = x.unique(return_inverse=True)
        self.assertEqual((values.shape, inverse.shape), ((1,), (300, 300)))
        self.assertEqual(x[:0].nonzero().shape, (0, 2))
        self.assertEqual(heard.sizes, [("nonzero", 90000, 1), ("_unique2", 90000, 1)])

    def test_a_healthy_run_is_assumed(self):
        large = self.big()
        small = large[:3, :3].sum() * torch.eye(3, device=DEVICE)
        for one in (large, small):
            self.assertEqual(torch.linalg.cholesky(one).shape, one.shape)
            self.assertEqual(torch.linalg.eigvalsh(one).shape, one.shape[:1])
        self.assertEqual(heard.sentences, [])
        self.assertTrue(bool((large == large).all()))
        torch.distributions.Categorical(logits=large).sample()

    def test_unknown_stays_unknown_through_arithmetic(self):
        rows = self.big().sum(1)
        for made in (rows + 1, rows.half().float(), torch.layer_norm(rows, (300,)), torch.ones(300, device=DEVICE).mul_(rows)):
            self.assertEqual(session.kernels.unknowns.level(made), unknown.UNKNOWN)
            self.assertEqual((made + 1)[0].item(), 0.0)

    def test_a_large_block_where_a_small_one_was(self):
        # The caching allocator gives the same place to both.
        small = torch.ones(1 << 16, device=DEVICE) + 1
        self.assertEqual(session.kernels.unknowns.level(small), unknown.KNOWN)
        place = small.data_ptr()
        del small
        large = torch.ones(3 << 15, device=DEVICE)
        if large.data_ptr() == place:
            self.assertEqual(session.kernels.unknowns.level(large[:8]), unknown.UNKNOWN)

    def test_guessed_tokens_are_within_range(self):
        logits = torch.zeros(2, 50257, device=DEVICE)
        tokens = logits.argmax(-1)
        self.assertEqual(self.read(tokens), [16752, 16753])
        drawn = torch.multinomial(logits.softmax(-1), 1)
        self.assertEqual(self.read(drawn), [[16752], [16753]])
        experts = torch.zeros(9000, 8, device=DEVICE).topk(2).indices
        self.assertEqual(self.read(experts[:2]), [[0, 1], [2, 3]])
        self.assertTrue(any("each gets as many" in sentence for sentence in heard.sentences))

    def test_the_worst_routing_sends_all_rows_to_the_same_few(self):
        session.kernels.routing = "worst"
        try:
            experts = torch.zeros(9000, 8, device=DEVICE).topk(2).indices
        finally:
            session.kernels.routing = "balanced"
        self.assertEqual(self.read(experts[:2]), [[0, 1], [0, 1]])

    def test_clipping_and_scaling(self):
        weights = [torch.nn.Parameter(self.big()), torch.nn.Parameter(torch.ones(3, device=DEVICE))]
        for one in weights:
            one.grad = torch.ones_like(one)
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        self.assertEqual(norm.item(), 0.0)


def resident():
    """How much memory of this process is there, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


class Forked(Case):
    """Workers that load data are forked from a process with CUDA, and what they ask it is their end."""

    def in_child(self, look):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(writing, repr(look()).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(pid, 0)
        with os.fdopen(reading) as answer:
            return answer.read()

    def test_no_thread_of_a_child_is_under_the_kernels(self):
        asked = []

        def pinned(tensor):
            asked.append(threading.current_thread() is threading.main_thread())
            return False

        def copy():
            torch.empty(1 << 19).copy_(torch.ones(1 << 19))

        def look():
            copy()
            thread = threading.Thread(target=copy)
            thread.start()
            thread.join()
            # As where the fork came in the middle of a kernel.
            session.kernels.include(session.kernels.key, True)
            copy()
            return asked

        with unittest.mock.patch.object(torch.Tensor, "is_pinned", pinned):
            self.assertEqual(self.in_child(look), "[]")
            copy()
            self.assertEqual(asked, [True], "a large copy asks no longer whether it is on its way to the card")


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs a (virtual) GPU")
class OnTheVirtualGpu(Case):
    def test_round_trips(self):
        x = torch.arange(6.0).view(2, 3)
        self.assertEqual(x.cuda().half().cpu().tolist(), x.tolist())
        self.assertEqual(x.t().cuda().t().cpu().tolist(), x.tolist())
        self.assertEqual(x.cuda().t().cpu().tolist(), x.t().tolist())
        self.assertEqual(x.to("cuda", torch.float16).to("cpu", torch.float64).tolist(), x.tolist())
        y = torch.zeros(3, 2, device="cuda")
        y.copy_(x.t())
        self.assertEqual(y.tolist(), x.t().tolist())

    def test_gradient_scaler_steps(self):
        model = torch.nn.Linear(400, 400).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", growth_interval=10)
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append(1))
        for _ in range(20):
            with torch.autocast("cuda", torch.float16):
                loss = model(torch.randn(8, 400, device="cuda")).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        self.assertEqual(len(steps), 20)
        self.assertEqual(scaler.get_scale(), 65536.0 * 4)

    def test_lengths(self):
        lstm = torch.nn.LSTM(8, 16, batch_first=True).cuda()
        lengths = torch.tensor([5, 3], device="cuda")
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.randn(2, 5, 8, device="cuda"), lengths.cpu(), batch_first=True
        )
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        self.assertEqual(out.shape, (2, 5, 16))
        loss = torch.nn.functional.ctc_loss(
            torch.randn(10, 2, 6, device="cuda").log_softmax(-1).requires_grad_(),
            torch.randint(1, 6, (2, 4), device="cuda"),
            torch.tensor([10, 10], device="cuda"),
            torch.tensor([4, 3], device="cuda"),
        )
        loss.backward()

    def test_capture_is_not_disturbed(self):
        x = torch.ones(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
            z = y.sum()
        graph.replay()
        self.assertEqual(z.shape, ())

    def test_what_is_laid_out_for_the_card_is_not_brought_into_memory(self):
        numbers = torch.arange(1 << 20, dtype=torch.float32)
        self.assertTrue(torch.equal(numbers.pin_memory(), numbers))
        page = mmap.PAGESIZE
        size = 4096 * page
        mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(mmap.MADV_NOHUGEPAGE)
        mapped[5 * page - 3 : 5 * page + 2] = b"there"
        source = torch.frombuffer(mapped, dtype=torch.uint8)
        before = resident()
        pinned = source.pin_memory()
        self.assertLess(resident() - before, size // 8)
        self.assertEqual(bytes(pinned[5 * page - 3 : 5 * page + 2]), b"there")

    def test_what_is_joined_on_the_host_is_as_empty_as_its_parts(self):
        def part(*marks):
            mapped = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mapped.madvise(mmap.MADV_NOHUGEPAGE)
            tensor = torch.frombuffer(mapped, dtype=torch.float32).view(10, -1)
            for mark in marks:
                tensor.view(-1)[mark] = mark + 1.0
            return tensor

        parts = [part(0, 5_000_000), part(10 << 20 >> 1, (10 << 20) - 1)]
        before = resident()
        joined = torch.cat(parts)
        self.assertLess(resident() - before, 20 << 20)
        self.assertTrue(all(torch.equal(joined[place * 10 : place * 10 + 10], parts[place]) for place in (0, 1)))
        self.assertEqual(torch.cat(parts, dim=1).size(), (10, 2 << 20))
        wanted = torch.ones(20 << 20, requires_grad=True)
        (torch.cat([wanted, wanted * 2])[::1 << 20].sum()).backward()
        self.assertEqual(wanted.grad.sum(), 20 + 2 * 20)
        with self.assertRaises(RuntimeError):
            torch.cat([parts[0], parts[1].double().view(5, -1)])
        with self.assertRaises(IndexError):
            torch.cat(parts, dim=2)

    def test_what_comes_from_the_card_is_not_brought_into_memory(self):
        large = torch.zeros(8 << 20, dtype=torch.float32, device="cuda")
        host = torch.empty(8 << 20, dtype=torch.float32, pin_memory=True)
        host[:3] = float("nan")
        before = resident()
        host.copy_(large)
        self.assertLess(resident() - before, 8 << 20)
        self.assertEqual(host[:3].tolist(), [0.0, 0.0, 0.0])

    def test_pinned_data_loading(self):
        data = torch.utils.data.TensorDataset(torch.arange(8.0).view(8, 1), torch.arange(8))
        seen = []
        for x, y in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
            seen += y.cuda(non_blocking=True).tolist()
            self.assertEqual(x.cuda().view(-1).tolist(), y.float().tolist())
        self.assertEqual(seen, list(range(8)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
