"""Four images of 1024x1024 with SDXL in fp16, as its users write it."""

import argparse

import torch
from diffusers import StableDiffusionXLPipeline

import pipelines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()

    folder = pipelines.sdxl("sdxl")
    pipe = StableDiffusionXLPipeline.from_pretrained(folder, torch_dtype=torch.float16)
    pipe.to("cuda")
    images = pipe(
        "an astronaut riding a horse",
        num_images_per_prompt=args.images,
        height=args.size,
        width=args.size,
        num_inference_steps=args.steps,
    ).images
    print(len(images), "images")


if __name__ == "__main__":
    main()
