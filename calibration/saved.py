"""Says whose bytes an activation peak is: what one training step keeps for backward, line by line of the model's code,
and what is live at its peak. Figures come from PyTorch's own recording of its allocator.

usage: saved.py MODEL [--layers N] [--batch B] [--length S] [--dtype D] [--task T] [--attention A] [--checkpointing C] ...
       saved.py image MODEL WIDTH HEIGHT IMAGES DTYPE
"""

import argparse
import collections
import linecache
import re
import sys

import torch

import readings
import text
import text_models


def place(frames):
    """The line of the model's or a library's code that asked for memory: the innermost Python frame outside torch, and
    before it the names of the autograd node, where the request came from backward."""
    python = [f for f in frames if f["filename"].endswith(".py")]
    ours = [f for f in python if "/torch/" not in f["filename"] and "/oomph/" not in f["filename"] and "/calibration/" not in f["filename"]]
    nodes = (re.search(r"(\w+Backward\w*|AccumulateGrad\w*)::apply", f["name"]) for f in frames)
    node = next((found.group(1) for found in nodes if found), "")
    if not ours:
        return node or (python[0]["name"] if python else "?")
    frame = ours[0]
    short = frame["filename"].split("site-packages/")[-1].split("/")[-1]
    source = linecache.getline(frame["filename"], frame["line"]).strip()[:100]
    inner = python[0]["name"] if python and python[0] is not frame else ""
    return f"{short}:{frame['line']} {frame['name']} `{source}` {node} {inner}".strip()


def live(trace, until):
    """Blocks of a recording that are live after its event number `until`: address -> event."""
    blocks = {}
    for event in trace[:until]:
        if event["action"] == "alloc":
            blocks[event["addr"]] = event
        elif event["action"] == "free_requested":
            blocks.pop(event["addr"], None)
    return blocks


def table(title, blocks, unit):
    """Prints blocks by place and size, the largest sums first. `unit` is batch * length * hidden, or images * pixels."""
    sums = collections.Counter()
    counts = collections.Counter()
    for event in blocks.values():
        key = (place(event["frames"]), event["size"])
        sums[key] += event["size"]
        counts[key] += 1
    print(f"\n{title}: {sum(sums.values())} bytes in {len(blocks)} blocks")
    for (line, size), total in sums.most_common(40):
        print(f"{total:>14} = {counts[line, size]:>3} x {size:>12} ({size / unit:9.4f} units)  {line}")


def image(name, width, height, count, dtype):
    """Prints what is live at the peak of the denoiser and of the decoder of an image model."""
    import images

    recordings = {}
    plain = readings.Peaks.end

    def end(self, phase):
        plain(self, phase)
        recordings[phase] = torch.cuda.memory._snapshot()["device_traces"][0]

    readings.Peaks.end = end
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1 << 22)
    print(images.run(images.Setting(name, "pipeline", width, height, count, dtype)))
    begun = 0
    for phase in ("encode", "denoise", "decode"):
        trace = recordings[phase]
        where = largest(trace, begun)
        began = {address for address in live(trace, begun)}
        blocks = {address: event for address, event in live(trace, where).items() if address not in began}
        table(f"made in {phase} and live at its peak", blocks, count * width * height)
        begun = len(trace)


def largest(trace, begun):
    """Number of events up to the largest sum of live blocks after event number `begun`."""
    now, best, where, known = 0, -1, begun, {}
    for number, event in enumerate(trace, 1):
        if event["action"] == "alloc":
            known[event["addr"]] = event["size"]
            now += event["size"]
        elif event["action"] == "free_requested":
            now -= known.pop(event["addr"], event["size"])
        if number > begun and now > best:
            best, where = now, number
    return where


def main():
    if sys.argv[1:2] == ["image"]:
        name, width, height, count, dtype = sys.argv[2:]
        return image(name, int(width), int(height), int(count), dtype)
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    for name, default in (("layers", 4), ("batch", 2), ("length", 256), ("lora_rank", 0)):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    for name, default in (("dtype", "bf16"), ("task", "full"), ("attention", "sdpa"), ("checkpointing", "none"), ("optimizer", "adamw-fused"), ("loop", "torch"),
                          ("lora_targets", "all-linear"), ("head", "")):
        parser.add_argument(f"--{name.replace('_', '-')}", default=default)
    parser.add_argument("--padding", action="store_true")
    parser.add_argument("--kbit-prepare", action="store_true")
    parser.add_argument("--cpp", action="store_true", help="name the autograd node of what backward allocates (slow)")
    chosen = vars(parser.parse_args())
    layers, cpp = chosen.pop("layers"), chosen.pop("cpp")
    kind, values, _ = text_models.MODELS[chosen["model"]]
    for key in ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"):
        if key in values or (key == "num_hidden_layers" and hasattr(kind(), key) and "n_layer" not in kind().to_dict()):
            if key == "num_hidden_layers" and kind.__name__ in ("GPT2Config", "T5Config", "WhisperConfig"):
                continue
            values = values | {key: layers}
    if kind.__name__ == "GPT2Config":
        values = values | {"n_layer": layers}
    text_models.MODELS[chosen["model"]] = (kind, values, None)

    recordings = []
    first_peaks = readings.Peaks.end

    def end(self, phase):
        first_peaks(self, phase)
        if phase == "step" and not recordings:
            torch.cuda.memory._record_memory_history(stacks="all" if cpp else "python", max_entries=1 << 22)
            recordings.append(None)
        elif recordings and len(recordings) < 4:
            recordings.append((phase, torch.cuda.memory._snapshot()["device_traces"][0]))
            if phase == "step":
                torch.cuda.memory._record_memory_history(enabled=None)

    readings.Peaks.end = end
    row = text.run(text.Setting(**chosen))
    configuration = text_models.configuration(chosen["model"])
    hidden = getattr(configuration, "hidden_size", None) or configuration.d_model
    unit = chosen["batch"] * chosen["length"] * hidden
    print({k: v for k, v in row.items() if v not in ("", 0)})
    phases = dict(r for r in recordings if r)
    forward, whole = phases["forward"], phases["step"]
    table("kept after forward", live(forward, len(forward)), unit)
    where = largest(forward, 0)
    table("live at the peak of forward", live(forward, where), unit)
    where = largest(whole, 0)
    name = "forward" if where <= len(forward) else "backward" if where <= len(phases["backward"]) else "step"
    table(f"live at the peak of the step, in {name}", live(whole, where), unit)


if __name__ == "__main__":
    sys.exit(main())
