"""Programs whose verdict hangs on what becomes of an error, or that wait: `verdicts.py CASE`. The sizes are meant for a card of 6 GiB."""

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import queue
import select
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

GIB = 2**30
SPAWN = multiprocessing.get_context("spawn")


def block(gib):
    return torch.zeros(int(gib * GIB), dtype=torch.uint8, device="cuda")


def net(layers=4, width=1024):
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()


# What a handler, a thread, a worker or a process swallows.


def swallowed_by_a_handler():
    """A server in a thread answers its client with an error, because its second model does not load."""
    models = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            size = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["gib"]
            if size not in models:
                models[size] = block(size)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for size in (1, 16):
        request = urllib.request.Request("http://127.0.0.1:%d/" % server.server_port, json.dumps({"gib": size}).encode())
        print(urllib.request.urlopen(request).read())


def swallowed_by_a_pool_of_threads():
    def work(size):
        try:
            return block(size)
        except Exception as error:
            print("no result:", type(error).__name__)

    with ThreadPoolExecutor(2) as pool:
        print([len(result) for result in pool.map(work, [1, 16])])


def swallowed_by_gather():
    async def work(size):
        return block(size)

    async def main():
        results = await asyncio.gather(work(1), work(16), return_exceptions=True)
        print(sum(len(result) for result in results))

    asyncio.run(main())


def ends_a_thread():
    thread = threading.Thread(target=block, args=(16,))
    thread.start()
    thread.join()


def ends_a_process():
    process = SPAWN.Process(target=block, args=(16,))
    process.start()
    process.join()
    sys.exit("the worker failed" if process.exitcode else 0)


def length(size):
    return len(block(size))


def ends_a_worker_of_a_pool():
    with SPAWN.Pool(1) as pool:
        print(pool.map(length, [1, 16]))


def ends_a_worker_of_an_executor():
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        print(list(pool.map(length, [1, 16])))


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return length([1, 16][index])


def ends_a_worker_of_a_loader():
    loader = torch.utils.data.DataLoader(Samples(), num_workers=1, multiprocessing_context="spawn")
    print(list(loader))


def ends_a_child():
    subprocess.run([sys.executable, __file__, "dies"], check=True)


def dies():
    block(16)


# What the program handles.


def handled_and_another_error():
    try:
        block(16)
    except torch.OutOfMemoryError:
        print("no room for a cache, going on without")
    block(1)
    raise ValueError("the configuration has no field 'name'")


def halved_and_another_error():
    size = 32
    while True:
        try:
            block(size)
            break
        except Exception:
            size /= 2
    raise ValueError("the configuration has no field 'name'")


def halved():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    rows = 1 << 22
    while True:
        try:
            model(torch.randn(rows, 1024, device="cuda")).mean().backward()
            break
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            print("batch of %d rows: %s" % (rows, error))
            rows //= 2
    print("using", rows)
    for step in range(4):
        model(torch.randn(rows, 1024, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step)


def left_out():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for size in (1, 16, 2):
        try:
            block(size)
            logging.info("sample of %d GiB is done", size)
        except Exception:
            logging.exception("sample of %d GiB is left out", size)
    logging.info("done")


# What waits.


def waits_for_a_queue():
    model = net()
    jobs = queue.Queue()
    while True:
        print(model(jobs.get().cuda()).shape)


def waits_for_an_event():
    net()
    threading.Event().wait()


def waits_for_a_condition():
    net()
    condition = threading.Condition()
    with condition:
        condition.wait()


def waits_for_a_thread():
    model = net()
    jobs = queue.Queue()
    thread = threading.Thread(target=lambda: model(jobs.get().cuda()))
    thread.start()
    thread.join()


def waits_for_a_pipe():
    net()
    readable, _ = os.pipe()
    select.select([readable], [], [])


def waits_in_a_poll():
    net()
    while not os.path.exists("/never/there"):
        time.sleep(0.01)


def waits_for_a_child():
    net()
    subprocess.run(["sleep", "1000"])


def waits_for_a_process():
    net()
    multiprocessing.Queue().get()


def waits_for_input():
    net()
    input("what next? ")


def waits_after_a_thread_died():
    done = threading.Event()

    def work():
        block(16)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    done.wait()


def computes_on_the_host():
    net()
    matrix = torch.rand(3000, 3000)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        matrix = matrix @ matrix
        matrix /= matrix.max()


def has_a_child_that_computes():
    net()
    subprocess.run([sys.executable, "-c", "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"])


def sleeps_for_a_while():
    block(1)
    time.sleep(15)
    block(3)


# What limits itself.


def a_part_of_the_card(part=0.25, blocks=6):
    torch.cuda.set_per_process_memory_fraction(part)
    kept = [block(1) for _ in range(blocks)]
    print(len(kept))


def half_of_the_card():
    a_part_of_the_card(0.5, 2)


def four_gib_of_any_card():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 4 * GIB / total))
    kept = [block(1) for _ in range(6)]
    print(len(kept))


def trains_in_a_part():
    torch.cuda.set_per_process_memory_fraction(0.3)
    model = net(16, 2048)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(16384, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    cases = {name: case for name, case in list(globals().items()) if callable(case) and not name.startswith("_")}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(cases))
    cases[parser.parse_args().case]()
