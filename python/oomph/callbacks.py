"""Callbacks for trainers: `oomph.TrainerCallback` for transformers and TRL, `oomph.LightningCallback` for Lightning.

Each watches the training as `oomph.watch()` does, and hands the figures of `oomph.scalars()` to the trainer's own loggers
(TensorBoard and others). The libraries are imported when the callback is asked for.
"""

from __future__ import annotations

from oomph import library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def trainer_callback() -> type:
    """The class of the callback for the Trainer of transformers."""
    import sys

    from transformers import TrainerCallback

    class OomphCallback(TrainerCallback):
        """`Trainer(..., callbacks=[oomph.TrainerCallback()])`."""

        def __init__(self, record: str = "light", keep: str = "oomph-run", quiet: bool = False) -> None:
            self.watch = library.watch(record, keep, quiet)

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.watch.start()
            # The loggers are called in their order: what is added to the logs after them comes too late.
            handler: Any = sys._getframe(1).f_locals.get("self")
            callbacks = getattr(handler, "callbacks", None)
            if isinstance(callbacks, list) and self in callbacks:
                handler.callbacks = [self] + [one for one in callbacks if one is not self]

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
            if logs is not None and state.is_world_process_zero:
                logs.update(library.scalars())

    return OomphCallback


def lightning_callback() -> type:
    """The class of the callback for Lightning."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class OomphCallback(Callback):
        """`Trainer(..., callbacks=[oomph.LightningCallback()])`."""

        def __init__(self, record: str = "light", keep: str = "oomph-run", quiet: bool = False) -> None:
            self.watch = library.watch(record, keep, quiet)

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            self.watch.start()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_index: int) -> None:
            every = trainer.log_every_n_steps
            if trainer.global_step % max(1, every) == 0:
                for logger in trainer.loggers:
                    logger.log_metrics(library.scalars(), step=trainer.global_step)

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            self.watch.explain(exception)

    return OomphCallback
