"""A small GAN: two models, two Adams with betas of their own."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=64)
parser.add_argument("--width", type=int, default=3072)
opt = parser.parse_args()
netG = nn.Sequential(nn.Linear(128, opt.width), nn.ReLU(True), nn.Linear(opt.width, opt.width), nn.ReLU(True), nn.Linear(opt.width, 3072), nn.Tanh()).cuda()
netD = nn.Sequential(nn.Linear(3072, opt.width), nn.LeakyReLU(0.2), nn.Linear(opt.width, opt.width), nn.LeakyReLU(0.2), nn.Linear(opt.width, 1), nn.Sigmoid()).cuda()
criterion = nn.BCELoss()
loader = DataLoader(TensorDataset(torch.rand(512, 3072)), batch_size=opt.batchSize, shuffle=True, drop_last=True)
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
for epoch in range(2):
    for i, (real,) in enumerate(loader):
        real = real.cuda()
        ones, zeros = torch.ones(len(real), 1).cuda(), torch.zeros(len(real), 1).cuda()
        netD.zero_grad()
        fake = netG(torch.randn(len(real), 128).cuda())
        (criterion(netD(real), ones) + criterion(netD(fake.detach()), zeros)).backward()
        optD.step()
        netG.zero_grad()
        criterion(netD(fake), ones).backward()
        optG.step()
