"""Describes a program of a framework other than PyTorch for the search for remedies: its task, batch and optimizers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph.record import Record

_MOST = 8


class Described:
    """Seen at next to no cost while the program runs; `as_dict` has the form of `oomph.program`."""

    trains: None = None

    def __init__(self) -> None:
        self._training = False
        self.batch_size: int | None = None
        self.optimizers: list[dict[str, str]] = []
        self.imports: list[str] = []
        self.kept: list[dict[str, Any]] = []
        """Containers that grow on the card in every iteration, as `oomph.program.kept` has them."""

    def training(self, batch_size: object = None) -> None:
        """The program trains, with so many samples at a time."""
        self._training = True
        if isinstance(batch_size, int) and batch_size > 0:
            self.batch_size = max(self.batch_size or 0, batch_size)

    def optimizer(self, made: object) -> None:
        """An optimizer of this class updates weights."""
        self._training = True
        entry = {"class": type(made).__name__, "module": type(made).__module__}
        if entry not in self.optimizers and len(self.optimizers) < _MOST:
            self.optimizers.append(entry)

    def out_of_memory(self) -> None:
        """Nothing is looked at in the moment of an error."""

    def as_dict(self) -> dict[str, Any]:
        """For the record; what was not seen is left out."""
        loaders = [{"batch_size": self.batch_size, "first_batch": {}}] if self.batch_size else []
        return {
            "task": "training" if self._training else "inference",
            "loaders": loaders,
            "optimizers": list(self.optimizers),
            "kept": list(self.kept),
        }


def of(record: Record) -> Described:
    """The description of this process, which PyTorch's takes the place of where PyTorch is used."""
    if record.program is None:
        record.program = Described()
    return record.program if isinstance(record.program, Described) else Described()
