#!/usr/bin/env python3
"""A small network trained on images that NVIDIA's DALI makes on the card."""

import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

SIZE, BATCH = 192, 16


@pipeline_def(batch_size=BATCH, num_threads=2, device_id=0)
def images():
    return fn.random.normal(device="gpu", shape=(3, SIZE, SIZE), dtype=types.FLOAT)


model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, stride=2), torch.nn.Flatten(), torch.nn.LazyLinear(1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DALIGenericIterator([images()], ["images"], size=8 * BATCH):
    loss = model(batch["images"]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
