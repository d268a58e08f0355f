"""A segmentation script with a switch for mixed precision that is off."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.down1, self.down2, self.middle = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2, self.up1, self.out = block(6 * width, 2 * width), block(3 * width, width), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        return self.out(self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bs", type=int, default=16)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    data = TensorDataset(torch.rand(64, 3, 128, 128), torch.rand(64, 1, 128, 128).round())
    loader = DataLoader(data, batch_size=args.bs, shuffle=True, drop_last=True)
    model = UNet().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    for epoch in range(2):
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            with torch.autocast("cuda", torch.float16, enabled=args.amp):
                loss = F.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(opt); scaler.update()


main()
