"""Near-duplicates: features of all pictures, then all similarities at once."""
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 6000

    def __getitem__(self, index):
        return torch.full((3, 32, 32), index / 6000)


@torch.inference_mode()
def extract(model, loader):
    feats = []
    for batch in loader:
        feats.append(model(batch.cuda(non_blocking=True)).cpu())
    return torch.cat(feats)


def main():
    model = torchvision.models.mobilenet_v3_large(weights=None)
    model.classifier = torch.nn.Identity()
    model = model.cuda().eval()
    feats = extract(model, DataLoader(Pictures(), batch_size=500, num_workers=0))
    feats = F.normalize(feats.cuda(), dim=1)
    diff = (feats[:, None, :16] - feats[None, :, :16]).abs().sum(-1)
    print("pairs", (diff < 0.01).sum().item() >= 0)


if __name__ == "__main__":
    main()
