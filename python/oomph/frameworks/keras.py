"""Shortens Keras' own loops, `fit` and `evaluate`, so that the run reaches the program's end.

A pass over batches ends once its peak has settled. What follows it, the validation, the saving, the next epoch and the
evaluation on larger batches, is run. Of equal epochs two are run. A prediction is run whole: its results are the program's.
"""

from __future__ import annotations

import functools
import os
import sys

from oomph import _protocol as protocol
from oomph import hook, sites, stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any

    from oomph._protocol import HookFollowedLoop, LoopKind, Phase
    from oomph._types import Library
    from oomph.frameworks.tensorflow import TensorFlowWatcher

_EPOCHS = 2


class KerasLoops:
    """The passes over batches that Keras makes in one process."""

    def __init__(self, watcher: TensorFlowWatcher) -> None:
        self.watcher = watcher
        self.mode, self.steps = "never", 0
        self.depth = 0
        """How many passes are under way: an evaluation may be inside of a training."""
        self.epochs: dict[int, int] = {}
        """How many epochs of each model's present `fit` were shortened."""
        self.listed: dict[tuple[str, int, str], HookFollowedLoop] = {}

    def shorten(self, mode: str, steps: int) -> None:
        """Passes end by this rule (`oomph.stop`)."""
        self.mode, self.steps = mode, steps

    def attach(self, module: Library) -> None:
        """Watch the iterator that every trainer takes its batches from."""
        original = getattr(module.EpochIterator, "_enumerate_iterator", None)
        if original is None:
            return
        loops = self

        @functools.wraps(original)
        def _enumerate_iterator(self):
            follows = loops.mode == "peak-stable"
            frame = hook.guarded(_caller, sys._getframe(1)) if follows else None
            if frame is None:
                yield from original(self)
                return
            yield from loops.followed(self, original(self), frame)

        module.EpochIterator._enumerate_iterator = _enumerate_iterator

    @property
    def under_way(self) -> bool:
        """Whether the present step is one of a pass that is ended here."""
        return self.depth > 0

    def followed(self, iterator: Any, steps: Iterable[Any], frame: FrameType) -> Iterator[Any]:
        """The steps of a pass until its peak has settled."""
        rule = stop.StopRule(self.mode, self.steps)
        if frame.f_code.co_name == "fit":
            hook.guarded(self._trains, iterator)
        count = 0
        self.depth += 1
        try:
            for step in steps:
                yield step
                count += 1
                peaks = hook.guarded(self.watcher.peaks) or {}
                if rule.after_step(count, [peaks[index][1] for index in sorted(peaks)]) is not None:
                    hook.guarded(self._shortened, iterator, frame, count)
                    # The next pass begins its data again.
                    iterator._current_iterator = None
                    iterator._steps_seen = 0
                    iterator.data_adapter.on_epoch_end()
                    return
        finally:
            self.depth -= 1

    def _trains(self, iterator):
        self.watcher.described.training(getattr(iterator.data_adapter, "batch_size", None))

    def _shortened(self, iterator, frame, count):
        kind: LoopKind = protocol.LOOP_TRAINING if frame.f_code.co_name == "fit" else protocol.LOOP_EVALUATION
        site = sites.site_of_frame(frame)
        if site is not None:
            key = (site["file"], site["line"], kind)
            total = iterator.num_batches
            known = self.listed.setdefault(key, {
                "file": site["file"], "line": site["line"], "kind": kind, "iterations": 0,
                "of": int(total) if total else None, "shortened": True, "growth": None,
            })
            known["iterations"] = max(known["iterations"], count)
            self.watcher.record.shortened = list(self.listed.values())
        if kind == "training":
            model, first = frame.f_locals.get("self"), frame.f_locals.get("epoch")
            begun = frame.f_locals.get("initial_epoch") or 0
            # `fit` ends after this epoch, with its validation and its callbacks.
            if model is not None and first is not None and first - begun + 1 >= _EPOCHS:
                model.stop_training = True
        self.watcher.record.write(force=False)


_EVALUATE = frozenset((
    "evaluate", "predict", "predict_on_batch", "test_on_batch",
    # With JAX and PyTorch, what a batch gave is read in another thread.
    "_on_test_batch_end", "_on_predict_batch_end", "on_test_batch_end", "on_predict_batch_end",
))  # fmt: skip
"""Methods of Keras' that belong to an evaluation or a prediction."""


def keras_phase(frames: Iterable[FrameType]) -> Phase | None:
    """`eval` where a stack goes through an evaluation or a prediction of Keras'; None elsewhere."""
    for frame in frames:
        code = frame.f_code
        if code.co_name in _EVALUATE and "keras" in code.co_filename:
            return protocol.PHASE_EVAL
    return None


def _caller(frame):
    """The frame of the trainer's method that a pass belongs to, if it may be shortened."""
    for _ in range(12):
        if frame is None:
            return None
        if os.path.basename(frame.f_code.co_filename) == "trainer.py" and "keras" in frame.f_code.co_filename:
            name = frame.f_code.co_name
            if name in ("fit", "evaluate"):
                return frame
            if name in ("predict", "_maybe_symbolic_build"):
                return None
        frame = frame.f_back
    return None
