"""Tracks batches of different sizes, and runs one step on a batch of the longest samples.

A program whose batches differ runs out of memory in step 3,482, when its longest samples meet. So once two steps are done, one
batch of the training loader is replaced by one made of the longest samples, through the loader's own dataset and collate
function. All other batches stay what they are, in their order.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
import weakref

from oomph import contents, flags, forked, hook, longest, sites
from oomph.looking import attribute, is_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from oomph._protocol import HookConfig
    from oomph._types import Loader, Torch
    from oomph.record import Record

_SCAN_SECONDS = 2.0
"""Of the processor: on a busy machine as many samples are looked at."""
_LONGEST_SCAN = 30.0
"""By the clock, where a disk or a network is waited for."""
_SCAN_FIRST = 32
"""Samples that are looked at before a dataset counts as one whose samples are of one size."""
_EPOCHS = 4
_MOST_DRAWN = 1000
"""Batches that are drawn to find a large one: those of a few epochs, and no more than this."""
_STEPS_BEFORE = 2
"""Optimizer steps before the batch: by then the optimizer's state is there, and the usual peak is known."""


class Batches:
    """Follows the batches of the loaders that a program trains on."""

    def __init__(
        self, torch: Torch, record: Record, of_longest: bool = True, clock: Callable[[], float] = time.process_time
    ) -> None:
        self.torch = torch
        self.record = record
        self.clock = clock
        self.wanted = of_longest
        self.seen: dict[str, Any] | None = None
        """The least and the most elements of a batch, and their unit."""
        self.longest: dict[str, Any] | None = None
        self.usual: dict[str, int] | None = None
        self._delivered = 0

    def attach(self) -> None:
        """Wait for PyTorch's loader."""
        hook.on_import("torch.utils.data.dataloader", self._watch)

    def new_run(self) -> None:
        """Begin again in a child of the fork server."""
        self.wanted = hook.config["batches"] == "longest"

    def _watch(self, module):
        iterator = module._BaseDataLoaderIter
        plain_init, plain_next = iterator.__init__, iterator.__next__
        batches = self

        @functools.wraps(plain_init)
        def __init__(self, loader, *args, **kwargs):
            self._oomph_batches = _reference(loader)
            plain_init(self, loader, *args, **kwargs)

        @functools.wraps(plain_next)
        def __next__(self):
            batch = plain_next(self)
            loader = self.__dict__.get("_oomph_batches")
            if loader is None or not batches.trains():
                return batch
            changed = hook.guarded(batches.delivered, loader(), batch, _runs_ahead())
            return batch if changed is None else changed

        iterator.__init__, iterator.__next__ = __init__, __next__

    def trains(self) -> bool:
        """Say whether a batch that is fetched now is one to train on."""
        program = self.record.program
        return program is not None and program.has_optimizer() and self.torch.is_grad_enabled()

    def delivered(self, loader: Loader | None, batch: Any, ahead: bool = False) -> Any:
        """A loader gives a batch; gives the batch of the longest samples to take its place, or None."""
        self._delivered += 1
        if self.record.work is not None:
            self.record.work.delivered(samples_of(self.torch, batch))
        size, unit, _ = measured(self.torch, batch)
        if not size:
            return None
        if self.seen is None:
            self.seen = {"min": size, "max": size, "unit": unit}
        self.seen["min"], self.seen["max"] = min(self.seen["min"], size), max(self.seen["max"], size)
        if loader is None or not self.wanted or self.record.steps < _STEPS_BEFORE:
            return None
        self.wanted = False
        return self._replace(loader, ahead)

    def _replace(self, loader, ahead):
        batch = contents.undisturbed(self.torch, lambda: self.longest_batch(loader))
        if batch is None or self.seen is None:
            return None
        size, unit, shape = measured(self.torch, batch)
        if size <= self.seen["max"] or unit != self.seen["unit"]:
            return None
        # A loader that runs ahead by one batch gives the one after the next step's, unless that step takes several.
        each_step = (self._delivered - 1 - ahead) // max(1, self.record.steps)
        self.usual = self._peaks()
        self.longest = {
            "step": self.record.steps + 1 + (1 if ahead and each_step <= 1 else 0), "elements": size, "shape": shape,
            "peak_allocated": 0, "peak_reserved": 0,
        }  # fmt: skip
        return batch

    def stepped(self) -> None:
        """An optimizer step has ended: note the peak of the longest batch's."""
        if self.longest is not None and self.record.steps == self.longest["step"]:
            self.longest.update(self._peaks())

    def _peaks(self):
        peaks = list(self.record.refresh_peaks().values())
        reserved, allocated = max(peaks, key=lambda pair: pair[0] or 0) if peaks else (0, 0)
        return {"peak_allocated": allocated, "peak_reserved": reserved or 0}

    def as_dict(self) -> dict[str, Any] | None:
        """What is known by now, in the form of docs/internals/run-folder.md; None if all batches had one size."""
        if self.seen is None or (self.longest is None and self.seen["min"] == self.seen["max"]):
            return None
        return {"seen": self.seen, "longest": self.longest, "usual": self.usual}

    # -- the longest samples -----------------------------------------------------------------------------------

    def longest_batch(self, loader: Loader) -> Any:
        """A batch of the longest samples of a loader's dataset, or None where they are not to be had."""
        sampler = getattr(loader, "batch_sampler", None)
        size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        if not takes_any_together(sampler) or not size:
            return None
        dataset = loader.dataset
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            return None
        indices = allowed(loader, sampler, len(dataset))
        by_contents = contents.of_loader(self.torch, loader)
        parts, looked = self._scan(dataset, indices, True) if by_contents else self._lengths(dataset, indices)
        candidates = longest.candidates(parts, looked, int(size))
        if by_contents:
            candidates.extend(longest.candidates_by_part(parts, looked, int(size)))
        elif candidates and self._joins(loader, dataset, candidates[0][0], looked[_shortest(parts)]):
            batches = min(_MOST_DRAWN, _EPOCHS * len(indices) // int(size))
            candidates = [longest.largest_drawn(parts, looked, int(size), batches)]
        end, best, most = self.clock() + _SCAN_SECONDS, None, 0
        for number, chosen in enumerate(candidates):
            if number and self.clock() > end:
                break
            try:
                batch = _collated(loader, dataset, chosen)
            except Exception:
                # Samples that cannot be read, or that a collate function does not take together.
                continue
            size_of_it = measured(self.torch, batch)[0]
            if size_of_it > most:
                best, most = batch, size_of_it
        if best is not None and getattr(loader, "pin_memory", False) and not forked.is_away() and self.torch.cuda.is_available():
            best = sys.modules["torch.utils.data._utils.pin_memory"].pin_memory(best)
        return best

    def _joins(self, loader, dataset, long, short):
        """Whether the collate function puts samples one behind the other, as it does graphs, instead of padding the short ones."""
        one, other, both = (
            measured(self.torch, _collated(loader, dataset, some))[0] for some in ([long], [short], [long, short])
        )
        return one > other and both == one + other

    def _lengths(self, dataset: Any, indices: Sequence[int]) -> tuple[dict[str, list[int]], Sequence[int]]:
        """The lengths of the parts of samples, and which samples these are."""
        parts = hook.guarded(longest.columns, dataset)
        if parts is not None:
            return {name: [lengths[index] for index in indices] for name, lengths in parts.items()}, indices
        return self._scan(dataset, indices)

    def _scan(self, dataset: Any, indices: Sequence[int], numbers: bool = False) -> tuple[dict[str, list[int]], list[int]]:
        """Measure samples spread over a dataset, for a bounded time: the lengths of their parts, and which they are.

        With `numbers`, what lengths may follow from is a part too.
        """
        end, guard = self.clock() + _SCAN_SECONDS, time.perf_counter() + _LONGEST_SCAN
        found: list[dict[str, int]] = []
        looked: list[int] = []
        alike = True
        for number, index in enumerate(longest.spread(indices)):
            over = self.clock() > end or time.perf_counter() > guard
            if number >= _SCAN_FIRST and (over or alike and not numbers):
                break
            sample = dataset[index]
            found.append(longest.extents(self.torch, sample))
            if numbers:
                found[-1].update(contents.numbers(self.torch, sample))
            looked.append(index)
            alike = alike and found[-1] == found[0]
        names = dict.fromkeys(itertools.chain.from_iterable(found))
        return {name: [one.get(name, 0) for one in found] for name in names}, looked


def _shortest(parts):
    totals = [sum(lengths) for lengths in zip(*parts.values())]
    return totals.index(min(totals))


def _collated(loader, dataset, indices):
    """The batch that the loader makes of these samples."""
    fetch = getattr(dataset, "__getitems__", None)
    return loader.collate_fn(fetch(indices) if fetch is not None else [dataset[index] for index in indices])


def _reference(loader):
    """A function that gives the loader of an iterator.

    A loader whose workers persist holds its iterator. Held by it in turn, the two would wait for the garbage collector, which
    ends the threads that tell the workers to end before it asks the iterator to end them: PyTorch then waits for each for 5 s.
    """
    return weakref.ref(loader) if attribute(loader, "persistent_workers", False) else lambda: loader


def _runs_ahead():
    """Say whether the batch is fetched by Accelerate's loader, which looks one batch ahead."""
    # Others of the hook follow the loader as well, and may be between.
    frame = flags.reader(sites.is_own_file)
    return frame is not None and frame.f_code.co_filename.replace("\\", "/").endswith("/accelerate/data_loader.py")


def takes_any_together(sampler: object) -> bool:
    """Say whether any samples can meet in a batch, as they do in PyTorch's own, in a subclass too that makes batches its way.

    A sampler that fits its batches to the lengths would never put the longest together.
    """
    while type(sampler).__name__ == "BatchSamplerShard":
        # Accelerate's, which deals out the batches of another.
        sampler = getattr(sampler, "batch_sampler", None)
    plain = sys.modules["torch.utils.data"].BatchSampler
    return isinstance(sampler, plain) and type(sampler).__iter__ is plain.__iter__


def allowed(loader: Loader, sampler: Any, length: int) -> Sequence[int]:
    """The samples that a loader draws from: those of its sampler, where that names them."""
    while hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    indices = getattr(getattr(sampler, "sampler", None), "indices", None)
    return range(length) if indices is None else [int(index) for index in indices]


def samples_of(torch: Torch, batch: Any) -> int:
    """How many samples a batch has: the length of its tensors; 0 where that is not seen."""
    lengths = [leaf.shape[0] for leaf in longest.leaves(torch, batch) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    return int(lengths[0]) if lengths else 0


def measured(torch: Torch, batch: Any) -> tuple[int, str, list[int] | None]:
    """How many elements a batch has, in which unit, and its shape where one tensor decides.

    Tokens where a batch has them, else the elements of its largest tensor.
    """
    tokens = [tensor for name, tensor in _named(torch, batch) if name.endswith("input_ids")]
    if tokens:
        shape = [int(length) for length in tokens[0].shape] if len(tokens) == 1 else None
        return sum(tensor.numel() for tensor in tokens), "tokens", shape
    tensors = [leaf for leaf in longest.leaves(torch, batch, opened=True) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        return 0, "elements", None
    largest = max(tensors, key=lambda tensor: tensor.numel())
    whole = not largest.is_floating_point() and largest.dim() == 2
    return largest.numel(), "tokens" if whole else "elements", [int(length) for length in largest.shape]


def _named(torch, batch):
    items = batch.items() if is_mapping(batch) else ()
    return [(name, value) for name, value in items if isinstance(name, str) and isinstance(value, torch.Tensor)]


def install(torch: Torch, record: Record, config: HookConfig) -> Batches:
    """Attach to a torch that has just been imported."""
    batches = Batches(torch, record, config["batches"] == "longest")
    record.batches = batches
    batches.attach()
    hook.in_new_run(batches.new_run)
    return batches
