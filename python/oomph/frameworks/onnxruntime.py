"""Watching ONNX Runtime: its version, and the error that a full card or a full arena raises.

Its Python package tells nothing of the arena's peak. What it took of the card is in the card's own books.
"""

from oomph.frameworks.watch import FrameworkWatcher

_TEXTS = (
    "failed to allocate memory for requested buffer",
    "available memory of",
    "cuda failure 2",
    "cudaerrormemoryallocation",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
)


def install(onnxruntime, record, config):
    """Attach to an ONNX Runtime that has just been imported."""
    record.frameworks["onnxruntime"] = str(onnxruntime.__version__)
    watcher = FrameworkWatcher(record, _TEXTS)
    watcher.attach()
    return watcher
