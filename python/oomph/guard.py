"""Follows a guarded run (`oomph run`): which checkpoints its trainer finished, how far it is, and where it resumes.

Nothing of the program is changed but what `hook.json` asks for: a checkpoint to resume from, and a limit on what PyTorch
takes of each card. A checkpoint is named once the trainer's own call that writes it has returned, so a folder that a
dying process left half written is never taken for one.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref

from oomph import _protocol as protocol
from oomph import hook
from oomph.ahead import Follower
from oomph.signs import Signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._protocol import Guard as GuardConfig
    from oomph._protocol import HookBatchSize, HookCheckpoint, HookConfig, HookProgress
    from oomph._types import Optimizer, Torch
    from oomph.record import Record

_MOST_CHECKPOINTS = 200
"""Older ones are forgotten; trainers rotate them away as well."""


class Guard:
    """Follows the trainer of this process. Its methods never raise into the program."""

    def __init__(self, torch: Torch, record: Record, wanted: GuardConfig) -> None:
        self.torch = torch
        self.record = record
        self.resume = wanted.get("resume")
        self.limit = wanted.get("limit_bytes")
        self.quiet = bool(wanted.get("quiet"))
        """Whether signs are kept to the record."""
        self.trainer: Callable[[], Any] | None = None
        """What knows the step of the whole training, as a weak reference, and how to ask it."""
        self.kind: str | None = None
        self.global_step: int | None = None
        self.started_at: int | None = None
        self.batch: HookBatchSize | None = None
        self.checkpoints: list[HookCheckpoint] = []
        self.resumed: str | None = None
        self.cards: dict[int, str] = {}
        """The identifiers of the cards that this process sees, by its own numbers for them."""
        self.most: dict[int, int] = {}
        """How many bytes the allocator may take of each, where there is a limit."""
        self.ahead = Follower(torch)
        self.gradients: int | None = None
        """What the gradients of all that is trained take, in bytes."""
        self.looks: dict[int, Signs] = {}
        """The signs of each card in use."""
        self.signs: list[str] = []
        """The warnings that were given, in order."""
        self.leaving = False
        """Whether the next checkpoint is the last thing that this process does."""
        self.left = False

    def attach(self) -> None:
        """Wait for the trainers, the loaders, and the cards."""
        self.ahead.attach()
        hook.on_import("transformers.trainer", self._transformers)
        for package in ("lightning.pytorch", "pytorch_lightning"):
            hook.on_import(package + ".trainer.trainer", self._lightning)
        hook.on_import("accelerate.accelerator", self._accelerate)

    def as_dict(self) -> HookProgress:
        """What `oomph run` reads of it."""
        return {
            "trainer": self.kind,
            "started_at_step": self.started_at,
            "step": self._steps() if self.kind == "accelerate" else self.global_step,
            "batch": self.batch,
            "resumed": self.resumed,
            "signs": list(self.signs),
            "left": self.left,
            "checkpoints": list(self.checkpoints),
        }

    # -- the cards ---------------------------------------------------------------------------------------------

    def cuda_started(self) -> None:
        """Name the cards, and hold PyTorch to the limit: a card of that size would hold the context as well."""
        cuda = self.torch.cuda
        hook.guarded(self._name_cards)
        if not self.limit:
            return
        for device in range(self.torch._C._cuda_getDeviceCount()):
            free, total = cuda.mem_get_info(device)
            context = max(0, total - free)
            self.most[device] = max(0, self.limit - context)
            cuda.set_per_process_memory_fraction(max(0.0, min(1.0, (self.limit - context) / total)), device)

    def _name_cards(self):
        for device in range(self.torch._C._cuda_getDeviceCount()):
            # Before PyTorch 2.4 there is none.
            uuid = getattr(self.torch.cuda.get_device_properties(device), "uuid", None)
            if uuid is not None:
                self.cards[device] = str(uuid)

    # -- steps -------------------------------------------------------------------------------------------------

    def stepped(self, optimizer: Optimizer | None = None) -> None:
        """An optimizer has stepped; the trainer counts it after this."""
        if self.gradients is None and optimizer is not None:
            self.gradients = hook.guarded(_gradients, optimizer)
        trainer = self.trainer() if self.trainer is not None else None
        if not self.leaving and self._is_asked():
            self.leaving = True
            if self.kind == "transformers" and trainer is not None and not trainer.args.save_only_model:
                # It saves at the end of the step; the others go on to their own next checkpoint.
                trainer.control.should_save = True
        if trainer is None:
            return
        before = int(trainer.state.global_step if self.kind == "transformers" else trainer.global_step)
        if self.started_at is None:
            self.started_at = before
            self.batch = self._batch(trainer)
            self.record.write()
        self.global_step = before + 1

    def look(self, held: dict[int, tuple[int, int, dict[str, Any]]]) -> None:
        """See whether the run will die of memory, and say so once.

        `held` has for each device what is allocated, what is reserved, and the allocator's statistics (`oomph.watcher`).
        """
        tokens = hook.guarded(self.ahead.tokens)
        for device, (allocated, reserved, stats) in held.items():
            signs = self.looks.setdefault(device, Signs())
            peak = stats["allocated_bytes"]["all"]["peak"]
            room = functools.partial(self._room, device, allocated, reserved)
            split = stats.get("inactive_split_bytes")
            lost = (reserved - allocated, split["all"]["current"]) if split else None
            for sentence in signs.stepped(
                self.record.steps, allocated, peak, stats["num_alloc_retries"], room, tokens, self.gradients, lost
            ):
                self.signs.append(sentence)
                if not self.quiet:
                    sys.stderr.write("oomph: %s\n" % sentence)
                    sys.stderr.flush()
                self.record.write()

    def _room(self, device, allocated, reserved):
        """What PyTorch can still allocate: its cache, and what the card has left or the limit leaves."""
        most = reserved + self.torch.cuda.mem_get_info(device)[0]
        return min(most, self.most.get(device, most)) - allocated

    def _batch(self, trainer):
        """What the trainer takes at once, how often it accumulates, and on how many processes."""
        if self.kind != "transformers":
            return None
        return {
            "micro": int(trainer._train_batch_size),
            "accumulation": int(trainer.args.gradient_accumulation_steps),
            "processes": int(trainer.args.world_size),
        }

    # -- leaving for a remedy ----------------------------------------------------------------------------------

    def _is_asked(self):
        """Whether `oomph run --act` has a remedy and asks the program to save and end."""
        folder = self.record.folder
        asked = os.path.exists(os.path.join(folder, protocol.PATH_LEAVE))
        distributed = sys.modules.get("torch.distributed")
        if not asked or distributed is None or not distributed.is_initialized() or distributed.get_world_size() == 1:
            return asked
        # All ranks save at the same step: no rank is more than one step before another.
        path = os.path.join(folder, protocol.PATH_LEAVE_AT)
        if not os.path.exists(path):
            if distributed.get_rank() == 0:
                with open(path + ".new", "w") as file:
                    file.write(str(self.record.steps + 2))
                os.replace(path + ".new", path)
            return False
        with open(path) as file:
            return self.record.steps >= int(file.read())

    def _leave(self):
        """End this process after its checkpoint: all ranks have written theirs then."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_initialized():
            distributed.barrier()
        self.left = True
        self.record.write()
        raise SystemExit(0)

    # -- checkpoints -------------------------------------------------------------------------------------------

    def _finished(self, kind, path, step):
        path = os.path.abspath(os.fspath(path))
        if not os.path.exists(path):
            # Another rank writes it.
            return
        self.checkpoints = [one for one in self.checkpoints if one["path"] != path][1 - _MOST_CHECKPOINTS:]
        self.checkpoints.append({"kind": kind, "path": path, "step": int(step)})
        self.record.write()

    def _wanted(self, kind):
        resume = self.resume
        return resume["path"] if resume is not None and resume.get("kind") == kind else None

    # -- the Trainer of transformers, and TRL's ----------------------------------------------------------------

    def _transformers(self, module):
        trainer_class, guard = module.Trainer, self
        train, save = trainer_class.train, trainer_class._save_checkpoint

        @functools.wraps(train)
        def trained(trainer, resume_from_checkpoint=None, *args, **kwargs):
            path = hook.guarded(guard._begin_transformers, trainer)
            return train(trainer, path or resume_from_checkpoint, *args, **kwargs)

        @functools.wraps(save)
        def saved(trainer, model, trial=None, *args, **kwargs):
            result = save(trainer, model, trial, *args, **kwargs)
            hook.guarded(guard._saved_transformers, trainer, trial)
            if guard.leaving and not trainer.args.save_only_model:
                guard._leave()
            return result

        trainer_class.train, trainer_class._save_checkpoint = trained, saved
        self._keep_batch(module)

    def _begin_transformers(self, trainer):
        self.trainer, self.kind = weakref.ref(trainer), "transformers"
        path = self._wanted("transformers")
        if path is not None:
            self.resumed = path
        return path

    def _keep_batch(self, module):
        """From November 2023 to February 2026 a resumed Trainer took the micro-batch of the checkpoint for its own."""
        state_class, guard = module.TrainerState, self
        load = state_class.load_from_json

        def loaded(json_path):
            state = load(json_path)
            trainer = guard.trainer() if guard.trainer is not None else None
            if guard.resumed is not None and trainer is not None and getattr(state, "train_batch_size", None):
                state.train_batch_size = trainer.args.train_batch_size
            return state

        state_class.load_from_json = staticmethod(loaded)

    def _saved_transformers(self, trainer, trial):
        if trainer.args.save_only_model:
            # There is no optimizer in it.
            return
        step = int(trainer.state.global_step)
        folder = os.path.join(trainer._get_output_dir(trial=trial), "checkpoint-%d" % step)
        self._finished("transformers", folder, step)

    # -- Lightning ---------------------------------------------------------------------------------------------

    def _lightning(self, module):
        trainer_class, guard = module.Trainer, self
        fit, save = trainer_class.fit, trainer_class.save_checkpoint

        @functools.wraps(fit)
        def fitted(trainer, *args, **kwargs):
            path = hook.guarded(guard._begin_lightning, trainer)
            # Its place among the arguments is the fifth: model, train_dataloaders, val_dataloaders, datamodule, ckpt_path.
            if path and len(args) < 5:
                kwargs["ckpt_path"] = path
            return fit(trainer, *args, **kwargs)

        @functools.wraps(save)
        def saved(trainer, filepath, weights_only=False, *args, **kwargs):
            result = save(trainer, filepath, weights_only, *args, **kwargs)
            if not weights_only and hook.guarded(guard._saved_lightning, trainer, filepath) and guard.leaving:
                guard._leave()
            return result

        trainer_class.fit, trainer_class.save_checkpoint = fitted, saved

    def _begin_lightning(self, trainer):
        self.trainer, self.kind = weakref.ref(trainer), "lightning"
        path = self._wanted("lightning")
        if path is not None:
            self.resumed = path
        return path

    def _saved_lightning(self, trainer, filepath):
        # In the middle of an epoch Lightning remembers how many batches were made, and starts the loader again: the rest
        # of the epoch would see other samples. One that is written in the background is not finished here.
        ended = trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        writer = type(trainer.strategy.checkpoint_io).__name__
        whole = ended and "Async" not in writer
        if whole:
            self._finished("lightning", filepath, trainer.global_step)
        return whole

    # -- Accelerate --------------------------------------------------------------------------------------------

    def _accelerate(self, module):
        accelerator_class, guard = module.Accelerator, self
        save, load = accelerator_class.save_state, accelerator_class.load_state

        @functools.wraps(save)
        def saved(accelerator, *args, **kwargs):
            folder = save(accelerator, *args, **kwargs)
            hook.guarded(guard._saved_accelerate, folder)
            if guard.leaving and guard.kind == "accelerate":
                guard._leave()
            return folder

        @functools.wraps(load)
        def loaded(accelerator, input_dir=None, *args, **kwargs):
            result = load(accelerator, input_dir, *args, **kwargs)
            hook.guarded(guard._loaded_accelerate, input_dir)
            return result

        accelerator_class.save_state, accelerator_class.load_state = saved, loaded

    def _saved_accelerate(self, folder):
        # The Trainer saves through it as well, in folders of its own.
        if folder and self.kind != "transformers":
            self.kind = "accelerate"
            self._finished("accelerate", folder, self._steps())

    def _steps(self):
        """The steps of the whole training, as far as a script that counts them itself lets one know."""
        return (self.started_at or 0) + self.record.steps

    def _loaded_accelerate(self, folder):
        if self.kind != "transformers" and folder:
            self.resumed = os.path.abspath(os.fspath(folder))
            if self.resume is not None and self.resumed == self._wanted("accelerate"):
                self.kind, self.started_at = "accelerate", self.resume["step"]


def _gradients(optimizer):
    trained = {id(each): each for group in optimizer.param_groups for each in group["params"]}
    return sum(each.numel() * each.element_size() for each in trained.values())


def install(torch: Torch, record: Record, config: HookConfig) -> Guard | None:
    """Attach to a torch that has just been imported; None where the run is not one that counts."""
    wanted = config.get("guard")
    if wanted is None:
        return None
    guard = Guard(torch, record, wanted)
    guard.attach()
    record.guard = guard
    return guard
