"""vLLM in a dry run: settings without which it would wait for results that no kernel computes, and its engine's record.

The engine runs in processes of its own, which vLLM kills when the program ends. So what is known of them is written when
they have taken all their memory, and again when they are told to shut down.
"""

import functools
import os

SETTINGS = (
    ("VLLM_USE_V2_MODEL_RUNNER", "0", "its second model runner waits for counts that only kernels write"),
    ("VLLM_USE_FLASHINFER_SAMPLER", "0", "FlashInfer would first compile its sampler, which needs nvcc"),
)
"""Variables of vLLM's own, the value for a dry run, and why."""


def settle(record):
    """Set what the user has not; vLLM has not been imported."""
    record.frameworks.setdefault("vllm", _version())
    for name, value, why in SETTINGS:
        if name not in os.environ:
            os.environ[name] = value
            record.warn("vLLM ran with %s=%s: %s." % (name, value, why))


def _version():
    from importlib import metadata

    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "unknown"


def watch_worker(module, finish):
    """Have `finish()` called when a worker of the module `vllm.v1.worker.gpu_worker` is ready and when it goes."""
    worker = module.Worker
    ready, shut_down = worker.compile_or_warm_up_model, getattr(worker, "shutdown", None)

    @functools.wraps(ready)
    def compile_or_warm_up_model(self, *args, **kwargs):
        result = ready(self, *args, **kwargs)
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
