"""Trains for two steps, exports the model and has a program of machine code read the file, as a deployment check does.

    python exported.py [MODEL]

The reader is C++, made with this machine's compiler in a temporary folder. It opens the file by its path alone, and prints
what it sees: that must be what Python wrote.
"""

import os
import subprocess
import sys
import tempfile

import torch
from torch import nn

READER = r"""
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

int main(int, char **words) {
    std::ifstream file(words[1], std::ios::binary);
    if (!file) {
        std::perror(words[1]);
        return 1;
    }
    std::vector<unsigned char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    unsigned long sum = 0;
    for (unsigned char byte : bytes) sum = sum * 31 + byte;
    std::printf("read_bytes=%zu\nread_sum=%lu\n", bytes.size(), sum);
}
"""

path = sys.argv[1] if len(sys.argv) > 1 else "model.pt"
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.randn(32, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.jit.trace(model.cpu().eval(), torch.zeros(1, 64)).save(path)

with open(path, "rb") as file:
    written = file.read()
total = 0
for byte in written:
    total = (total * 31 + byte) % 2**64
print(f"written_bytes={len(written)}\nwritten_sum={total}", flush=True)
with tempfile.TemporaryDirectory() as folder:
    reader = os.path.join(folder, "reader")
    subprocess.run(["c++", "-O1", "-x", "c++", "-", "-o", reader], input=READER.encode(), check=True)
    sys.exit(subprocess.run([reader, os.path.abspath(path)]).returncode)
