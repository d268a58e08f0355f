"""Watches ONNX Runtime: its version, its arena's limit, the error of a full card or arena, and work left to the CPU.

Its Python package does not report the arena's peak. What it took of the card is in the card's own books.
"""

from __future__ import annotations

import functools
import math

from oomph import _protocol as protocol
from oomph import hook
from oomph.frameworks import described
from oomph.frameworks.watch import DTYPE_BYTES, FrameworkWatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from oomph._protocol import HookConfig, HookLimit
    from oomph._types import Library
    from oomph.record import Record

_TEXTS = (
    "failed to allocate memory for requested buffer",
    "available memory of",
    "cuda failure 2:",
    "cuda failure 2 ",
    "cublas failure 3:",
    "cudaerrormemoryallocation",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
)


_ON_CARDS = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")


class OnnxRuntimeWatcher(FrameworkWatcher):
    """ONNX Runtime in one process."""

    def __init__(self, record: Record) -> None:
        super().__init__(record, _TEXTS)
        self.limits: dict[int, HookLimit] = {}
        """The arenas' limits that the program set, by card."""
        self.doubles = True
        """Whether the last session's arena grows by powers of two, which is the default."""
        self.misspelt: str | None = None
        """A card's provider that a session asked for by a name that is not quite its own."""

    def on_card(self, value: Any) -> Iterator[tuple[int, int]]:
        parts = value if isinstance(value, (list, tuple)) else [value]
        for part in parts:
            if type(part).__name__ == "OrtValue" and part.is_tensor() and part.device_name().lower() == "cuda":
                kind = part.data_type().removeprefix("tensor(").rstrip(")")
                yield id(part), math.prod(part.shape()) * DTYPE_BYTES.get(kind.replace("float16", "half"), 4)

    def watch_sessions(self, session: Any) -> None:
        """See which providers each session was to have, and which it has."""
        create = getattr(session, "_create_inference_session", None)
        if create is None:
            return
        watcher = self

        @functools.wraps(create)
        def _create_inference_session(self, providers, provider_options, *args, **kwargs):
            wanted = hook.guarded(watcher.wanted, providers, provider_options)
            result = create(self, providers, provider_options, *args, **kwargs)
            hook.guarded(watcher.compare, wanted, self)
            return result

        session._create_inference_session = _create_inference_session

    def hear_errors(self, library: Library) -> None:
        """Its errors have one class each for every kind of failure, and a full card is reported by several of them."""
        self.hear(*(kind for kind in vars(library).values() if isinstance(kind, type) and issubclass(kind, Exception)))

    def wanted(self, providers: Sequence[Any] | None, provider_options: Sequence[dict[str, Any]] | None) -> list[str]:
        """The providers of cards that a session asks for; their arenas' limits are kept."""
        names = []
        for place, one in enumerate(providers or ()):
            name, options = one if isinstance(one, tuple) else (one, None)
            if options is None and provider_options:
                options = provider_options[place]
            if name in _ON_CARDS:
                names.append(name)
                self.doubles = (options or {}).get("arena_extend_strategy") != "kSameAsRequested"
                options = options or {}
                limit = int(options.get("gpu_mem_limit") or 0)
                if 0 < limit < 1 << 62:
                    card = int(options.get("device_id") or 0)
                    self.limits[card] = {"bytes": limit, "scales": protocol.LIMIT_FIXED}
            else:
                meant = {known.lower(): known for known in _ON_CARDS}.get(str(name).lower())
                if meant is not None:
                    self.misspelt = "ONNX Runtime knows no %s, and the CPU did the work; it is spelt %s" % (name, meant)
        return names

    def compare(self, wanted: list[str] | None, session: Any) -> None:
        """Say so where a session has none of the providers that it asked for."""
        have = session._sess.get_providers() if session._sess is not None else []
        if wanted and not any(name in have for name in wanted):
            self.record.fallback = (
                "ONNX Runtime could not use %s, and the CPU did the work; its own message says what it lacks. Where the "
                "toolkit comes from wheels, onnxruntime.preload_dlls() before the first session makes it known"
                % " or ".join(wanted)
            )
            self.record.write()
        elif self.misspelt and not any(name in have for name in _ON_CARDS):
            # The first attempt failed, and ONNX Runtime has asked for the CPU in its place.
            self.record.fallback = self.misspelt
            self.record.write()
        self.misspelt = None

    def _facts(self, cause, site, frames):
        oom = super()._facts(cause, site, frames)
        limit = self.limits.get(oom["device"])
        if limit is not None and "available memory of" in oom["message"].lower():
            # The arena's own limit: how much it holds is what the limit leaves no more of.
            oom["allocated_bytes"] = None
            self.record.limits[oom["device"]] = limit
            self.record.warn(
                "The arena's limit (gpu_mem_limit, %.2f GiB) was reached, not the card's: raise it, or have the arena grow "
                "by what is requested (arena_extend_strategy=kSameAsRequested)." % (limit["bytes"] / 2.0**30)
            )
        elif self.doubles and oom["requested_bytes"] and "bfc_arena" in oom["message"]:
            self.record.warn(
                "ONNX Runtime's arena grows by powers of two; with arena_extend_strategy=kSameAsRequested among the "
                "provider's options it takes what is requested."
            )
        return oom


def install(onnxruntime: Library, record: Record, config: HookConfig) -> OnnxRuntimeWatcher:
    """Attach to an ONNX Runtime that has just been imported."""
    record.frameworks["onnxruntime"] = str(onnxruntime.__version__)
    watcher = OnnxRuntimeWatcher(record)
    watcher.attach()
    described.of(record)
    watcher.watch_sessions(onnxruntime.InferenceSession)
    hook.on_import("onnxruntime.capi.onnxruntime_pybind11_state", watcher.hear_errors)
    return watcher
