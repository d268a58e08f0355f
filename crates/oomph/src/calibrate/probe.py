"""What a card really takes: `oomph calibrate` runs this on the real card and on its virtual twin, and compares.

Each program is small, ends within a second or two on any card, and is alone: caches and workspaces of the one before are
given back. Sizes are in bytes.
"""

import ctypes
import gc
import json
import sys


class Nvml:
    """What NVML says, without a package for it; None where it does not."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    class Process(ctypes.Structure):
        _fields_ = [
            ("pid", ctypes.c_uint),
            ("used", ctypes.c_ulonglong),
            ("gpu_instance", ctypes.c_uint),
            ("compute_instance", ctypes.c_uint),
        ]

    def __init__(self):
        self.library = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                self.library = library
        except OSError:
            pass

    def driver(self):
        text = ctypes.create_string_buffer(96)
        if self.library is None or self.library.nvmlSystemGetDriverVersion(text, 96) != 0:
            return None
        return text.value.decode()

    def handles(self):
        """Each card's identifier and handle."""
        count = ctypes.c_uint(0)
        if self.library is None or self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return {}
        found = {}
        for index in range(count.value):
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
                continue
            if self.library.nvmlDeviceGetUUID(handle, text, 96) == 0:
                found[text.value.decode()] = handle
        return found

    def used(self, handle):
        memory = self.Memory()
        if self.library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
            return None
        return memory.used

    def process(self, handle):
        """What this process holds as the driver counts; in a container its number is often another one there."""
        import os

        call = getattr(self.library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        count, processes = ctypes.c_uint(256), (self.Process * 256)()
        if call is None or call(handle, ctypes.byref(count), processes) != 0:
            return None
        for process in processes[: count.value]:
            # All bits set say that the driver does not say.
            if process.pid == os.getpid() and process.used < 1 << 62:
                return process.used
        return None


def programs(torch):
    """The programs by name, in their order."""
    nn, functional = torch.nn, torch.nn.functional
    device = "cuda"
    half = torch.bfloat16 if torch.cuda.get_device_capability()[0] >= 8 else torch.float16

    def train(model, batch, loss_of, optimizer, steps=3, dtype=None):
        for _ in range(steps):
            with torch.autocast("cuda", dtype=dtype or half, enabled=dtype is not None):
                loss = loss_of(model(batch))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def start():
        torch.zeros(1, device=device)

    def matmul():
        a = torch.zeros(2048, 1024, device=device)
        a @ a.t()

    def linear():
        layer = nn.Linear(4096, 1024, device=device, dtype=half)
        layer(torch.zeros(512, 4096, device=device, dtype=half))

    def convolution():
        layer = nn.Conv2d(64, 128, 3, padding=1, device=device)
        layer(torch.zeros(8, 64, 56, 56, device=device)).sum().backward()

    def attention():
        q = torch.zeros(2, 16, 1024, 64, device=device, dtype=half, requires_grad=True)
        functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    def perceptron():
        model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 10)).to(device)
        batch = torch.zeros(256, 1024, device=device)
        train(model, batch, lambda out: out.square().mean(), torch.optim.Adam(model.parameters()))

    def convnet():
        layers = []
        for inputs, outputs in ((3, 64), (64, 128), (128, 256)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        model = nn.Sequential(*layers).to(device)
        batch = torch.zeros(16, 3, 224, 224, device=device)
        train(model, batch, lambda out: out.mean(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def transformer():
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device=device)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        batch = torch.zeros(4, 512, 512, device=device)
        optimizer = torch.optim.AdamW(model.parameters())
        train(model, batch, lambda out: out.float().square().mean(), optimizer, dtype=half)

    def lstm():
        model = nn.LSTM(256, 512, num_layers=2, batch_first=True, device=device)
        model(torch.zeros(32, 128, 256, device=device))[0].sum().backward()

    def language():
        table = nn.Embedding(32000, 512, device=device)
        tokens = torch.zeros(4, 512, device=device, dtype=torch.long)
        logits = table(tokens) @ table.weight.t()
        functional.cross_entropy(logits.view(-1, 32000), tokens.view(-1)).backward()

    def solver():
        torch.linalg.cholesky(torch.eye(1024, device=device))

    def transform():
        torch.fft.rfft2(torch.zeros(8, 512, 512, device=device))

    order = [start, matmul, linear, convolution, attention, perceptron, convnet, transformer, lstm, language, solver, transform]
    return [(program.__name__, program) for program in order]


def granularity():
    """The sizes of pages that the driver hands out: the least and the recommended one."""

    class Properties(ctypes.Structure):
        _fields_ = [
            ("type", ctypes.c_int),
            ("handle_types", ctypes.c_int),
            ("location_type", ctypes.c_int),
            ("location_id", ctypes.c_int),
            ("windows", ctypes.c_void_p),
            ("compression", ctypes.c_ubyte),
            ("rdma", ctypes.c_ubyte),
            ("usage", ctypes.c_ushort),
            ("reserved", ctypes.c_ubyte * 4),
        ]

    properties = Properties(type=1, location_type=1)
    sizes = []
    for which in (0, 1):
        size = ctypes.c_size_t()
        driver = ctypes.CDLL("libcuda.so.1")
        status = driver.cuMemGetAllocationGranularity(ctypes.byref(size), ctypes.byref(properties), which)
        sizes.append(size.value if status == 0 else None)
    return sizes


def main(path):
    import torch

    nvml = Nvml()
    handles = nvml.handles()
    before = {uuid: nvml.used(handle) for uuid, handle in handles.items()}
    if not torch.cuda.is_available():
        sys.exit("error: PyTorch %s finds no GPU here" % torch.__version__)
    torch.zeros(1, device="cuda")
    card = torch.cuda.get_device_properties(0)
    uuid = getattr(card, "uuid", None)
    uuid = "GPU-%s" % uuid if uuid is not None else next(iter(handles), None)
    handle = handles.get(uuid)
    count = torch.cuda.device_count()
    readings = []
    for name, program in programs(torch):
        gc.collect()
        torch.cuda.empty_cache()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        failure = None
        try:
            program()
        except Exception as error:
            failure = "%s: %s" % (type(error).__name__, str(error).split("\n")[0])
        gc.collect()
        torch.cuda.synchronize()
        reserved = torch.cuda.memory_reserved()
        process = nvml.process(handle) if handle else None
        used = nvml.used(handle) if handle else None
        card_grew = used - before[uuid] if used is not None and before.get(uuid) is not None else None
        held = process if process is not None else card_grew
        readings.append(
            {
                "program": name,
                "failure": failure,
                "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
                "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
                "workspaces_bytes": torch.cuda.memory_allocated(),
                "process_bytes": process,
                "outside_bytes": None if held is None else held - reserved,
            }
        )
    minimum, recommended = granularity()
    document = {
        "gpu_name": card.name,
        "gpus": count,
        "driver": nvml.driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "capacity_bytes": torch.cuda.mem_get_info()[1],
        "page_bytes": minimum,
        "recommended_page_bytes": recommended,
        "peers": sum(
            torch.cuda.can_device_access_peer(a, b) for a in range(count) for b in range(count) if a != b
        ),
        "readings": readings,
    }
    with open(path, "w") as file:
        json.dump(document, file)


if __name__ == "__main__":
    main(sys.argv[1])
