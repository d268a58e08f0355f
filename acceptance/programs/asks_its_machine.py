"""A program that asks its machine with nvidia-smi and NVML, as programs choose a card or a batch size."""

import ctypes
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import torch

MIB = 2**20


def smi(*words, **options):
    """What nvidia-smi prints."""
    return subprocess.run(["nvidia-smi", *words], stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def nvml_free():
    """The free bytes of the first card, by NVML."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit_v2() == 0
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert library.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    return memory[1]


free = int(smi("--query-gpu=memory.free", "--format=csv,noheader,nounits").split()[0])
batch = free // 2 // 64
data = torch.empty(batch, 64 * MIB, dtype=torch.uint8, device="cuda")

rows = smi("--query-gpu=index,memory.total,memory.used,memory.free", "--format=csv,noheader,nounits").splitlines()
total, used, left = (int(value) for value in rows[0].split(", ")[1:])
apps = smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits").split(", ")
root = ElementTree.fromstring(smi("-q", "-x"))
table = os.popen("nvidia-smi").read()
wrong = subprocess.run("nvidia-smi --query-gpu=cuda_version --format=csv", shell=True, stdout=subprocess.PIPE, text=True)
print(json.dumps({
    "batch": batch,
    "free": free,
    "adds_up": total - used - left,
    "taken": used - data.numel() // MIB,
    "nvml_agrees": abs(nvml_free() // MIB - left) <= 1,
    "cuda_agrees": abs(torch.cuda.mem_get_info()[0] // MIB - left) <= 1,
    "own_pid": int(apps[0]) == os.getpid() and int(apps[1]) == used,
    "xml": [gpu.find("fb_memory_usage/used").text == "%d MiB" % used for gpu in root.iter("gpu")],
    "xml_pids": [int(pid.text) == os.getpid() for pid in root.iter("pid")],
    "table": "%dMiB / %6dMiB" % (used, total) in table,
    "cards": smi("-L").count("UUID: GPU-"),
    "which": shutil.which("nvidia-smi") is not None,
    "without_an_environment": smi("-L", env={}).count("GPU "),
    "usual_place": os.path.isfile("/usr/bin/nvidia-smi"),
    "wrong_field": [wrong.returncode, wrong.stdout.strip()],
}))
