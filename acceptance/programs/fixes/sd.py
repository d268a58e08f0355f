"""Images of 512x512 with Stable Diffusion 1.5 in fp16, as its users write it."""

import argparse

import torch
from diffusers import StableDiffusionPipeline

import pipelines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()

    folder = pipelines.sd("sd")
    pipe = StableDiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float16, safety_checker=None)
    pipe = pipe.to("cuda")
    images = pipe(
        ["a photo of an astronaut riding a horse on mars"] * args.images,
        height=args.size,
        width=args.size,
        num_inference_steps=args.steps,
    ).images
    for number, image in enumerate(images):
        image.save(f"{number}.png")


if __name__ == "__main__":
    main()
