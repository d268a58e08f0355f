"""Watches XGBoost: its version, and whether the program asks it for a card.

Its library has a CUDA runtime of its own and passes every array to it, also where the CPU does the work. That the
library looked for a card thus says nothing of the program. Its parameters do.
"""

from __future__ import annotations

import functools

from oomph import hook
from oomph.frameworks.watch import FrameworkWatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._protocol import HookConfig
    from oomph._types import Library
    from oomph.record import Record

LIBRARY = "libxgboost"
"""How the name of its library begins."""

_DEVICES = ("device", "tree_method", "updater", "predictor")
"""The parameters that choose a device; all but the first did so before version 2."""


def asks(parameters: Any) -> bool:
    """Whether parameters, a dictionary or pairs, choose a card."""
    pairs = parameters.items() if hasattr(parameters, "items") else parameters
    return any(_chooses(name, str(value).lower()) for name, value in pairs or ())


def _chooses(name, text):
    if name == "gpu_id":
        return text.isdigit()
    return name in _DEVICES and ("cuda" in text or "gpu" in text)


def install(xgboost: Library, record: Record, config: HookConfig) -> None:
    """Attach to an XGBoost that has just been imported."""
    record.frameworks["xgboost"] = str(xgboost.__version__)
    # Its memory is not known, but the record is to be written when the program ends.
    FrameworkWatcher(record, ()).attach()
    watch_boosters(xgboost.Booster, record)


def watch_boosters(booster: Any, record: Record) -> None:
    """Note which devices the parameters of boosters choose."""
    record.asked_for_card.setdefault(LIBRARY, False)

    def note(asked):
        if asked and not record.asked_for_card[LIBRARY]:
            record.asked_for_card[LIBRARY] = True
            record.write()

    def set_param(params, value=None):
        note(asks([(params, value)] if isinstance(params, str) else params))

    def load_config(config):
        note("cuda" in config or "gpu" in config)

    def setstate(state):
        # A model that was pickled after training on a card has the card among its settings.
        note(b"cuda" in bytes(state.get("handle") or b""))

    _before(booster, "set_param", set_param)
    _before(booster, "load_config", load_config)
    _before(booster, "__setstate__", setstate)


def _before(kind, name, look):
    """Have `look` see the arguments of a method before it runs."""
    method = getattr(kind, name, None)
    if method is None:
        return

    @functools.wraps(method)
    def watched(self, *args, **kwargs):
        hook.guarded(functools.partial(look, *args, **kwargs))
        return method(self, *args, **kwargs)

    setattr(kind, name, watched)
