"""One image of 1024x1024 with Flux.1-dev in bf16, as its users write it."""

import argparse

import torch
from diffusers import FluxPipeline

import pipelines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()

    folder = pipelines.flux("flux")
    pipe = FluxPipeline.from_pretrained(folder, torch_dtype=torch.bfloat16)
    pipe.to("cuda")
    image = pipe(
        "a cat holding a sign that says hello world",
        height=args.size,
        width=args.size,
        guidance_scale=3.5,
        num_inference_steps=args.steps,
        max_sequence_length=512,
    ).images[0]
    image.save("cat.png")


if __name__ == "__main__":
    main()
