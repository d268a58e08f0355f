"""VQGAN-CLIP: the code z of an image is moved by Adam until CLIP likes what the VQGAN decodes from it."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from common import build, device, print_peaks


def norm(channels):
    return nn.GroupNorm(32, channels, eps=1e-6)


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.conv1 = norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.norm1(x)
        h = self.conv1(h * torch.sigmoid(h))
        h = self.norm2(h)
        h = self.conv2(h * torch.sigmoid(h))
        return self.shortcut(x) + h


class AttnBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = norm(channels)
        self.q, self.k, self.v, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x):
        b, c, h, w = x.shape
        n = self.norm(x)
        q = self.q(n).reshape(b, c, h * w).permute(0, 2, 1)
        k = self.k(n).reshape(b, c, h * w)
        v = self.v(n).reshape(b, c, h * w)
        weights = torch.bmm(q, k) * c**-0.5
        weights = weights.softmax(dim=2).permute(0, 2, 1)
        return x + self.out(torch.bmm(v, weights).reshape(b, c, h, w))


class Upsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class VQModel(nn.Module):
    """f16-16384: its configuration has ch 128, ch_mult 1,1,2,2,4, 2 res blocks, attention at 16, z 256."""

    def __init__(self, ch=128, mult=(1, 1, 2, 2, 4), res_blocks=2, z_channels=256, n_embed=16384):
        super().__init__()
        self.embedding = nn.Embedding(n_embed, z_channels)

        encoder = [nn.Conv2d(3, ch, 3, padding=1)]
        width = ch
        for level, m in enumerate(mult):
            for _ in range(res_blocks):
                encoder.append(ResBlock(width, ch * m))
                width = ch * m
                if level == len(mult) - 1:
                    encoder.append(AttnBlock(width))
            if level < len(mult) - 1:
                encoder.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
        encoder += [ResBlock(width, width), AttnBlock(width), ResBlock(width, width)]
        encoder += [norm(width), nn.SiLU(), nn.Conv2d(width, z_channels, 3, padding=1)]
        self.encoder = nn.Sequential(*encoder, nn.Conv2d(z_channels, z_channels, 1))

        decoder = [nn.Conv2d(z_channels, z_channels, 1), nn.Conv2d(z_channels, width, 3, padding=1)]
        decoder += [ResBlock(width, width), AttnBlock(width), ResBlock(width, width)]
        for level, m in reversed(list(enumerate(mult))):
            for _ in range(res_blocks + 1):
                decoder.append(ResBlock(width, ch * m))
                width = ch * m
                if level == len(mult) - 1:
                    decoder.append(AttnBlock(width))
            if level:
                decoder.append(Upsample(width))
        self.decoder = nn.Sequential(*decoder, norm(width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))


class ReplaceGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, forward, backward):
        ctx.shape = backward.shape
        return forward

    @staticmethod
    def backward(ctx, grad):
        return None, grad.sum_to_size(ctx.shape)


class ClampWithGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.low, ctx.high = low, high
        ctx.save_for_backward(x)
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (grad * (x - x.clamp(ctx.low, ctx.high)) >= 0), None, None


def vector_quantize(x, codebook):
    distance = x.pow(2).sum(dim=-1, keepdim=True) + codebook.pow(2).sum(dim=1) - 2 * x @ codebook.T
    indices = distance.argmin(-1)
    return ReplaceGrad.apply(F.one_hot(indices, codebook.shape[0]).to(distance.dtype) @ codebook, x)


def synth(model, z):
    z_q = vector_quantize(z.movedim(1, 3), model.embedding.weight).movedim(3, 1)
    return ClampWithGrad.apply(model.decoder(z_q).add(1).div(2), 0, 1)


class MakeCutouts(nn.Module):
    def __init__(self, size, count, noise=0.1):
        super().__init__()
        self.size, self.count, self.noise = size, count, noise
        self.average, self.maximum = nn.AdaptiveAvgPool2d(size), nn.AdaptiveMaxPool2d(size)

    def forward(self, image):
        pooled = [(self.average(image) + self.maximum(image)) / 2 for _ in range(self.count)]
        batch = torch.cat(pooled)
        turn = torch.eye(2, 3, device=image.device) + 0.1 * torch.randn(self.count, 2, 3, device=image.device)
        batch = F.grid_sample(batch, F.affine_grid(turn, batch.shape, align_corners=False), align_corners=False)
        scale = batch.new_empty([self.count, 1, 1, 1]).uniform_(0, self.noise)
        return batch + scale * torch.randn_like(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--cutouts", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()

    vqgan = build(VQModel).eval().requires_grad_(False)
    vision = CLIPVisionConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
        image_size=224, patch_size=32, projection_dim=512,
    )
    clip = build(lambda: CLIPVisionModelWithProjection(vision), torch.float16).eval().requires_grad_(False)
    cutouts = MakeCutouts(224, args.cutouts)
    mean = torch.tensor([0.481, 0.458, 0.408], device=device()).view(1, 3, 1, 1)
    std = torch.tensor([0.269, 0.261, 0.276], device=device()).view(1, 3, 1, 1)
    prompt = F.normalize(torch.randn(1, 512, device=device()), dim=-1)

    side = args.size // 16
    start = torch.rand(1, 3, side * 16, side * 16, device=device())
    with torch.no_grad():
        z = vqgan.encoder(start * 2 - 1)
    z.requires_grad_(True)
    optimizer = torch.optim.Adam([z], lr=0.1)
    low = vqgan.embedding.weight.min(dim=0).values[None, :, None, None]
    high = vqgan.embedding.weight.max(dim=0).values[None, :, None, None]

    for step in range(args.steps):
        optimizer.zero_grad(set_to_none=True)
        image = synth(vqgan, z)
        pixels = ((cutouts(image) - mean) / std).to(clip.dtype)
        embedding = F.normalize(clip(pixels).image_embeds.float(), dim=-1)
        loss = (embedding - prompt).norm(dim=-1).div(2).arcsin().pow(2).mul(2).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            z.copy_(z.maximum(low).minimum(high))
        print(f"step {step} loss {loss.item():.3f}")
    print_peaks()


if __name__ == "__main__":
    main()
