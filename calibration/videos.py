"""Reads what decoding a video takes: the autoencoders of video models in diffusers, by themselves, with unset weights.

Usage, in a dry run on a card with more memory than there is (see README.md): python calibration/videos.py videos.csv
"""

import csv
import datetime
import sys

import diffusers as df
import torch

import readings

# Class, channels of the latents, pixels of a latent along a side, frames of a latent. The published configurations are
# the defaults of the classes.
MODELS = {
    "cogvideox-5b": (df.AutoencoderKLCogVideoX, 16, 8, 4),
    "hunyuan-video": (df.AutoencoderKLHunyuanVideo, 16, 8, 4),
    "ltx-video": (df.AutoencoderKLLTXVideo, 128, 32, 8),
}
SIZES = {
    "cogvideox-5b": [(720, 480, 49), (480, 320, 25), (720, 480, 13), (1360, 768, 9), (720, 480, 1)],
    "hunyuan-video": [(512, 320, 61), (848, 480, 61), (512, 320, 33), (960, 544, 129), (512, 512, 1)],
    "ltx-video": [(704, 480, 161), (512, 320, 65), (768, 512, 97), (1216, 704, 121), (768, 512, 1)],
}


def rows():
    for model, (kind, channels, side, frames_of_one) in MODELS.items():
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            vae = kind()
        torch.set_default_dtype(torch.float32)
        vae.to_empty(device="cuda").eval().requires_grad_(False)
        weights = readings.bytes_on_card(list(vae.parameters()) + list(vae.buffers()))
        for width, height, frames in SIZES[model]:
            for tiling in (False, True):
                vae.use_tiling = tiling
                shape = (1, channels, (frames - 1) // frames_of_one + 1, height // side, width // side)
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                with torch.no_grad():
                    vae.decode(torch.empty(shape, dtype=torch.bfloat16, device="cuda"))
                yield {
                    "model": model, "width": width, "height": height, "frames": frames, "dtype": "bf16",
                    "vae_tiling": int(tiling), "vae": weights, "peak_allocated": torch.cuda.max_memory_allocated(),
                    "peak_reserved": torch.cuda.max_memory_reserved(), "torch": torch.__version__,
                    "cudnn": torch.backends.cudnn.version(), "diffusers": df.__version__, "gpu": "h100",
                    "date": datetime.date.today().isoformat(),
                }
        del vae
        torch.cuda.empty_cache()


with open(sys.argv[1], "w", newline="") as file:
    writer = None
    for row in rows():
        writer = writer or csv.DictWriter(file, row, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
