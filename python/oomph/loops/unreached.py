"""Lists what the run has not reached: loaders that were made and never read, evaluations that are due."""

from __future__ import annotations

import functools
import os
import weakref

from oomph import _protocol as protocol
from oomph import hook, sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._protocol import HookSite, HookUnreached
    from oomph.phases import Phases


class Unreached:
    """Remembers loaders and trainers until they have done their part."""

    def __init__(self, phases: Phases, cut_short: dict[str, tuple[str, int]]) -> None:
        self._phases = phases
        self._cut_short = cut_short
        self._loaders: list[tuple[Callable[[], Any], HookSite]] = []
        self._trainer: Callable[[], Any] | None = None

    def attach(self, moments_on_import: Callable[[str, Callable[[Any], object]], None]) -> None:
        """Wait for PyTorch's loaders and the Trainer of transformers."""
        moments_on_import("torch.utils.data.dataloader", self._watch_loaders)
        moments_on_import("transformers.trainer", self._watch_trainer)

    def _watch_loaders(self, module):
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter
        plain_init, plain_iter = loader.__init__, iterator.__init__
        loaders = self._loaders

        @functools.wraps(plain_init)
        def __init__(self, *args, **kwargs):
            plain_init(self, *args, **kwargs)
            hook.guarded(remember, self)

        def remember(self):
            site = sites.site_of_frame(_caller())
            if site is not None and len(loaders) < 64:
                loaders.append((weakref.ref(self), site))

        @functools.wraps(plain_iter)
        def begin(self, loader, *args, **kwargs):
            loaders[:] = [one for one in loaders if one[0]() not in (None, loader)]
            plain_iter(self, loader, *args, **kwargs)

        loader.__init__ = __init__
        iterator.__init__ = begin

    def _watch_trainer(self, module):
        original = module.Trainer.__init__

        @functools.wraps(original)
        def __init__(trainer, *args, **kwargs):
            original(trainer, *args, **kwargs)
            self._trainer = weakref.ref(trainer)

        module.Trainer.__init__ = __init__

    def as_list(self) -> list[HookUnreached]:
        """What is still to come, in the form of docs/internals/run-folder.md."""
        found: list[HookUnreached] = []
        trainer = self._trainer() if self._trainer is not None else None
        strategy = getattr(getattr(getattr(trainer, "args", None), "eval_strategy", None), "value", "no")
        if trainer is not None and strategy != "no" and not self._phases.has_seen(protocol.PHASE_EVAL):
            why = "the Trainer evaluates (eval_strategy=%r) and had not yet" % strategy
            found.append({"phase": "evaluation", "why": why, "certain": False})
        for reference, site in self._loaders:
            if reference() is not None:
                place = "%s:%d" % (os.path.basename(site["file"]), site["line"])
                found.append({"phase": "a loader", "why": "the one made at %s was never read" % place, "certain": False})
        for name, (file, line) in self._cut_short.items():
            why = "the loop at %s:%d was too long to be run whole, and what is made of `%s` after it takes less" % (
                os.path.basename(file), line, name,
            )  # fmt: skip
            found.append({"phase": "all of `%s`" % name, "why": why, "certain": True})
        return found


def _caller():
    import sys

    return sys._getframe(3)
