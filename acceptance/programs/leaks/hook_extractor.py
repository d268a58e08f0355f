"""A feature extractor with hooks on several layers that nobody empties."""
import torch
import torch.nn as nn


class FeatureExtractor:
    def __init__(self, model, layers):
        self.features = {name: [] for name in layers}
        modules = dict(model.named_modules())
        for name in layers:
            modules[name].register_forward_hook(self.save(name))

    def save(self, name):
        def hook(_, __, output):
            self.features[name].append(output)

        return hook


def build():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100),
    )  # fmt: skip


def main():
    model = build().cuda()
    extractor = FeatureExtractor(model, ["2", "5"])
    optimizer = torch.optim.Adam(model.parameters())
    for it in range(101):
        images = torch.randn(16, 3, 96, 96, device="cuda")
        loss = model(images).logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 5 == 0:
            print(f"step {it}: {torch.cuda.memory_allocated()} bytes allocated")
    print({name: len(kept) for name, kept in extractor.features.items()})


if __name__ == "__main__":
    main()
