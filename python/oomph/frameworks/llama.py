"""Watches the Python bindings of llama.cpp: which line of the program died of a full card.

llama.cpp says on stderr that the card refused a buffer, and its bindings raise an error that does not: they could not load
the model or make the context. Whether the card was full is known to the virtual GPU.
"""

from __future__ import annotations

import ctypes

from oomph.frameworks.watch import FrameworkWatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._protocol import HookConfig
    from oomph._types import Library
    from oomph.record import Record

_TEXTS = ("failed to load model", "failed to create llama_context", "failed to create context", "llama_decode")


def install(module: Library, record: Record, config: HookConfig) -> None:
    """Attach to bindings that have just been imported."""
    record.frameworks["llama.cpp"] = "%s %s" % (module.__name__, getattr(module, "__version__", ""))
    LlamaWatcher(record, _TEXTS).attach()


class LlamaWatcher(FrameworkWatcher):
    """Joins llama.cpp to the record of this process."""

    def is_oom(self, error: BaseException) -> bool:
        return refusals() > 0 and super().is_oom(error)


def refusals() -> int:
    """How many requests the virtual card has refused this process; 0 on a real one."""
    try:
        function = ctypes.CDLL(None).oomph_refusals
    except (AttributeError, OSError):
        return 0
    function.restype = ctypes.c_uint64
    return int(function())
