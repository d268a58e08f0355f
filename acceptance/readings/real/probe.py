#!/usr/bin/env python3
"""Asks the first card what can be asked without a program, and writes the answers as JSON: `probe.py OUT.json`.

Run on a card and on its virtual twin, a difference is a wrong answer of the twin's. `free` is what cuMemGetInfo says.
"""

import ctypes
import functools
import json
import os
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

FOUND = {}
SHAPES = os.environ.get("PROBE_SHAPES", "")
MIB = 2**20


def note(group, name, value):
    FOUND.setdefault(group, {})[name] = value


cuda = ctypes.CDLL("libcuda.so.1")


def free():
    left, total = c_size_t(), c_size_t()
    status = cuda.cuMemGetInfo_v2(byref(left), byref(total))
    return left.value if status == 0 else -status


def context():
    """The first card's primary context, made current."""
    found = c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(byref(found), 0)
    cuda.cuCtxSetCurrent(found)


def device():
    count, version, name, total = c_int(), c_int(), ctypes.create_string_buffer(128), c_size_t()
    note("device", "before init", cuda.cuDeviceGetCount(byref(count)))
    cuda.cuInit(0)
    cuda.cuDriverGetVersion(byref(version))
    cuda.cuDeviceGetName(name, 128, 0)
    cuda.cuDeviceTotalMem_v2(byref(total), 0)
    note("device", "driver", version.value)
    note("device", "name", name.value.decode())
    note("device", "total", total.value)
    for number in range(1, 160):
        value = c_int(-1)
        status = cuda.cuDeviceGetAttribute(byref(value), number, 0)
        note("attributes", str(number), value.value if status == 0 else "status %d" % status)
    note("device", "no context", cuda.cuMemGetInfo_v2(byref(c_size_t()), byref(c_size_t())))
    context()
    note("device", "free", free())
    for limit in range(8):
        value = c_size_t()
        status = cuda.cuCtxGetLimit(byref(value), limit)
        note("limits", str(limit), value.value if status == 0 else "status %d" % status)
    least, greatest = c_int(), c_int()
    cuda.cuCtxGetStreamPriorityRange(byref(least), byref(greatest))
    note("limits", "priorities", [least.value, greatest.value])
    pool = c_void_p()
    note("pool", "status", cuda.cuDeviceGetDefaultMemPool(byref(pool), 0))
    for number in range(1, 9):
        value = c_uint64()
        status = cuda.cuMemPoolGetAttribute(pool, number, byref(value))
        note("pool", str(number), value.value if status == 0 else "status %d" % status)


def pages():
    """What blocks of several sizes take from the card, alone and in rows."""
    context()
    for size in (1, 512, 4096, 65536, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 20 * MIB, 100 * MIB + 1):
        before, pointers, taken = free(), [], []
        for _ in range(40):
            pointer = c_uint64()
            if cuda.cuMemAlloc_v2(byref(pointer), c_size_t(size)) == 0:
                pointers.append(pointer.value)
            taken.append(before - free())
        note("pages", str(size), {"first": taken[0], "second": taken[1], "all": taken[-1],
                                  "aligned": min((p & -p) for p in pointers)})
        for pointer in pointers:
            cuda.cuMemFree_v2(c_uint64(pointer))
        note("pages left", str(size), before - free())
    stream, taken = c_void_p(), []
    before, pointers = free(), []
    for size in (1, MIB, 10 * MIB, 40 * MIB, 100 * MIB, 33 * MIB):
        pointer = c_uint64()
        cuda.cuMemAllocAsync(byref(pointer), c_size_t(size), stream)
        pointers.append(pointer.value)
        taken.append(before - free())
    note("async", "grown", taken)
    for pointer in pointers:
        cuda.cuMemFreeAsync(c_uint64(pointer), stream)
    note("async", "freed, not synchronized", before - free())
    cuda.cuStreamSynchronize(stream)
    note("async", "synchronized", before - free())
    pointers = []
    for size in (600 * MIB, 300 * MIB):
        pointer, before = c_uint64(), free()
        cuda.cuMemHostAlloc(byref(pointer), c_size_t(size), 0)
        pointers.append(pointer.value)
        note("pinned", str(size), before - free())
    before, taken = free(), []
    for _ in range(96):
        cuda.cuStreamCreateWithPriority(byref(c_void_p()), 1, -1)
        taken.append(before - free())
    note("streams", "96 streams", taken)
    events = []
    before = free()
    for _ in range(10000):
        event = c_void_p()
        cuda.cuEventCreate(byref(event), 0)
        events.append(event)
    note("streams", "10000 events", before - free())
    before = free()
    note("streams", "set stack to 64 KiB", cuda.cuCtxSetLimit(0, c_size_t(65536)))
    note("streams", "stack of 64 KiB", before - free())
    note("streams", "set stack back", cuda.cuCtxSetLimit(0, c_size_t(1024)))
    before = free()
    note("streams", "set heap to 512 MiB", cuda.cuCtxSetLimit(2, c_size_t(512 * MIB)))
    note("streams", "heap of 512 MiB", before - free())
    before, pointers = free(), []
    for size in (1024 * MIB, 64 * MIB, 2 * MIB, 65536, 512):
        count, pointer = 0, c_uint64()
        while cuda.cuMemAlloc_v2(byref(pointer), c_size_t(size)) == 0 and count < 200000:
            pointers.append(pointer.value)
            count += 1
        note("full", "after blocks of %d" % size, [count, free()])


def statuses():
    """What wrong calls are answered."""
    context()
    pointer, value, event, second = c_uint64(), c_int(), c_void_p(), c_void_p()
    host = ctypes.create_string_buffer(4096)
    calls = {
        "alloc of a petabyte": lambda: cuda.cuMemAlloc_v2(byref(pointer), c_size_t(1 << 50)),
        "alloc of all": lambda: cuda.cuMemAlloc_v2(byref(pointer), c_size_t(free())),
        "alloc of more than all": lambda: cuda.cuMemAlloc_v2(byref(pointer), c_size_t(free() + 64 * MIB)),
        "alloc of zero": lambda: cuda.cuMemAlloc_v2(byref(pointer), c_size_t(0)),
        "alloc without a place": lambda: cuda.cuMemAlloc_v2(None, c_size_t(16)),
        "async alloc of a petabyte": lambda: cuda.cuMemAllocAsync(byref(pointer), c_size_t(1 << 50), None),
        "async alloc of zero": lambda: cuda.cuMemAllocAsync(byref(pointer), c_size_t(0), None),
        "free of null": lambda: cuda.cuMemFree_v2(c_uint64(0)),
        "free of nonsense": lambda: cuda.cuMemFree_v2(c_uint64(0x1234567)),
        "free of host memory": lambda: cuda.cuMemFree_v2(c_uint64(ctypes.addressof(host))),
        "pointer attribute of host memory": lambda: cuda.cuPointerGetAttribute(byref(value), 2, c_uint64(ctypes.addressof(host))),
        "pointer attribute unknown": lambda: cuda.cuPointerGetAttribute(byref(value), 999, c_uint64(ctypes.addressof(host))),
        "address range of nonsense": lambda: cuda.cuMemGetAddressRange_v2(byref(pointer), byref(c_size_t()), c_uint64(0x1234567)),
        "device attribute unknown": lambda: cuda.cuDeviceGetAttribute(byref(value), 9999, 0),
        "device attribute without a place": lambda: cuda.cuDeviceGetAttribute(None, 1, 0),
        "device 99": lambda: cuda.cuDeviceGet(byref(value), 99),
        "device -1": lambda: cuda.cuDeviceGet(byref(value), -1),
        "name of device 99": lambda: cuda.cuDeviceGetName(host, 10, 99),
        "peer with itself": lambda: cuda.cuDeviceCanAccessPeer(byref(value), 0, 0),
        "limit unknown": lambda: cuda.cuCtxGetLimit(byref(c_size_t()), 99),
        "event create": lambda: cuda.cuEventCreate(byref(event), 0),
        "event create again": lambda: cuda.cuEventCreate(byref(second), 0),
        "elapsed of events never recorded": lambda: cuda.cuEventElapsedTime_v2(byref(c_float()), event, second),
        "query of an event never recorded": lambda: cuda.cuEventQuery(event),
        "end a capture never begun": lambda: cuda.cuStreamEndCapture(None, byref(c_void_p())),
        "begin a capture on the null stream": lambda: cuda.cuStreamBeginCapture_v2(None, 0),
        "module of nothing": lambda: cuda.cuModuleLoadData(byref(c_void_p()), None),
        "module of text": lambda: cuda.cuModuleLoadData(byref(c_void_p()), c_char_p(b"this is no module")),
        "module of broken PTX": lambda: cuda.cuModuleLoadData(byref(c_void_p()), c_char_p(b".version 7.0\n.target sm_80\nfoo")),
        "module of a file that is not there": lambda: cuda.cuModuleLoad(byref(c_void_p()), c_char_p(b"/nowhere")),
        "register null": lambda: cuda.cuMemHostRegister_v2(None, c_size_t(4096), 0),
        "unregister what is not": lambda: cuda.cuMemHostUnregister(host),
        "free host that is not": lambda: cuda.cuMemFreeHost(host),
        "set device memory at null": lambda: cuda.cuMemsetD8_v2(c_uint64(0), c_uint(0), c_size_t(16)),
        "copy from null": lambda: cuda.cuMemcpyDtoH_v2(host, c_uint64(0), c_size_t(16)),
        "copy of nothing": lambda: cuda.cuMemcpyDtoH_v2(host, c_uint64(0), c_size_t(0)),
        "proc address unknown": lambda: cuda.cuGetProcAddress_v2(c_char_p(b"cuNothing"), byref(c_void_p()), 12000, c_uint64(0), byref(value)),
        "reserve an address of 1 byte": lambda: cuda.cuMemAddressReserve(byref(pointer), c_size_t(1), c_size_t(0), c_uint64(0), c_uint64(0)),
        "pop context": lambda: cuda.cuCtxPopCurrent_v2(byref(c_void_p())),
        "synchronize without a context": lambda: cuda.cuCtxSynchronize(),
        "alloc without a context": lambda: cuda.cuMemAlloc_v2(byref(pointer), c_size_t(16)),
    }
    for name, call in calls.items():
        note("statuses", name, call())
    context()
    for status in list(range(20)) + [34, 35, 36, 46, 100, 101, 200, 201, 209, 218, 220, 222, 223, 500, 600, 700, 701, 702, 715, 719, 801, 802,
                   803, 900, 904, 906, 999, 12345]:
        name, text = c_char_p(), c_char_p()
        said = cuda.cuGetErrorName(status, byref(name)), cuda.cuGetErrorString(status, byref(text))
        note("errors", str(status), [said, (name.value or b"").decode(), (text.value or b"").decode()])


def nvml():
    library = ctypes.CDLL("libnvidia-ml.so.1")
    handle = c_void_p()
    note("nvml", "init", library.nvmlInit_v2())
    note("nvml", "handle", library.nvmlDeviceGetHandleByIndex_v2(0, byref(handle)))
    note("nvml", "handle 99", library.nvmlDeviceGetHandleByIndex_v2(99, byref(c_void_p())))
    for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetBoardPartNumber"):
        text = ctypes.create_string_buffer(128)
        status = getattr(library, name)(handle, text, 128)
        shown = text.value.decode() if name == "nvmlDeviceGetName" else len(text.value)
        note("nvml", name, shown if status == 0 else "status %d" % status)

    class Memory(ctypes.Structure):
        _fields_ = [("version", c_uint), ("total", c_uint64), ("reserved", c_uint64), ("free", c_uint64), ("used", c_uint64)]

    memory = Memory(version=ctypes.sizeof(Memory) | (2 << 24))
    note("nvml", "memory v2", library.nvmlDeviceGetMemoryInfo_v2(handle, byref(memory)))
    note("nvml", "total", memory.total)
    note("nvml", "reserved", memory.reserved)

    class Bar(ctypes.Structure):
        _fields_ = [("total", c_uint64), ("free", c_uint64), ("used", c_uint64)]

    bar = Bar()
    note("nvml", "bar1 status", library.nvmlDeviceGetBAR1MemoryInfo(handle, byref(bar)))
    note("nvml", "bar1 total", bar.total)
    for name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"):
        value = c_uint()
        status = getattr(library, name)(handle, 0, byref(value))
        note("nvml", name, ("value" if "Max" not in name else value.value) if status == 0 else "status %d" % status)
    for name in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetFanSpeed",
                 "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlDeviceGetDisplayMode", "nvmlDeviceGetDisplayActive",
                 "nvmlDeviceGetBrand", "nvmlDeviceGetArchitecture", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMemoryBusWidth",
                 "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetIndex",
                 "nvmlDeviceGetPerformanceState", "nvmlDeviceGetMultiGpuBoard"):
        value = c_uint()
        status = getattr(library, name)(handle, byref(value))
        note("nvml", name, "status %d" % status if status else "value" if "Usage" in name else value.value)
    two, three = c_int(), c_int()
    note("nvml", "ecc", [library.nvmlDeviceGetEccMode(handle, byref(two), byref(three)), two.value, three.value])
    note("nvml", "capability", [library.nvmlDeviceGetCudaComputeCapability(handle, byref(two), byref(three)), two.value, three.value])
    note("nvml", "mig", [library.nvmlDeviceGetMigMode(handle, byref(two), byref(three)), two.value, three.value])
    note("nvml", "utilization", library.nvmlDeviceGetUtilizationRates(handle, byref((c_uint * 2)())))
    count = c_uint(0)
    note("nvml", "processes, no room", library.nvmlDeviceGetComputeRunningProcesses_v3(handle, byref(count), None))
    count = c_uint(0)
    note("nvml", "graphics", [library.nvmlDeviceGetGraphicsRunningProcesses_v3(handle, byref(count), None), count.value])
    for status in range(32):
        library.nvmlErrorString.restype = c_char_p
        note("nvml errors", str(status), library.nvmlErrorString(status).decode())


def libraries():
    """What the libraries take for a handle, and how much that is for each operation of PyTorch's that loads code."""
    import torch

    context()
    first = free()
    torch.zeros(1, device="cuda")
    note("torch", "first tensor", first - free() - torch.cuda.memory_reserved())
    first = free()
    handle = c_void_p()
    for soname, create, extra in (
        ("libcublas.so.13", "cublasCreate_v2", ()), ("libcublasLt.so.13", "cublasLtCreate", ()), ("libcudnn.so.9", "cudnnCreate", ()),
        ("libcusolver.so.12", "cusolverDnCreate", ()), ("libcusparse.so.12", "cusparseCreate", ()),
        ("libcusolver.so.12", "cusolverSpCreate", ()),
    ):
        try:
            library = ctypes.CDLL(soname)
        except OSError as error:
            note("handles", create, str(error))
            continue
        for turn in ("first", "second"):
            before = free()
            status = getattr(library, create)(byref(handle), *extra)
            note("handles", create + ", " + turn, [status, before - free()])
    curand = ctypes.CDLL("libcurand.so.10")
    for kind in (100, 101, 121, 141, 142, 161):
        before = free()
        status = curand.curandCreateGenerator(byref(handle), kind)
        note("handles", "curand %d" % kind, [status, before - free()])
    cufft = ctypes.CDLL("libcufft.so.12")
    for size in (128, 1000, 1009, 4096, 1 << 20):
        plan, before = c_int(), free()
        status = cufft.cufftPlan1d(byref(plan), size, 0x29, 64)
        taken, asked = before - free(), c_size_t()
        cufft.cufftGetSize(plan, byref(asked))
        note("handles", "cufft %d x 64" % size, [status, taken, asked.value])


def transforms():
    """The workspaces that cuFFT asks for."""
    import torch

    torch.zeros(1, device="cuda")
    cufft = ctypes.CDLL("libcufft.so.12")
    shapes = [[n] for n in (2, 16, 64, 100, 127, 128, 256, 384, 500, 512, 768, 1000, 1009, 1024, 1536, 2048, 3000, 4096, 6000, 8192, 10007,
                            12288, 16384, 32768, 44100, 65536, 100000, 131072, 262144, 524288, 1 << 20, 1 << 22)]
    shapes += [[n, n] for n in (16, 64, 100, 101, 128, 224, 256, 512, 640, 1000, 1009, 1024, 2048, 4096)] + [[64, 96], [480, 640]]
    shapes += [[n, n, n] for n in (16, 32, 50, 64, 100, 128, 256)]
    for shape in shapes:
        for kind in (0x29, 0x2A, 0x2C, 0x69, 0x6A):
            for batch in (1, 8, 64):
                volume = batch * 16
                for n in shape:
                    volume *= n
                if volume > 4 << 30:
                    continue
                plan, asked, before = c_int(), c_size_t(), free()
                cufft.cufftCreate(byref(plan))
                cufft.cufftSetAutoAllocation(plan, 0)
                sizes = (c_int * len(shape))(*shape)
                status = cufft.cufftMakePlanMany(plan, len(shape), sizes, None, 1, 0, None, 1, 0, kind, batch, byref(asked))
                note("cufft", "%s %x %d" % ("x".join(map(str, shape)), kind, batch), [status, asked.value, before - free()])
                cufft.cufftDestroy(plan)


def ladder():
    """What is taken outside PyTorch's pool after each operation: its code, which is loaded when it is first used."""
    import torch

    functional = torch.nn.functional
    x = torch.randn(64, 1024, device="cuda", requires_grad=True)
    half = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    image = torch.randn(4, 64, 32, 32, device="cuda", requires_grad=True)
    q = torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    full = torch.randn(2, 8, 256, 64, device="cuda", requires_grad=True)
    index = torch.randint(0, 1000, (64,), device="cuda")
    layer = torch.nn.TransformerEncoderLayer(512, 8, 1024, batch_first=True, device="cuda")
    lstm = torch.nn.LSTM(256, 256, device="cuda")
    parameters = [torch.nn.Parameter(torch.randn(512, 512, device="cuda")) for _ in range(4)]

    def step(make):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        make(parameters).step()

    steps = {
        "add": lambda: x + 1,
        "relu": lambda: functional.relu(x),
        "gelu": lambda: functional.gelu(x),
        "softmax": lambda: x.softmax(-1),
        "layer norm": lambda: functional.layer_norm(x, (1024,)),
        "layer norm backward": lambda: functional.layer_norm(x, (1024,)).sum().backward(),
        "dropout": lambda: functional.dropout(x),
        "sum": lambda: x.sum(),
        "mean": lambda: x.mean(),
        "std": lambda: x.std(),
        "argmax": lambda: x.argmax(-1),
        "sort": lambda: x.sort(),
        "topk": lambda: x.topk(5),
        "cumsum": lambda: x.cumsum(-1),
        "index": lambda: x[index % 64],
        "index backward": lambda: x[index % 64].sum().backward(),
        "embedding": lambda: functional.embedding(index, torch.randn(1000, 64, device="cuda", requires_grad=True)).sum().backward(),
        "where": lambda: torch.where(x > 0, x, 0),
        "nonzero": lambda: x.nonzero(),
        "unique": lambda: index.unique(),
        "cross entropy": lambda: functional.cross_entropy(x, index).backward(),
        "to bf16": lambda: x.to(torch.bfloat16),
        "matmul fp32": lambda: x @ x.t(),
        "matmul fp32 large": lambda: torch.randn(4096, 4096, device="cuda") @ torch.randn(4096, 4096, device="cuda"),
        "matmul bf16": lambda: half @ half.t(),
        "matmul bf16 large": lambda: torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        @ torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16),
        "matmul fp16": lambda: half.half() @ half.half().t(),
        "matmul fp64": lambda: x.double() @ x.double().t(),
        "bmm": lambda: torch.bmm(full.flatten(0, 1), full.flatten(0, 1).transpose(1, 2)),
        "linear with bias": lambda: functional.linear(half, half, torch.randn(64, device="cuda", dtype=torch.bfloat16)).sum().backward(),
        "attention bf16": lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward(),
        "attention fp32": lambda: functional.scaled_dot_product_attention(full, full, full).sum().backward(),
        "convolution": lambda: functional.conv2d(image, torch.randn(128, 64, 3, 3, device="cuda"), padding=1),
        "convolution backward": lambda: functional.conv2d(image, torch.randn(128, 64, 3, 3, device="cuda", requires_grad=True), padding=1)
        .sum().backward(),
        "convolution bf16": lambda: functional.conv2d(image.bfloat16(), torch.randn(128, 64, 3, 3, device="cuda", dtype=torch.bfloat16)),
        "batch norm": lambda: functional.batch_norm(image, None, None, training=True).sum().backward(),
        "group norm": lambda: functional.group_norm(image, 8).sum().backward(),
        "interpolate": lambda: functional.interpolate(image, scale_factor=2),
        "max pool": lambda: functional.max_pool2d(image, 2).sum().backward(),
        "encoder layer": lambda: layer(torch.randn(4, 64, 512, device="cuda")).sum().backward(),
        "lstm": lambda: lstm(torch.randn(16, 8, 256, device="cuda"))[0].sum().backward(),
        "adam": lambda: step(lambda p: torch.optim.Adam(p)),
        "adamw fused": lambda: step(lambda p: torch.optim.AdamW(p, fused=True)),
        "sgd": lambda: step(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        "clip": lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0),
        "fft": lambda: torch.fft.rfft2(image),
        "cholesky": lambda: torch.linalg.cholesky(torch.eye(256, device="cuda")),
        "svd": lambda: torch.linalg.svd(torch.randn(64, 64, device="cuda")),
        "eigh": lambda: torch.linalg.eigh(torch.eye(64, device="cuda")),
        "inverse": lambda: torch.linalg.inv(torch.eye(64, device="cuda")),
        "multinomial": lambda: torch.multinomial(torch.rand(4, 1000, device="cuda"), 5),
        "sparse": lambda: torch.eye(64, device="cuda").to_sparse() @ torch.eye(64, device="cuda"),
        "scatter": lambda: torch.zeros(64, 1024, device="cuda").scatter_add_(1, (x.abs() * 10).long() % 1024, x),
        "stream": lambda: torch.cuda.Stream(),
        "graph": lambda: graph(torch),
    }
    for name, run in steps.items():
        try:
            run()
            torch.cuda.synchronize()
        except RuntimeError as error:
            note("ladder failed", name, str(error).split("\n")[0])
        left, total = torch.cuda.mem_get_info()
        note("ladder", name, [total - left - torch.cuda.memory_reserved(), torch.cuda.memory_reserved()])


def taken(run):
    """What an operation takes of PyTorch's pool at most, and what stays: its result, and what is cached by a library."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        result = run()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return "failed: " + str(error).split("\n")[0][:200]
    return [torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before, result is None]


def convolutions():
    """cuDNN's workspaces of convolutions, forwards and backwards; PROBE_SHAPES names a file of their shapes."""
    import torch

    def make(described):
        shape, dtype, layout = described
        tensor = torch.zeros(shape, device="cuda", dtype=getattr(torch, dtype))
        return tensor.to(memory_format=torch.channels_last) if layout == "cl" else tensor

    torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")
    aten = torch.ops.aten
    for key in json.load(open(SHAPES)):
        kind, name = key[0], json.dumps(key)
        if kind == "conv":
            x, w = make(key[1]), make(key[2])
            bias = torch.zeros(w.shape[1 if key[7] else 0], device="cuda", dtype=w.dtype) if key[3] else None
            note("peaks", name, taken(functools.partial(aten.convolution, x, w, bias, *key[4:])))
        elif kind == "convb":
            g, x, w = make(key[1]), make(key[2]), make(key[3])
            note("peaks", name, taken(functools.partial(aten.convolution_backward, g, x, w, *key[4:])))


def attend(shape, dtype, causal, dropout, grad):
    """What one attention takes forwards and backwards, and the kernel that PyTorch chose."""
    import torch

    q, k, v = (torch.zeros(shape, device="cuda", dtype=dtype, requires_grad=grad) for _ in range(3))
    results = []

    def forward():
        results.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout))

    def backward():
        results[0].backward(results[0])

    found = taken(forward)
    back = taken(backward) if grad and results else None
    return [found, back, type(results[0].grad_fn).__name__ if results else None]


def attention():
    """Workspaces of attention by PyTorch's own choice of a kernel."""
    import itertools

    import torch

    shapes = ((2, 32, 2048, 128), (8, 12, 512, 64), (4, 8, 512, 64), (2, 8, 4096, 40), (1, 24, 4608, 128), (1, 1, 4096, 512),
              (3, 5, 333, 96))
    types = (torch.float16, torch.bfloat16, torch.float32)
    for shape, dtype, causal, dropout, grad in itertools.product(shapes, types, (False, True), (0.0, 0.1), (False, True)):
        if causal and dropout:
            continue
        name = "%s %s causal=%d dropout=%s grad=%d" % (list(shape), str(dtype)[6:], causal, dropout, grad)
        note("attention", name, attend(shape, dtype, causal, dropout, grad))


def algebra():
    """Workspaces of cuSOLVER, cuBLAS and cuSPARSE."""
    import torch

    for size in (16, 64, 256, 1024, 2048):
        square = torch.eye(size, device="cuda") * 2
        batch = square.expand(8, size, size).contiguous()
        tall = torch.zeros(2 * size, size, device="cuda")
        for name, run in {
            "cholesky": lambda: torch.linalg.cholesky(square), "lu": lambda: torch.linalg.lu_factor(square),
            "qr": lambda: torch.linalg.qr(tall), "eigh": lambda: torch.linalg.eigh(square), "svd": lambda: torch.linalg.svd(square),
            "svdvals": lambda: torch.linalg.svdvals(tall), "inv": lambda: torch.linalg.inv(square),
            "solve": lambda: torch.linalg.solve(square, square), "det": lambda: torch.linalg.det(square),
            "lstsq": lambda: torch.linalg.lstsq(tall, tall), "batched cholesky": lambda: torch.linalg.cholesky(batch),
            "batched inv": lambda: torch.linalg.inv(batch), "batched solve": lambda: torch.linalg.solve(batch, batch),
            "batched eigh": lambda: torch.linalg.eigh(batch), "batched svd": lambda: torch.linalg.svd(batch),
            "batched qr": lambda: torch.linalg.qr(batch), "double cholesky": lambda: torch.linalg.cholesky(square.double()),
            "double eigh": lambda: torch.linalg.eigh(square.double()), "double inv": lambda: torch.linalg.inv(square.double()),
            "pinv": lambda: torch.linalg.pinv(tall), "matrix_exp": lambda: torch.matrix_exp(square),
            "cholesky_solve": lambda: torch.cholesky_solve(square, square), "triangular": lambda: torch.linalg.solve_triangular(square, square, upper=True),
            "csr mm": lambda: square.to_sparse_csr() @ square, "coo mm": lambda: square.to_sparse() @ square,
            "csr csr": lambda: square.to_sparse_csr() @ square.to_sparse_csr(),
        }.items():
            note("linear algebra", "%s %d" % (name, size), taken(run))


def sorting():
    """What kernels that sort, search, select and reduce take besides their results."""
    import torch

    for count in (1000, 50000, 1 << 20, 1 << 22):
        x = torch.arange(count, device="cuda", dtype=torch.float32).flip(0)
        i = torch.arange(count, device="cuda").flip(0)
        table = torch.zeros(50000, 64, device="cuda", requires_grad=True)
        for name, run in {
            "sort": lambda: x.sort(), "argsort": lambda: i.argsort(), "sort stable": lambda: x.sort(stable=True), "topk": lambda: x.topk(100),
            "cumsum": lambda: x.cumsum(0), "nonzero": lambda: x.nonzero(), "unique": lambda: i.unique(), "mask": lambda: x[x > 5],
            "sum": lambda: x.sum(), "max": lambda: x.max(), "randperm": lambda: torch.randperm(count, device="cuda"),
            "bincount": lambda: (i % 100).bincount(), "histc": lambda: x.histc(100), "multinomial": lambda: x[:10000].multinomial(10),
            "median": lambda: x.median(), "kthvalue": lambda: x.kthvalue(5), "logsumexp": lambda: x.logsumexp(0), "norm": lambda: x.norm(),
            "embedding backward": lambda: torch.nn.functional.embedding(i[: 1 << 18] % 50000, table).sum().backward(),
            "index_put": lambda: x.index_put((i % count,), x, accumulate=True), "scatter_reduce": lambda: x.scatter_reduce(0, i, x, "amax"),
            "std": lambda: x.std(), "isin": lambda: torch.isin(i, i[:100]), "searchsorted": lambda: torch.searchsorted(x, x),
            "sort rows": lambda: x[: count // 100 * 100].view(100, -1).sort(-1), "cdist": lambda: torch.cdist(x[:2000].view(-1, 2), x[:2000].view(-1, 2)),
        }.items():
            note("sorting", "%s %d" % (name, count), taken(run))


def cudnn():
    """How cuDNN describes the card to itself, and what it answers for a convolution and an attention, by its own log."""
    import torch

    torch.zeros(1, device="cuda")
    library = ctypes.CDLL("libcudnn.so.9")
    descriptor, ordinal, count = c_void_p(), c_int(0), ctypes.c_int64()
    note("cudnn", "create", library.cudnnBackendCreateDescriptor(38, byref(descriptor)))
    note("cudnn", "set", library.cudnnBackendSetAttribute(descriptor, 2700, 23, ctypes.c_int64(1), byref(ordinal)))
    note("cudnn", "finalize", library.cudnnBackendFinalize(descriptor))
    text = ctypes.create_string_buffer(65536)
    note("cudnn", "get", library.cudnnBackendGetAttribute(descriptor, 2702, 26, ctypes.c_int64(65536), byref(count), text))
    note("cudnn", "json", text.value.decode(errors="replace"))


def ranks():
    """What a communicator of NCCL takes."""
    import os

    import torch

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    x = torch.zeros(1 << 20, device="cuda")
    before = free()
    torch.distributed.init_process_group("nccl")
    note("nccl", "init", before - free())
    torch.distributed.all_reduce(x)
    torch.cuda.synchronize()
    note("nccl", "all_reduce", before - free())
    torch.distributed.all_gather_into_tensor(torch.empty(1 << 20, device="cuda"), x)
    torch.cuda.synchronize()
    note("nccl", "all_gather", before - free())


def graph(torch):
    static = torch.zeros(1024, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        static + 1
    captured.replay()
    return captured


def properties():
    import torch

    found = torch.cuda.get_device_properties(0)
    for name in dir(found):
        if not name.startswith("_") and name != "uuid":
            value = getattr(found, name)
            note("properties", name, value if isinstance(value, (int, float, str, bool)) else str(value))
    note("properties", "flash", torch.backends.cuda.is_flash_attention_available())
    note("properties", "archs", torch.cuda.get_arch_list())


def main():
    # Each group in turn; what one group leaves is part of the next one's start on both cards alike.
    for group in (device, pages, statuses, nvml, libraries, transforms, ladder, convolutions, attention, algebra, sorting, cudnn, ranks,
                  properties):
        if group.__name__ in sys.argv[2:] or len(sys.argv) == 2:
            print(group.__name__, flush=True)
            try:
                group()
            except Exception as error:  # A group that fails is noted, so that the others are still read.
                note("failed", group.__name__, "%s: %s" % (type(error).__name__, error))
    with open(sys.argv[1], "w") as file:
        json.dump(FOUND, file, indent=1)


main()
