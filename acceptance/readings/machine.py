#!/usr/bin/env python3
"""Reads anew what programs are told when they ask their machine, in `machine.csv`.

    machine.py OOMPH PYTHON [NAME...]

Each program asks with nvidia-smi, NVML or a library that uses them, on a virtual RTX 3060 of 12,043 MiB whose context takes
135 MiB, and prints a figure. `truth` is that figure by arithmetic. PYTHON has torch, pandas, psutil, nvidia-ml-py, GPUtil and gpustat.
"""

import csv
import datetime
import os
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "machine.csv")
FIELDS = ["date", "program", "asks", "cards", "told", "truth", "agrees", "status"]

TAKE = "import torch\nx = torch.empty(3 << 30, dtype=torch.uint8, device='cuda')\n"
USED = 3072 + 135
HOLDER = (
    "import subprocess, sys\n"
    "code = \"import torch, sys; x = torch.empty(2 << 30, dtype=torch.uint8, device='cuda'); print(1, flush=True); sys.stdin.read()\"\n"
    "child = subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "child.stdout.read(1)\n"
)

# Name, what asks, cards, source, truth.
PROGRAMS = [
    ("batch", "nvidia-smi --query-gpu=memory.free", 1,
     "import subprocess\nfree = int(subprocess.check_output(['nvidia-smi', '--query-gpu=memory.free', "
     "'--format=csv,noheader,nounits'], text=True))\nprint('TOLD', int(free * 0.5 // 64))", 94),
    ("gputil", "GPUtil.getGPUs()", 1,
     TAKE + "import GPUtil\ncard = GPUtil.getGPUs()[0]\nprint('TOLD', int(card.memoryUsed), int(card.memoryTotal))", "%d 12043" % USED),
    ("gputil-available", "GPUtil.getAvailable()", 2,
     TAKE.replace("3 << 30", "8 << 30") + "import GPUtil\nprint('TOLD', GPUtil.getAvailable(order='memory', limit=4, maxMemory=0.5))", "[1]"),
    ("gpustat", "gpustat.new_query()", 1,
     TAKE + "import gpustat, os\ncard = gpustat.new_query()[0]\n"
     "print('TOLD', card.memory_used, [p['pid'] == os.getpid() for p in card.processes])", "%d [True]" % USED),
    ("pynvml", "nvmlDeviceGetMemoryInfo, v2", 1,
     TAKE + "import pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\nm = n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)\n"
     "print('TOLD', m.used >> 20, m.free >> 20, m.reserved)", "%d %d 0" % (USED, 12043 - USED)),
    ("pynvml-processes", "nvmlDeviceGetComputeRunningProcesses", 2,
     TAKE.replace("'cuda'", "'cuda:1'") + "import os, pynvml as n\nn.nvmlInit()\n"
     "found = [n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(i)) for i in range(n.nvmlDeviceGetCount())]\n"
     "print('TOLD', [[(p.pid == os.getpid(), p.usedGpuMemory >> 20) for p in one] for one in found])", "[[], [(True, %d)]]" % USED),
    ("visible", "nvidia-smi and NVML list cards that CUDA_VISIBLE_DEVICES hides", 3,
     "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '2'\n" + TAKE + "import pynvml as n, subprocess\nn.nvmlInit()\n"
     "out = subprocess.check_output(['nvidia-smi', '--query-gpu=memory.used', '--format=csv,noheader,nounits'], text=True)\n"
     "print('TOLD', torch.cuda.device_count(), n.nvmlDeviceGetCount(), out.split())", "1 3 ['0', '0', '%d']" % USED),
    ("one-card", "nvidia-smi -i 1, and by its UUID", 2,
     TAKE.replace("'cuda'", "'cuda:1'") + "import subprocess\n"
     "def ask(card, field):\n    return subprocess.check_output(['nvidia-smi', '-i', card, '--query-gpu=' + field, '--format=csv,noheader'], text=True).strip()\n"
     "print('TOLD', ask('1', 'memory.used'), ask(ask('0', 'uuid'), 'memory.used'))", "%d MiB 0 MiB" % USED),
    ("torch", "torch.cuda.mem_get_info, device_memory_used, utilization, memory_usage", 1,
     TAKE + "free, total = torch.cuda.mem_get_info()\n"
     "print('TOLD', free >> 20, total >> 20, torch.cuda.device_memory_used() >> 20, torch.cuda.utilization(), torch.cuda.memory_usage())",
     "%d 12043 %d 0 0" % (12043 - USED, USED)),
    ("table", "os.popen('nvidia-smi')", 1,
     TAKE + "import os, re\nprint('TOLD', *re.search(r'(\\d+)MiB / +(\\d+)MiB', os.popen('nvidia-smi').read()).groups())", "%d 12043" % USED),
    ("xml", "nvidia-smi -q -x", 1,
     TAKE + "import subprocess, xml.etree.ElementTree as E\nroot = E.fromstring(subprocess.check_output(['nvidia-smi', '-q', '-x']))\n"
     "print('TOLD', [g.find('fb_memory_usage/free').text for g in root.iter('gpu')], len(list(root.iter('process_info'))))",
     "['%d MiB'] 1" % (12043 - USED)),
    ("log", "nvidia-smi -q -d MEMORY in a shell", 1,
     TAKE + "import subprocess\nprint('TOLD', subprocess.check_output(\"nvidia-smi -q -d MEMORY | grep -A4 'FB Memory' | grep Used | awk '{print $3}'\", "
     "shell=True, text=True))", USED),
    ("pandas", "nvidia-smi --format=csv, read as a table", 2,
     "import io, subprocess, pandas\ntext = subprocess.check_output(['nvidia-smi', '--query-gpu=index,name,memory.total', '--format=csv'], text=True)\n"
     "frame = pandas.read_csv(io.StringIO(text), skipinitialspace=True)\nprint('TOLD', list(frame['memory.total [MiB]']))",
     "['12043 MiB', '12043 MiB']"),
    ("least-used", "the card with the least memory used, by sort", 2,
     TAKE + "import subprocess\nprint('TOLD', subprocess.check_output(\"nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits | "
     "sort -t, -k2 -n | head -1 | cut -d, -f1\", shell=True, text=True))", 1),
    ("list", "nvidia-smi -L", 4,
     "import os\nprint('TOLD', len(os.popen('nvidia-smi -L').read().splitlines()))", 4),
    ("no-environment", "/usr/bin/nvidia-smi with an empty environment", 1,
     "import subprocess\nprint('TOLD', subprocess.run(['/usr/bin/nvidia-smi', '-L'], env={}, stdout=subprocess.PIPE, text=True).stdout.split(' (')[0])",
     "GPU 0: NVIDIA GeForce RTX 3060"),
    ("which", "shutil.which decides for the GPU", 1,
     "import shutil\nprint('TOLD', 'cuda' if shutil.which('nvidia-smi') else 'cpu')", "cuda"),
    ("loop", "nvidia-smi -l 1 in the background, ended by the program", 1,
     TAKE + "import subprocess, time\np = subprocess.Popen(['nvidia-smi', '--query-gpu=memory.used', '--format=csv,noheader,nounits', '-lms', '200'], "
     "stdout=subprocess.PIPE, text=True)\nfirst, second = p.stdout.readline(), p.stdout.readline()\np.terminate()\n"
     "print('TOLD', int(first), int(second), p.wait())", "%d %d -15" % (USED, USED)),
    ("two-processes", "nvidia-smi --query-compute-apps", 1,
     HOLDER + TAKE + "out = subprocess.check_output(['nvidia-smi', '--query-compute-apps=pid,used_memory', '--format=csv,noheader,nounits'], text=True)\n"
     "print('TOLD', sorted(int(line.split(', ')[1]) for line in out.splitlines()))\nchild.communicate()", "[2183, %d]" % USED),
    ("killed-child", "memory after a child was killed", 1,
     HOLDER + "child.kill(); child.wait()\nprint('TOLD', int(subprocess.check_output(['nvidia-smi', '--query-gpu=memory.used', "
     "'--format=csv,noheader,nounits'], text=True)))", 0),
    ("unknown-field", "a field that there is not", 1,
     "import subprocess\nr = subprocess.run(['nvidia-smi', '--query-gpu=cuda_version', '--format=csv'], stdout=subprocess.PIPE, text=True)\n"
     "print('TOLD', r.returncode, r.stdout.strip())", "2 Field \"cuda_version\" is not a valid field to query."),
    ("no-such-card", "nvidia-smi -i 5", 1,
     "import subprocess\nr = subprocess.run(['nvidia-smi', '-i', '5'], stdout=subprocess.PIPE, text=True)\nprint('TOLD', r.returncode, r.stdout.strip())",
     "6 No devices were found"),
]


def told_by(oomph, python, cards, source):
    """What a program printed, and its run's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "program.py"), "w") as file:
            file.write(source + "\n")
        command = [oomph, "dry-run", "--gpu", "rtx-3060:%d" % cards, "--no-owners", "--until-exit", "--", python, "program.py"]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    lines = [line[5:].strip() for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    return (lines[-1] if lines else done.stdout[-300:].replace("\n", " ")), done.returncode


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    oomph, python, names = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    rows = []
    for name, asks, cards, source, truth in PROGRAMS:
        if names and name not in names:
            continue
        told, status = told_by(oomph, python, cards, source)
        agrees = "yes" if told == str(truth) else "no"
        rows.append({"date": datetime.date.today().isoformat(), "program": name, "asks": asks, "cards": cards, "told": told,
                     "truth": truth, "agrees": agrees, "status": status})
        print(name, agrees, told, "|", truth, flush=True)
    if names:
        return
    with open(TABLE, "w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
