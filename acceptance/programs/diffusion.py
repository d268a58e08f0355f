"""A Stable Diffusion pipeline of diffusers makes one image, with the memory savers that one chooses.

    python diffusion.py --model sdxl --offload model --vae-tiling

Shapes are those of the published models; the weights are what their memory happens to hold.
"""

import argparse
import json
import pathlib
import tempfile

import torch
from accelerate import init_empty_weights
from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from common import print_peaks
from sd_unet_vae import sd15_unet, sdxl_unet, vae


def made(make):
    """A network in half precision on the host, whose memory nobody has written to."""
    with init_empty_weights():
        network = make()
    return network.half().to_empty(device="cpu").eval()


def text_encoder(kind, width, layers, heads, projection):
    config = CLIPTextConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=heads,
        max_position_embeddings=77, vocab_size=49408, projection_dim=projection, hidden_act="gelu",
    )
    encoder = made(lambda: kind(config))
    # The positions are no weights, and the host reads them.
    for module in encoder.modules():
        if hasattr(module, "position_ids"):
            module.position_ids = torch.arange(77).expand((1, -1))
    return encoder


def tokenizer():
    """A tokenizer of CLIP's kind, which knows no word but the letters."""
    letters = [chr(code) for code in range(ord("!"), ord("~") + 1)]
    words = letters + [letter + "</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(words)}))
        (folder / "merges.txt").write_text("#version: 0.2\n")
        return CLIPTokenizer.from_pretrained(folder, model_max_length=77)


def pipeline(model):
    scheduler = EulerDiscreteScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    if model == "sd15":
        return StableDiffusionPipeline(
            vae=made(lambda: vae(0.18215)), unet=made(sd15_unet), scheduler=scheduler, tokenizer=tokenizer(),
            text_encoder=text_encoder(CLIPTextModel, 768, 12, 12, 768),
            safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        )
    return StableDiffusionXLPipeline(
        vae=made(lambda: vae(0.13025)), unet=made(sdxl_unet), scheduler=scheduler,
        tokenizer=tokenizer(), tokenizer_2=tokenizer(),
        text_encoder=text_encoder(CLIPTextModel, 768, 12, 12, 768),
        text_encoder_2=text_encoder(CLIPTextModelWithProjection, 1280, 32, 20, 1280),
        add_watermarker=False,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["sd15", "sdxl"], default="sd15")
    parser.add_argument("--offload", choices=["none", "model", "sequential", "group"], default="none")
    parser.add_argument("--attention-slicing", action="store_true")
    parser.add_argument("--vae-slicing", action="store_true")
    parser.add_argument("--vae-tiling", action="store_true")
    parser.add_argument("--size", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--images", type=int, default=1)
    args = parser.parse_args()

    pipe = pipeline(args.model)
    pipe.set_progress_bar_config(disable=True)
    if args.offload == "none":
        pipe.to("cuda")
    elif args.offload == "model":
        pipe.enable_model_cpu_offload()
    elif args.offload == "sequential":
        pipe.enable_sequential_cpu_offload()
    else:
        pipe.enable_group_offload(
            onload_device=torch.device("cuda"), offload_device=torch.device("cpu"),
            offload_type="block_level", num_blocks_per_group=1,
        )
    if args.attention_slicing:
        pipe.enable_attention_slicing()
    if args.vae_slicing:
        pipe.vae.enable_slicing()
    if args.vae_tiling:
        pipe.vae.enable_tiling()
    size = args.size or (512 if args.model == "sd15" else 1024)
    images = pipe(
        "a cat", height=size, width=size, num_inference_steps=args.steps, num_images_per_prompt=args.images,
        output_type="pt",
    ).images
    print(f"images={tuple(images.shape)}")
    print_peaks()


if __name__ == "__main__":
    main()
