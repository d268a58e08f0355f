"""What a snapshot holds, in lines, as CPython reads it: the oracle for the reader's tests."""

import pickle
import sys


class Data(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} in a snapshot")


def line(number):
    # Unknown lines are -1, as a signed or an unsigned number.
    return number if 0 <= number < 1 << 63 else 0


def stack(frames):
    return ";".join(f"{f['name']}@{f['filename']}:{line(f['line'])}" for f in frames)


def pool(value):
    return "-" if value is None else f"{value[0]}.{value[1]}"


def label(event):
    for key in ("user_metadata", "compile_context", "internal_metadata", "category"):
        if event.get(key) not in (None, "", "N/A"):
            return event[key]
    return ""


def events(kind, device, trace):
    for e in trace:
        address = e.get("addr", e.get("device_free", 0))
        print(
            "event", kind, device, e["action"], address, e["size"], e["stream"], e.get("time_us", 0),
            pool(e.get("pool_id")), label(e), stack(e.get("frames", [])),
        )


def segments(kind, all_segments):
    for device in sorted({s["device"] for s in all_segments}):
        for s in all_segments:
            if s["device"] != device:
                continue
            print(
                "segment", kind, max(device, 0), s["address"], s["total_size"], s["stream"], s["segment_type"],
                pool(s.get("segment_pool_id", (0, 0))), s.get("is_expandable", False), stack(s.get("frames", [])),
            )
            at = s["address"]
            for b in s["blocks"]:
                at = b.get("address", at)
                frames, requested = b.get("frames", []), b.get("requested_size", b["size"])
                if b.get("history"):
                    frames = b["history"][0].get("frames", [])
                print("block", at, b["size"], requested, b["state"], stack(frames))
                at += b["size"]


snapshot = Data(open(sys.argv[1], "rb")).load()
if isinstance(snapshot, list):
    snapshot = {"segments": snapshot}
for i, t in enumerate(snapshot.get("device_traces", [])):
    events("Cuda", i, t)
events("PinnedHost", 0, snapshot.get("host_traces", []))
segments("Cuda", snapshot["segments"])
segments("PinnedHost", snapshot.get("host_segments", []))
for a in sorted(snapshot.get("external_annotations", []), key=lambda a: a["time_us"]):
    print("annotation", a["stage"], a["name"], a["device"], a["time_us"])
