"""Makes micro-batches smaller: by the Trainer's arguments, or by splitting the batches of a DataLoader in a plain loop.

In a plain loop each batch of the loader comes in pieces, one after another. The loop runs once for each piece; the
gradients of the pieces are added up, each scaled by its share of the batch, and optimizers, schedulers and
`zero_grad` do their work only after the last piece. That is what

    for i, batch in enumerate(loader):            # of a quarter of the batch
        loss = criterion(model(x), y) / 4
        loss.backward()
        if i % 4 == 3: optimizer.step(); optimizer.zero_grad()

does. It takes the loss for a mean over the samples. Layers that compute statistics of the batch see the pieces.
"""

from __future__ import annotations

import collections
import functools
import sys
import types

from oomph import _protocol as protocol
from oomph import hook
from oomph.remedies.remedy import plural
from oomph.remedies.trainer import Argument, divided_batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oomph.moments import Moments


class MicroBatch(Argument):
    """`micro-batch`: batches in `divide_by` pieces, with accumulation."""

    waits_for = "no DataLoader feeds a training loop, so there is no batch to split"

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(name, options)
        self.pieces = max(2, int(self.option("divide_by", 2)))
        self.window = Window()
        self.largest = 0
        self._gated = False

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        self.attach_trainer(moments)
        moments.before_model(self._model)
        hook.on_import("torch.utils.data.dataloader", self._watch_loaders)
        # Before the first optimizer is made: a step that is held back has to be so from the start.
        moments.on_optimizer(self.careful(self._optimizer))

    def fields(self, arguments: Any) -> dict[str, Any]:
        return divided_batch(self, arguments)

    def _model(self, model, args, kwargs):
        if model.training and self.torch.is_grad_enabled():
            for value in list(args) + list(kwargs.values()):
                if isinstance(value, self.torch.Tensor) and value.dim():
                    self.largest = max(self.largest, value.shape[0])

    # -- loaders -----------------------------------------------------------------------------------------------

    def _watch_loaders(self, module):
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter
        plain_iter, plain_next = loader.__iter__, iterator.__next__
        remedy = self

        @functools.wraps(plain_iter)
        def __iter__(self):
            if not remedy._splits(self):
                return plain_iter(self)
            remedy.window.begin()
            remedy._gate()
            # The loader hands its sampler to the iterator that it makes, so the sampler changes for that moment only:
            # whoever asks for the loader's length still gets the number of batches.
            sampler = self.batch_sampler
            split = Pieces(sampler, remedy.pieces)
            object.__setattr__(self, "batch_sampler", split)
            try:
                found = plain_iter(self)
            finally:
                object.__setattr__(self, "batch_sampler", sampler)
            found._oomph_pieces = split
            return found

        @functools.wraps(plain_next)
        def __next__(self):
            split = getattr(self, "_oomph_pieces", None)
            if split is None:
                return plain_next(self)
            data = plain_next(self)
            remedy.window.arrived(*split.parts.popleft())
            return data

        loader.__iter__, iterator.__next__ = __iter__, __next__

    def _splits(self, loader):
        if self.moments.trainer_seen or not self.torch.is_grad_enabled():
            return False
        if type(loader).__module__.startswith("accelerate"):
            # It reads one batch ahead, so the piece at hand is not the piece that was read last.
            self.refused("accelerate reads the batches: its gradient_accumulation_steps divides them")
            return False
        sampler = getattr(loader, "batch_sampler", None)
        size = getattr(sampler, "batch_size", None)
        if sampler is None or getattr(loader, "persistent_workers", False):
            self.refused("the DataLoader has no batch sampler that could be split")
            return False
        if not size or size < self.pieces:
            self.refused("the batch of the DataLoader is %s: it cannot be divided by %d" % (size, self.pieces))
            return False
        self.applied("batches of %d come in %d pieces, and their gradients are added up" % (size, self.pieces))
        return True

    # -- what waits for the last piece -------------------------------------------------------------------------

    def _gate(self):
        """Make everything that ends an iteration wait for the last piece."""
        if self._gated:
            return
        self._gated = True
        torch, window = self.torch, self.window
        optimizer = sys.modules["torch.optim.optimizer"].Optimizer
        optimizer.zero_grad = self._held(optimizer.zero_grad, lambda: window.open)
        torch.nn.Module.zero_grad = self._held(torch.nn.Module.zero_grad, lambda: window.open)
        schedulers = sys.modules.get("torch.optim.lr_scheduler")
        for name in ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau"):
            cls = getattr(schedulers, name, None)
            if cls is not None and "step" in cls.__dict__:
                cls.step = self._held(cls.step, window.waiting)
        for scaler in {getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler} - {None}:
            for name in ("step", "unscale_", "update"):
                if name in scaler.__dict__:
                    setattr(scaler, name, self._held(scaler.__dict__[name], window.waiting))
        utils = torch.nn.utils
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            held = self._held(getattr(utils, name), window.waiting, otherwise=lambda: torch.zeros(()))
            setattr(utils, name, held)
            setattr(sys.modules["torch.nn.utils.clip_grad"], name, held)
        torch.Tensor.backward = self._scaled(torch.Tensor.backward)

    def _held(self, original, waits, otherwise=lambda: None):
        @functools.wraps(original)
        def held(*args, **kwargs):
            return otherwise() if waits() else original(*args, **kwargs)

        return held

    def _scaled(self, original):
        window = self.window

        @functools.wraps(original)
        def backward(self, *args, **kwargs):
            share = window.share
            window.went_back()
            return original(self if share == 1 else self * share, *args, **kwargs)

        return backward

    def _optimizer(self, optimizer):
        """An optimizer's step waits too. It stays a method of the optimizer, which schedulers insist on."""
        window = self.window
        original = type(optimizer).step

        @functools.wraps(original)
        def step(self, *args, **kwargs):
            if window.waiting():
                window.held += 1
                return None
            window.let_through()
            return original(self, *args, **kwargs)

        optimizer.step = types.MethodType(step, optimizer)

    # -- verification ------------------------------------------------------------------------------------------

    def verify(self) -> None:
        window = self.window
        if self.state != protocol.REMEDY_APPLIED:
            return
        if self._gated and window.passed:
            self.evidence = "%s let through and %d held back; the largest micro-batch has %s" % (
                plural(window.passed, "step"), window.held, plural(self.largest, "row"),
            )  # fmt: skip
        elif self._wanted and self.largest:
            self.evidence = "the largest micro-batch has %s" % plural(self.largest, "row")


class SmallerBatch(MicroBatch):
    """`smaller-batch`: the Trainer's batch divided, without accumulation."""

    waits_for = "the program made no TrainingArguments"

    def attach(self, moments: Moments) -> None:
        self.torch = moments.torch
        self.moments = moments
        self.attach_trainer(moments)
        moments.before_model(self._model)

    def fields(self, arguments: Any) -> dict[str, Any]:
        wanted = divided_batch(self, arguments)
        wanted.pop("gradient_accumulation_steps")
        return wanted


class Window:
    """Where in a batch the loop is."""

    def __init__(self) -> None:
        self.open = False
        """Gradients of a part of the batch are there, so nothing may clear them."""
        self.last = True
        self.share: float = 1
        self.held = self.passed = 0

    def begin(self) -> None:
        """A new pass over the data begins; what was left of the last batch is forgotten."""
        self.open, self.last, self.share = False, True, 1

    def arrived(self, share: float, last: bool) -> None:
        """A piece was handed to the loop: its share of the batch, and whether it is the last one."""
        self.share, self.last = share, last

    def went_back(self) -> None:
        """A backward pass has added to the gradients."""
        if not self.last:
            self.open = True

    def waiting(self) -> bool:
        """Say whether more pieces of this batch are to come."""
        return not self.last

    def let_through(self) -> None:
        """An optimizer steps."""
        self.open = False
        self.passed += 1


class Pieces:
    """A batch sampler that gives the batches of another one in pieces, and remembers what it gave."""

    def __init__(self, sampler: Any, pieces: int) -> None:
        self.sampler = sampler
        self.pieces = pieces
        self.parts: collections.deque[tuple[float, bool]] = collections.deque()
        """(share of the batch, is the last one) of the pieces that the loop has not seen yet."""

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self.sampler:
            batch = list(batch)
            size = max(1, -(-len(batch) // self.pieces))
            for start in range(0, len(batch), size):
                piece = batch[start : start + size]
                last = start + size >= len(batch)
                self.parts.append((1 if len(piece) == len(batch) else len(piece) / len(batch), last))
                yield piece

    def __len__(self) -> int:
        return len(self.sampler) * self.pieces

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)
