"""Whether `oomph watch` dates leaks, and nothing else: `forecasts.py OOMPH PYTHON OUT.csv`.

The leaking programs of `acceptance/programs/leaks` are rehearsed on a card whose memory ends at about step 90, as `leaks.csv`
has their growth; then five programs that keep as much as chance has it beside inputs of random sizes; then the ten modes of
`acceptance/programs/fluctuating.py` on a card that they never fill. Each optimizer step
takes 80 ms more, so that it takes as long as on a real card. Meanwhile `oomph watch` runs beside them. A row has how many looks
gave a date, and of those from a third of the run on the one that was the furthest from the step of the death.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOWLY = """
import runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
register_optimizer_step_post_hook(lambda *_: time.sleep(0.08))
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def memory(growth):
    """The card's memory, in MiB, at which a program dies at about step 90."""
    early, late = int(growth["bytes_at_step_20"]), int(growth["bytes_at_step_100"])
    at_90 = late - (late - early) / 80 * 10
    # Beside live tensors: context, modules, workspaces and what the allocator rounds.
    return int(at_90 / 2**20) + 200


def looked(oomph, python, words, vram):
    """What was seen of a program at each look (step, trend, date), and the steps that it made; None where it lived."""
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "slowly.py")
        with open(script, "w") as file:
            file.write(SLOWLY)
        command = [oomph, "run", "--rehearse", "rtx-3060", "--vram", "%dMiB" % vram, "--no-check", "--attempts", "1"]
        command += ["--record", "off", "--keep", folder, "--", python, script, *words]
        with open(os.path.join(folder, "looks"), "w+") as looks:
            program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            watch = [oomph, "watch", "--format", "json", "--interval", "250ms", "--timeout", "5m"]
            # It ends at once while there is no card to watch.
            while program.poll() is None and subprocess.run([*watch[:2], "--once"], capture_output=True).returncode:
                time.sleep(0.2)
            watch = subprocess.Popen(watch, stdout=looks)
            said = program.communicate()[1]
            watch.kill()
            watch.wait()
            looks.seek(0)
            lines = looks.readlines()
        with open(os.path.join(folder, "journal.jsonl")) as file:
            end = [line for line in map(json.loads, file) if line["event"] == "end"][-1]
    if end["exit_status"] != 0 and not end["out_of_memory"]:
        raise RuntimeError(said)
    seen = {}
    for line in lines:
        try:
            report = json.loads(line)
        except ValueError:
            continue
        for card in report["cards"]:
            for process in card["processes"]:
                framework = process.get("framework") or {}
                outlook = framework.get("outlook")
                if outlook:
                    seen[framework["step"]] = (outlook["trend"], outlook.get("full_at_step"))
    return seen, end["steps"] if end["out_of_memory"] else None


def main():
    oomph, python, out = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
    with open(ROOT / "readings/leaks.csv") as file:
        leaks = list(csv.DictReader(file))
    # One imports more than PyTorch, one makes no optimizer steps.
    leaks = [one for one in leaks if one["program"] not in ("lightning_outputs.py", "hidden_state.py")]
    programs = [("leaks/" + one["program"], [], memory(one)) for one in leaks]
    modes = ("lengths", "buckets", "samples", "resolutions", "replay", "evaluation", "waves", "history", "graphs", "losing")
    leaking = (("lengths", 4500), ("buckets", 4500), ("samples", 2500), ("graphs", 2500), ("losing", 2500))
    programs += [("fluctuating.py", [mode, "32"], vram) for mode, vram in leaking]
    programs += [("fluctuating.py", [mode], 11000) for mode in modes]
    with open(out, "w", newline="") as file:
        writer = None
        for program, words, vram in programs:
            path = str(ROOT / "programs" / program)
            seen, died = looked(oomph, python, [path, *words], vram)
            while not died and not words:
                vram = vram * 9 // 10
                seen, died = looked(oomph, python, [path, *words], vram)
            dated = {step: date for step, (_, date) in seen.items() if date}
            late = [abs(date - died) for step, date in dated.items() if died and step >= died / 3]
            row = {
                "program": " ".join([program, *words]), "card_mib": vram, "looks": len(seen), "dated": len(dated),
                "first_dated_at": min(dated, default=""), "died_after_step": died or "",
                "furthest_off": max(late, default=""), "furthest_percent": "%.1f" % (100 * max(late) / died) if late else "",
                "last_trend": seen[max(seen)][0] if seen else "",
            }  # fmt: skip
            print(row, flush=True)
            writer = writer or csv.DictWriter(file, row, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
