"""Children that are forked before and after their parent uses CUDA, as calls of the driver see them and as PyTorch does."""

import ctypes
import json
import multiprocessing
import os
import threading

import torch
from torch.utils.data import DataLoader, TensorDataset

MIB = 2**20
THREADS = 3
FORKS = 60


def in_child(ask):
    """What a forked child answers."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = ask()
        except RuntimeError as error:
            answer = str(error)
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = json.loads(answers.read() or "null")
    os.waitpid(pid, 0)
    return answer


def calls():
    """The status of some calls of the driver and of the runtime."""
    driver = ctypes.CDLL("libcuda.so.1")
    number, memory, version = ctypes.c_int(-1), ctypes.c_void_p(), ctypes.c_int(0)
    return {
        "cuInit": driver.cuInit(0),
        "cuDeviceGetCount": driver.cuDeviceGetCount(ctypes.byref(number)),
        "cuMemAlloc": driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(MIB)),
        "cuDriverGetVersion": driver.cuDriverGetVersion(ctypes.byref(version)),
    }


def of_torch():
    return int(torch.ones(5, device="cuda").numel())


def add(number):
    return int(torch.ones(5).sum()) + number


def busy_forks():
    """Fork while threads allocate; the children allocate nothing and end."""
    done = threading.Event()

    def work():
        while not done.is_set():
            for size in range(1, 20):
                torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
            torch.cuda.empty_cache()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        return sum(in_child(lambda: calls()["cuInit"]) == 3 for _ in range(FORKS))
    finally:
        done.set()
        for thread in threads:
            thread.join()


def main():
    answers = {"unused": in_child(of_torch)}
    torch.ones(3, device="cuda")
    answers["used"] = in_child(calls)
    answers["child of a child"] = in_child(lambda: in_child(calls))
    answers["torch"] = in_child(of_torch)
    answers["refused"] = busy_forks()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers["pool"] = pool.map(add, range(3))
    loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=8, num_workers=2)
    answers["loader"] = sum(float(batch.cuda().numel()) for (batch,) in loader)
    answers["parent"] = of_torch()
    print("forks=" + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
