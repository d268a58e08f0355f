"""Follows loops of trainers that their source alone does not show: what a trainer does at intervals, and Lightning's
loops."""

from __future__ import annotations

import functools
import inspect

from oomph import hook
from oomph.loops.loop import LibraryLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph.loops.course import Course


def attach(course: Course) -> None:
    """Wait for the trainers."""
    hook.on_import("transformers.trainer_callback", lambda module: _transformers(module, course))
    for package in ("lightning.pytorch", "pytorch_lightning"):
        hook.on_import(package + ".loops.fit_loop", lambda module: _lightning_epochs(module._FitLoop, course))
        hook.on_import(
            package + ".loops.training_epoch_loop", lambda module: _lightning_training(module._TrainingEpochLoop, course)
        )
        hook.on_import(package + ".loops.evaluation_loop", lambda module: _lightning_evaluation(module._EvaluationLoop, course))
    hook.on_import("ultralytics.engine.trainer", lambda module: _ultralytics(module.BaseTrainer))


# -- the Trainer of transformers -------------------------------------------------------------------------------------


def _transformers(module, course):
    """What the Trainer does every so many steps it does once before its loop is shortened."""
    flow = module.DefaultFlowCallback
    _after(flow, "on_train_begin", lambda args, state, control, **_: _limit(course, state))
    _after(flow, "on_step_end", lambda args, state, control, **_: _every_so_often(course, args, state, control))
    _after(flow, "on_train_end", lambda *_, **__: setattr(course, "most_steps", None))


def _limit(course, state):
    course.most_steps = course.steps + max(0, int(state.max_steps) - int(state.global_step))


def _every_so_often(course, args, state, control):
    every_so_many = ("eval_strategy", "should_evaluate", "eval_steps"), ("save_strategy", "should_save", "save_steps")
    for strategy, flag, steps in every_so_many:
        if getattr(getattr(args, strategy, None), "value", None) == "steps":
            due = bool(getattr(control, flag))
            every = getattr(state, steps, None) or getattr(args, steps, None) or 0
            early = -int(state.global_step) % int(every) if every >= 1 else 0
            setattr(control, flag, course.now(due, ("transformers", flag), early))


def _after(cls, name, callback):
    original = cls.__dict__.get(name)
    inherited = getattr(cls, name)

    @functools.wraps(inherited)
    def method(self, *args, **kwargs):
        result = (original or inherited)(self, *args, **kwargs)
        hook.guarded(functools.partial(callback, *args, **kwargs))
        return result

    setattr(cls, name, method)


# -- Lightning -------------------------------------------------------------------------------------------------------


def _begin(owner, course, total, **facts):
    """A loop of Lightning begins to run; the one that it ran before is over."""
    _end(owner, course)
    # Lightning's own, not what is wrapped around it here.
    code = inspect.unwrap(type(owner).run).__code__
    count = int(total) if isinstance(total, (int, float)) and 0 < total < float("inf") else None
    loop = owner._oomph_loop = LibraryLoop(course, code.co_filename, code.co_firstlineno, count, **facts)
    loop.begin()


def _end(owner, course):
    loop = owner.__dict__.pop("_oomph_loop", None)
    if loop is not None:
        course.end(loop)


def _ended(owner):
    """Say whether the loop that has made an iteration may end."""
    loop = owner.__dict__.get("_oomph_loop")
    return loop is not None and bool(hook.guarded(loop.ended))


def _around(cls, name, before=None, after=None):
    original = getattr(cls, name)

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if before is not None:
            hook.guarded(before, self)
        result = original(self, *args, **kwargs)
        if after is not None:
            hook.guarded(after, self)
        return result

    setattr(cls, name, method)


def _lightning_epochs(cls, course):
    def ended(self):
        if _ended(self):
            self.max_epochs = self.epoch_progress.current.processed

    _around(cls, "on_run_start", before=lambda self: _begin(self, course, self.max_epochs))
    _around(cls, "on_advance_end", after=ended)
    _around(cls, "on_run_end", before=lambda self: _end(self, course))


def _lightning_training(cls, course):
    original = cls.on_advance_end

    @functools.wraps(original)
    def on_advance_end(self, *args, **kwargs):
        if not _ended(self):
            return original(self, *args, **kwargs)
        # The epoch ends with this batch, and its validation is due as after the last one.
        trainer = self.trainer
        self.batch_progress.is_last_batch = True
        loop = self.__dict__.get("_oomph_loop")
        course.ahead = (loop.remaining() or 0) * loop.steps_of_one() if loop is not None else 0
        every = trainer.val_check_batch
        if isinstance(every, int) and every > 1:
            trainer.val_check_batch = 1
        try:
            return original(self, *args, **kwargs)
        finally:
            trainer.val_check_batch = every

    cls.on_advance_end = on_advance_end
    _around(cls, "on_run_start", after=lambda self: _begin(self, course, self.trainer.num_training_batches, batches=True))
    run = cls.run

    @functools.wraps(run)
    def ends(self, *args, **kwargs):
        try:
            return run(self, *args, **kwargs)
        finally:
            hook.guarded(_end, self, course)

    cls.run = ends


def _lightning_evaluation(cls, course):
    original = cls._evaluation_step

    @functools.wraps(original)
    def _evaluation_step(self, *args, **kwargs):
        if self.__dict__.get("_oomph_over"):
            # As when there are no more batches.
            raise StopIteration
        original(self, *args, **kwargs)
        self._oomph_over = _ended(self)

    def begin(self):
        self._oomph_over = False
        total = self.max_batches
        _begin(self, course, sum(total) if isinstance(total, list) else total, batches=True)

    cls._evaluation_step = _evaluation_step
    _around(cls, "on_run_start", after=begin)
    _around(cls, "on_run_end", before=lambda self: _end(self, course))


# -- Ultralytics -----------------------------------------------------------------------------------------------------


def _ultralytics(cls):
    """Of many equal epochs two are run; the second is made the last one."""
    original = cls.run_callbacks

    @functools.wraps(original)
    def run_callbacks(self, event):
        if event == "on_train_epoch_end" and hook.config["stop"]["mode"] == "peak-stable":
            if self.epoch > getattr(self, "start_epoch", 0):
                self.epochs = self.epoch + 1
        return original(self, event)

    cls.run_callbacks = run_callbacks
