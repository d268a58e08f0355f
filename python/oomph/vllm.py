"""Prepares vLLM for a dry run, in which it would wait for results that no kernel computes, and reads its engine's record.

The engine runs in processes of its own, which vLLM kills when the program ends. So what is known of them is written when
they have taken all their memory, and again when they are asked to shut down.
"""

from __future__ import annotations

import functools
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from oomph._types import Library
    from oomph.record import Record

SETTINGS = (
    ("VLLM_USE_V2_MODEL_RUNNER", "0", "its second model runner waits for counts that only kernels write"),
    ("VLLM_USE_FLASHINFER_SAMPLER", "0", "FlashInfer would first compile its sampler, which needs nvcc"),
)
"""Variables of vLLM's own, the value for a dry run, and why."""


SETTLED = "OOMPH_VLLM_SETTINGS"
"""Names those that were set here and not by the user, for vLLM's own processes too."""


def settle() -> None:
    """Set what the user has not; vLLM has not been imported, and may be looked for only (TRL asks whether it is there)."""
    ours = [name for name, _, _ in SETTINGS if name not in os.environ]
    for name, value, _ in SETTINGS:
        if name in ours:
            os.environ[name] = value
    if ours:
        os.environ[SETTLED] = ",".join(ours)


def imported(record: Record) -> None:
    """The program has imported vLLM."""
    record.frameworks.setdefault("vllm", _version())


def ran(record: Record) -> None:
    """An engine of vLLM's works: say what was set for it."""
    imported(record)
    ours = os.environ.get(SETTLED, "").split(",")
    for name, value, why in SETTINGS:
        if name in ours:
            record.warn("vLLM ran with %s=%s: %s." % (name, value, why))


def _version():
    from importlib import metadata

    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "unknown"


_SHORTAGE = re.compile(r"\(([\d.]+) GiB KV cache is needed.*?cache memory \(([\d.]+) GiB\)", re.DOTALL)
"""What is needed for the cache of one request, and what is left for it."""


def watch_cache(
    module: Library, refused: Callable[[Exception, int, int], object], enough: Callable[[int, int], object] | None = None
) -> None:
    """Have `refused(error, needed, available)` called, in bytes, where an engine has too little left for one request.

    vLLM asks no allocator for its cache then: `module`, `vllm.v1.core.kv_cache_utils`, compares the two and raises a
    `ValueError`. Where it does not, `enough(needed, available)` is called.
    """
    for name in ("_check_enough_kv_cache_memory", "check_enough_kv_cache_memory"):
        check = getattr(module, name, None)
        if check is not None:
            setattr(module, name, _telling(check, refused, enough or (lambda needed, available: None)))
            return


def _telling(check, refused, enough):
    @functools.wraps(check)
    def checked(*args, **kwargs):
        try:
            result = check(*args, **kwargs)
        except ValueError as error:
            refused(error, *shortage(str(error)))
            raise
        compared = _compared(args)
        if compared is not None:
            enough(*compared)
        return result

    return checked


def _compared(arguments):
    """What one request's cache needs and what is available, of a check's arguments; None where they are others."""
    try:
        available, needed = arguments[0], arguments[1]()
        return int(needed), int(available)
    except Exception:
        # Another release may hand over something else; what is not known is left open.
        return None


def watch_share(module: Library, known: Callable[[float | None], object]) -> None:
    """Have `known(share)` called before an engine divides up its cache, with the share of the card of which the cache is what
    is left, or None for a cache of a fixed size; `module` is `vllm.v1.core.kv_cache_utils`."""
    divide = getattr(module, "get_kv_cache_configs", None)
    if divide is None:
        return

    @functools.wraps(divide)
    def get_kv_cache_configs(vllm_config, *args, **kwargs):
        cache = getattr(vllm_config, "cache_config", None)
        fixed = [getattr(cache, name, None) for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override")]
        share = getattr(cache, "gpu_memory_utilization", None)
        known(float(share) if isinstance(share, (int, float)) and not any(fixed) else None)
        return divide(vllm_config, *args, **kwargs)

    module.get_kv_cache_configs = get_kv_cache_configs


def shortage(message: str) -> tuple[int, int]:
    """What an engine's error says that is needed and that is left, in bytes; 0 where it does not say."""
    found = _SHORTAGE.search(message)
    if found is None:
        return 0, 0
    needed, available = (int(float(size) * 2**30) for size in found.groups())
    return needed, available


_SHARE = re.compile(r"\(([\d.]+)/[\d.]+ GiB\) on startup is less than.*?\([\d.]+, ([\d.]+) GiB\)", re.DOTALL)
"""What is free when a worker starts, and the share of the card that it is to have."""


def watch_start(module: Library, refused: Callable[[Exception, int, int], object]) -> None:
    """Have `refused(error, wanted, free)` called, in bytes, where a worker's share of the card is not free when it starts.

    vLLM compares the two and raises a `ValueError`. `module` is `vllm.v1.worker.gpu_worker`.
    """
    init = getattr(module.Worker, "init_device", None)
    if init is None:
        return

    @functools.wraps(init)
    def init_device(self, *args, **kwargs):
        try:
            return init(self, *args, **kwargs)
        except ValueError as error:
            found = _SHARE.search(str(error))
            if found is not None:
                free, wanted = (int(float(size) * 2**30) for size in found.groups())
                refused(error, wanted, free)
            raise

    module.Worker.init_device = init_device


def watch_engine(module: Library, died: Callable[[], object], failed: Callable[[Exception], object]) -> None:
    """Have `died()` called while an engine handles the exception that ends it, before the program hears of it, and
    `failed(error)` where it cannot start: the program's own error only points at that one.

    The program ends then, and the engine with it, which may be before the engine's own exception ends it. `module` is
    `vllm.v1.engine.core`.
    """
    engine = getattr(module, "EngineCoreProc", None)
    tell = getattr(engine, "_send_engine_dead", None)
    if engine is None or tell is None:
        return
    init = engine.__init__

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        try:
            init(self, *args, **kwargs)
        except Exception as error:
            # It goes on to whoever made the engine.
            failed(error)
            raise

    @functools.wraps(tell)
    def _send_engine_dead(self, *args, **kwargs):
        died()
        return tell(self, *args, **kwargs)

    engine.__init__ = __init__
    engine._send_engine_dead = _send_engine_dead


def watch_worker(module: Library, ready_to_serve: Callable[[], object], finish: Callable[[], object]) -> None:
    """Have both called when a worker of the module `vllm.v1.worker.gpu_worker` is ready, and `finish()` when it goes."""
    worker = module.Worker
    ready, shut_down = worker.compile_or_warm_up_model, getattr(worker, "shutdown", None)

    @functools.wraps(ready)
    def compile_or_warm_up_model(self, *args, **kwargs):
        result = ready(self, *args, **kwargs)
        ready_to_serve()
        finish()
        return result

    worker.compile_or_warm_up_model = compile_or_warm_up_model
    if shut_down is None:
        return

    @functools.wraps(shut_down)
    def shutdown(self, *args, **kwargs):
        finish()
        return shut_down(self, *args, **kwargs)

    worker.shutdown = shutdown
