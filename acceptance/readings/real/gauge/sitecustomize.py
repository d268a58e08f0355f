"""Notes what a program held on its card when it ended: put this folder on PYTHONPATH and name a file in GAUGE.

It imports nothing that the program does not import, and so changes none of its sizes. Bytes are those of the process as
NVML counts them, and of PyTorch's and XLA's own pools.
"""

import atexit
import ctypes
import os
import sys


def nvml_process():
    """What NVML says of this process on the first card, and of the whole card; None where it does not say."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                    ("compute_instance", ctypes.c_uint)]

    library = ctypes.CDLL("libnvidia-ml.so.1")
    handle, memory = ctypes.c_void_p(), Memory()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)):
        return None, None
    used = None if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) else memory.used
    count, processes = ctypes.c_uint(256), (Process * 256)()
    if library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), processes):
        return None, used
    for process in processes[: count.value]:
        if process.pid == os.getpid() and process.used < 1 << 62:
            return process.used, used
    return None, used


def read():
    import json

    found = {}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            found["error"] = str(error).split("\n")[0]
        stats = torch.cuda.memory_stats()
        found.update(
            allocated_peak_bytes=torch.cuda.max_memory_allocated(),
            reserved_peak_bytes=torch.cuda.max_memory_reserved(),
            allocated_bytes=torch.cuda.memory_allocated(),
            reserved_bytes=torch.cuda.memory_reserved(),
            retries=stats.get("num_alloc_retries"), ooms=stats.get("num_ooms"),
            segments=stats.get("segment.all.allocated"),
            torch=torch.__version__, cudnn=torch.backends.cudnn.version(),
        )
        found["free_bytes"], found["total_bytes"] = torch.cuda.mem_get_info()
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "local_devices"):
        try:
            device = jax.local_devices()[0]
            found["jax"] = jax.__version__
            found["jax_stats"] = device.memory_stats()
        except Exception as error:
            found["jax_error"] = str(error)
    if not found and "numba" not in sys.modules and "cupy" not in sys.modules:
        return
    found["process_bytes"], found["card_bytes"] = nvml_process()
    with open("%s.%d" % (os.environ["GAUGE"], os.getpid()), "w") as file:
        json.dump(found, file)


if os.environ.get("GAUGE"):
    atexit.register(read)
