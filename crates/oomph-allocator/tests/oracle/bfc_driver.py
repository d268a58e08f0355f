"""Drives TensorFlow's allocator at random and records every decision: python bfc_driver.py SEED OPERATIONS FEATURES

FEATURES are words joined by '+': growth (the pool grows; else it is taken at once), limit=MIB (what it may take),
pressure (it is filled until it refuses), tides (now and then all is let go, and something large is asked for), others
(somebody else takes memory of the card in between). What is recorded are
JSON lines on standard output: a header, then for each operation what was done, the address, and the regions that were
taken from and given back to the card. `bfc_recording.rs` compares them with the model.

TensorFlow reports its decisions only in its own log, so this program reads its standard error.
"""

import ctypes
import json
import os
import random
import re
import sys
import tempfile

SEED, OPERATIONS = int(sys.argv[1]), int(sys.argv[2])
FEATURES = dict(word.partition("=")[::2] for word in sys.argv[3].split("+"))
os.environ["TF_CPP_VMODULE"] = "bfc_allocator=4"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true" if "growth" in FEATURES else "false"
LOG = tempfile.TemporaryFile()
STDERR = os.dup(2)
os.dup2(LOG.fileno(), 2)

import tensorflow as tf  # noqa: E402  (its log is redirected first)
from tensorflow.python.client import device_lib  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
RANDOM = random.Random(SEED)
NAME = "GPU_0_bfc"
ALLOCATED = re.compile(r"\[mem-debug\] AllocateRaw,%s,(\d+),(0x[0-9a-f]+|0|\(nil\))" % NAME)
FREED = re.compile(r"\[mem-debug\] DeallocateRaw,%s,(\d+),(0x[0-9a-f]+)" % NAME)
ASKED = re.compile(r"\] AllocateRaw %s  (\d+)$" % NAME)
EXTENDING = re.compile(r"Extending allocation by .* for (\w+)\.")
REGION = re.compile(r"Allocated memory at (0x[0-9a-f]+) to (0x[0-9a-f]+)")
RELEASED = re.compile(r"Deallocate region with ptr = (0x[0-9a-f]+)")
REFUSED = re.compile(r"ran out of memory trying to allocate .* \(rounded to (\d+)\)")


def random_size():
    kind = RANDOM.random()
    if kind < 0.4:
        size = RANDOM.randint(4, 8 * KIB)
    elif kind < 0.6:
        size = RANDOM.randint(8 * KIB, MIB)
    elif kind < 0.95:
        size = RANDOM.randint(MIB, 24 * MIB)
    else:
        size = RANDOM.randint(24 * MIB, 300 * MIB)
    # Programs repeat sizes, which is when equal chunks compete.
    if RANDOM.random() < 0.6:
        step = RANDOM.choice([256, 4 * KIB, 512 * KIB, 4 * MIB])
        size = max(4, size // step * step)
    return size


def drive():
    """Random tensors that live for a random time. What the allocator refuses is given up."""
    live, held = [], 0
    runtime = ctypes.CDLL(None)
    most = int(FEATURES.get("limit", 1 << 20)) * MIB
    for number in range(OPERATIONS):
        limit = most * (0.97 if "pressure" in FEATURES else 0.7)
        size = random_size()
        if "tides" in FEATURES and number % 50 == 49:
            live, held, size = [], 0, int(most * RANDOM.uniform(0.3, 0.99)) // 4 * 4
        elif live and (RANDOM.random() < 0.42 or held > limit):
            index = RANDOM.randrange(len(live))
            held -= live[index][1]
            del live[index]
            continue
        if "others" in FEATURES and number % 15 == 10:
            runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(RANDOM.randint(200, 700) * MIB))
        try:
            tensor = tf.raw_ops.Empty(shape=[size // 4], dtype=tf.float32)
        except tf.errors.ResourceExhaustedError:
            # Some of what lives goes, so that the next refusal is another one.
            for _ in range(len(live) // 3):
                held -= live.pop(RANDOM.randrange(len(live)))[1]
            continue
        live.append((tensor, size))
        held += size


def operations(lines):
    """What the log says, one operation at a time."""
    regions, released, extending = [], [], None
    for line in lines:
        if found := EXTENDING.search(line):
            extending = found.group(1)
        elif found := REGION.search(line):
            if extending == NAME:
                start, end = (int(word, 16) for word in found.groups())
                regions.append([start, end - start])
            extending = None
        elif found := RELEASED.search(line):
            released.append(int(found.group(1), 16))
        elif found := ALLOCATED.search(line):
            size, address = int(found.group(1)), found.group(2)
            address = int(address, 16) if address.startswith("0x") else 0
            yield {"do": "allocate", "size": size, "address": address, "regions": regions, "released": released}
            regions, released = [], []
        elif found := FREED.search(line):
            yield {"do": "free", "size": int(found.group(1)), "address": int(found.group(2), 16)}


def main():
    if "limit" in FEATURES:
        card = tf.config.list_physical_devices("GPU")[0]
        limits = [tf.config.LogicalDeviceConfiguration(memory_limit=int(FEATURES["limit"]))]
        tf.config.set_logical_device_configuration(card, limits)
    with tf.device("GPU:0"):
        drive()
    limit = next(device.memory_limit for device in device_lib.list_local_devices() if device.device_type == "GPU")
    LOG.flush()
    LOG.seek(0)
    lines = LOG.read().decode(errors="replace").splitlines()
    os.dup2(STDERR, 2)
    header = {"tensorflow": tf.__version__, "limit": limit, "growth": "growth" in FEATURES, "seed": SEED}
    print(json.dumps(header, separators=(",", ":")))
    for operation in operations(lines):
        print(json.dumps(operation, separators=(",", ":")))
    print('{"do":"end"}', flush=True)


if __name__ == "__main__":
    main()
