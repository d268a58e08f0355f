# Super-resolution of a folder of pictures. Tiles are made smaller when the card is full.
import gc
import torch
from torch import nn


class SR(nn.Module):
    def __init__(self, c=64, n=8, scale=4):
        super().__init__()
        self.head = nn.Conv2d(3, c, 3, padding=1)
        self.body = nn.Sequential(*[nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU()) for _ in range(n)])
        self.tail = nn.Sequential(nn.Conv2d(c, 3 * scale * scale, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x):
        y = self.head(x)
        return self.tail(y + self.body(y))


@torch.no_grad()
def upscale(model, picture, tile):
    rows = []
    for top in range(0, picture.shape[-2], tile):
        row = []
        for left in range(0, picture.shape[-1], tile):
            row.append(model(picture[..., top:top + tile, left:left + tile].cuda()).cpu())
        rows.append(torch.cat(row, -1))
    return torch.cat(rows, -2)


model = SR().cuda().eval()
tile = 2048
for number in range(3):
    picture = torch.rand(1, 3, 1024, 2048)
    while True:
        try:
            out = upscale(model, picture, tile)
            break
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            tile //= 2
            print("out of memory, tiles of", tile)
            gc.collect()
            torch.cuda.empty_cache()
    print(number, tuple(out.shape))
