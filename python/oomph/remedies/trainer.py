"""Applies remedies for which the Trainer of transformers has an argument of its own.

The argument is set before the library looks at what the program gave, so that everything derived from it follows, and
TRL's and other descendants' trainers see it as if it had been written in the program.
"""

from __future__ import annotations

from oomph.remedies.remedy import Refused, Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph.moments import Moments


class Argument(Remedy):
    """Sets fields of TrainingArguments. `fields(arguments)` says which."""

    waits_for = "the program made no TrainingArguments"

    def __init__(
        self, name: str, options: dict[str, Any], fields: Callable[[Argument, Any], dict[str, Any]] | None = None
    ) -> None:
        super().__init__(name, options)
        self._fields = fields
        self._wanted: dict[str, Any] = {}

    def fields(self, arguments: Any) -> dict[str, Any]:
        """The fields to set, as a dict. It may raise `Refused`."""
        return self._fields(self, arguments) if self._fields is not None else {}

    def attach(self, moments: Moments) -> None:
        self.attach_trainer(moments)

    def attach_trainer(self, moments: Moments) -> None:
        """Wait for the Trainer."""
        moments.on_arguments(self.careful(self._arguments))
        moments.on_trainer(after=self.careful(self._trainer))

    def _arguments(self, arguments):
        wanted = self.fields(arguments)
        if not wanted:
            return
        before = {name: plain(getattr(arguments, name)) for name in wanted}
        if all(before[name] == value for name, value in wanted.items()):
            self._wanted = wanted
            self.already("TrainingArguments have " + ", ".join(spell(item) for item in wanted.items()))
            return
        for name, value in wanted.items():
            setattr(arguments, name, value)
        self._wanted = wanted
        changed = [name for name in wanted if before[name] != wanted[name]]
        self.applied(
            "TrainingArguments: "
            + ", ".join("%s %s -> %s" % (name, shown(before[name]), shown(wanted[name])) for name in changed)
        )

    def _trainer(self, trainer):
        """The Trainer is there: what it holds is what it will do."""
        if not self._wanted:
            return
        held = {name: plain(getattr(trainer.args, name, None)) for name in self._wanted}
        lost = [name for name, value in self._wanted.items() if held[name] != value]
        if lost:
            self.failed("the program set %s back" % lost[0])
        elif self.evidence is None:
            self.evidence = "the %s runs with %s" % (type(trainer).__name__, ", ".join(spell(item) for item in held.items()))


def plain(value: Any) -> Any:
    """The value of an enumeration as the word that stands for it."""
    return getattr(value, "value", value)


def shown(value: object) -> str:
    """A value for a sentence; of what is more than a word or a number in a dictionary only the name is shown."""
    if isinstance(value, dict):
        simple = (bool, int, float, str)
        return "{%s}" % ", ".join("%s: %s" % (key, part) if isinstance(part, simple) else key for key, part in value.items())
    return str(value)


def spell(item: tuple[str, object]) -> str:
    """`name=value`."""
    return "%s=%s" % (item[0], shown(item[1]))


def field(arguments: Any, *names: str) -> str:
    """The first of several names that this version of transformers has; the names of arguments have changed."""
    for name in names:
        if hasattr(arguments, name):
            return name
    raise Refused("this version of transformers has no argument %s" % names[-1])


def divided_batch(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """Divide the batch, and multiply the accumulation."""
    by = max(2, int(remedy.option("divide_by", 2)))
    name = field(arguments, "per_device_train_batch_size")
    batch = int(getattr(arguments, name))
    if batch < by:
        raise Refused("the batch is %d: it cannot be divided by %d" % (batch, by))
    steps = int(arguments.gradient_accumulation_steps)
    return {name: -(-batch // by), "gradient_accumulation_steps": steps * by}


def smaller_eval_batch(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """A batch for evaluation, 1 unless the option says otherwise."""
    return {field(arguments, "per_device_eval_batch_size"): int(remedy.option("batch_size", 1))}


def accumulated_evaluation(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """Results go to the CPU every so many steps."""
    return {field(arguments, "eval_accumulation_steps"): int(remedy.option("steps", 1))}


def loss_only(_remedy: Argument, arguments: Any) -> dict[str, Any]:
    """An evaluation keeps no predictions."""
    return {field(arguments, "prediction_loss_only"): True}


def emptied_cache(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """The allocator's cache is given back now and then."""
    return {field(arguments, "torch_empty_cache_steps"): int(remedy.option("steps", 4))}


def shorter(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """TRL cuts what is longer."""
    if remedy.options.get("length") is None:
        raise Refused("no length was given")
    return {field(arguments, "max_length", "max_seq_length"): int(remedy.options["length"])}


def unpacked(_remedy: Argument, arguments: Any) -> dict[str, Any]:
    """TRL packs no samples together."""
    return {field(arguments, "packing"): False}


def unpinned(_remedy: Argument, arguments: Any) -> dict[str, Any]:
    """Batches wait in ordinary memory."""
    return {field(arguments, "dataloader_pin_memory"): False}


def fewer_workers(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """Fewer processes that load data."""
    return {field(arguments, "dataloader_num_workers"): int(remedy.option("workers", 0))}


def low_rank(remedy: Argument, arguments: Any) -> dict[str, Any]:
    """Gradients in a space of low rank, as GaLore does."""
    from oomph.remedies.remedy import require

    require("galore_torch", "the GaLore optimizer")
    return {"optim": "galore_adamw_8bit", "optim_target_modules": remedy.option("target_modules", "all-linear")}
