"""Drives PyTorch's allocator at random and records every decision: python driver.py SEED OPERATIONS FEATURES OUTPUT

FEATURES are words joined by '+': streams, graphs, pressure, flushes, fraction=0.5. What is recorded are JSON lines: a
header, then for each operation what was done, the events and the counters that followed, and now and then the whole
state. `recording.rs` compares them with the model. OUTPUT is a file, or - for standard output; a fifth argument names a
file for PyTorch's own snapshot at the end.
"""

import json
import os
import pickle
import random
import sys

import torch

MIB = 1 << 20

SEED, OPERATIONS = int(sys.argv[1]), int(sys.argv[2])
FEATURES = dict(word.partition("=")[::2] for word in sys.argv[3].split("+"))
RANDOM = random.Random(SEED)
# With expandable segments PyTorch miscounts the memory of a private pool, and forgets the pool of a dropped graph while
# blocks of it are alive. What it does afterwards is undefined.
EXPANDABLE = "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
COUNTERS = {
    "allocated": "allocated_bytes.all",
    "active": "active_bytes.all",
    "requested": "requested_bytes.all",
    "reserved": "reserved_bytes.all",
    "segments": "segment.all",
}


def random_size():
    kind = RANDOM.random()
    if kind < 0.35:
        size = RANDOM.randint(1, 8 * 1024)
    elif kind < 0.55:
        size = RANDOM.randint(8 * 1024, MIB + 4096)
    elif kind < 0.8:
        size = RANDOM.randint(MIB, 11 * MIB)
    elif kind < 0.97:
        size = RANDOM.randint(10 * MIB, 90 * MIB)
    else:
        size = RANDOM.randint(90 * MIB, 700 * MIB)
    # Programs repeat sizes, which is when equal blocks compete.
    if RANDOM.random() < 0.5:
        step = RANDOM.choice([512, 4096, MIB // 2, 2 * MIB])
        size = max(1, size // step * step)
    return size


class Driver:
    def __init__(self, output):
        self.output = output
        self.live = {}
        self.next_name = 0
        self.seen = 0
        self.graphs = []
        self.capture = None
        self.streams = [torch.cuda.current_stream()]
        if "streams" in FEATURES or "graphs" in FEATURES:
            self.streams += [torch.cuda.Stream(), torch.cuda.Stream()]

    def write(self, record):
        self.output.write(json.dumps(record, separators=(",", ":")) + "\n")

    def header(self, conf):
        free, _ = torch.cuda.mem_get_info()
        self.write(
            {
                "torch": torch.__version__.split("+")[0],
                "conf": conf,
                "seed": SEED,
                "features": sys.argv[3],
                "total": torch.cuda.get_device_properties(0).total_memory,
                "available": free,
                "fraction": float(FEATURES.get("fraction", 1.0)),
            }
        )

    def record(self, operation, **details):
        snapshot = torch.cuda.memory._snapshot()
        events = snapshot["device_traces"][0]
        new = [event for event in events[self.seen :] if event["action"] != "snapshot"]
        self.seen = len(events)
        stats = torch.cuda.memory_stats()
        record = {"do": operation, **details}
        record["events"] = [
            [event["action"], event.get("addr", event.get("device_free", 0)), event["size"], event["stream"]]
            + ([list(event["pool_id"])] if "pool_id" in event else [])
            for event in new
        ]
        record["stats"] = [stats[key + "." + what] for key in COUNTERS.values() for what in ("current", "peak")]
        record["stats"] += [stats["num_alloc_retries"], stats["num_ooms"]]
        if RANDOM.random() < 0.05 or operation == "end":
            record["state"] = [
                [segment["address"], segment["total_size"], segment["stream"], segment["segment_type"] == "large"]
                + [[[block["address"], block["size"], block["state"]] for block in segment["blocks"]]]
                for segment in snapshot["segments"]
            ]
        self.write(record)

    def allocate(self):
        stream = self.capture[1] if self.capture else RANDOM.choice(self.streams)
        size = random_size()
        if self.capture:
            size = min(size, 60 * MIB)
        name, failed = self.next_name, False
        self.next_name += 1
        try:
            with torch.cuda.stream(stream):
                self.live[name] = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            failed = True
        self.record("allocate", size=size, failed=failed)

    def free(self):
        if self.live:
            del self.live[RANDOM.choice(sorted(self.live))]
            self.record("free")

    def use_elsewhere(self):
        if self.live and len(self.streams) > 1:
            tensor = self.live[RANDOM.choice(sorted(self.live))]
            stream = self.capture[1] if self.capture else RANDOM.choice(self.streams)
            tensor.record_stream(stream)
            self.record("record_stream", address=tensor.data_ptr(), stream=stream.cuda_stream)

    def begin_capture(self):
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        stream = self.streams[1]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool)
        self.capture = (graph, stream, pool)
        self.record("begin_capture", pool=list(pool))

    def end_capture(self):
        graph, stream, pool = self.capture
        with torch.cuda.stream(stream):
            graph.capture_end()
        self.graphs.append((graph, pool))
        self.capture = None
        self.record("end_capture", pool=list(pool))

    def drop_graph(self):
        graph, pool = self.graphs.pop(RANDOM.randrange(len(self.graphs)))
        graph.reset()
        del graph
        self.record("drop_graph", pool=list(pool))

    def step(self):
        pressure = 0.62 if "pressure" in FEATURES else 0.55
        choice = RANDOM.random()
        if self.capture:
            if choice < 0.12:
                self.end_capture()
                return
        elif "graphs" in FEATURES and choice < 0.04:
            self.begin_capture()
            return
        elif self.graphs and choice < 0.06 and not EXPANDABLE:
            self.drop_graph()
            return
        if not self.capture and choice > (0.97 if "flushes" in FEATURES else 0.995):
            torch.cuda.empty_cache()
            self.record("empty_cache")
        elif "streams" in FEATURES and RANDOM.random() < 0.08:
            self.use_elsewhere()
        elif RANDOM.random() < pressure and len(self.live) < 400:
            self.allocate()
        else:
            self.free()


def main():
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    torch.cuda.init()
    if "fraction" in FEATURES:
        torch.cuda.set_per_process_memory_fraction(float(FEATURES["fraction"]))
    torch.cuda.memory._record_memory_history(context=None)
    with sys.stdout if sys.argv[4] == "-" else open(sys.argv[4], "w") as output:
        driver = Driver(output)
        driver.header(conf)
        driver.record("begin")
        for _ in range(OPERATIONS):
            driver.step()
        if driver.capture:
            driver.end_capture()
        driver.record("end")
        if len(sys.argv) > 5:
            with open(sys.argv[5], "wb") as file:
                pickle.dump(torch.cuda.memory._snapshot(), file)


main()
