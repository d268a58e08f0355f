"""Four images of a small SDXL pipeline; `--by-hand REMEDY` is the same program with that remedy written into it."""

import argparse
import os
import sys

import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizerFast

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common import print_peaks


def tokenizer():
    """A tokenizer of a few words: only the length of what it returns matters here."""
    words = {"[PAD]": 0, "<|startoftext|>": 1, "<|endoftext|>": 2, "[UNK]": 3}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", model_max_length=77)


def pipeline():
    text = dict(num_hidden_layers=2, num_attention_heads=4, vocab_size=100, intermediate_size=256)
    half = torch.float16
    return StableDiffusionXLPipeline(
        vae=AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(64, 128, 256, 256),
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
            force_upcast=False,
        ).to(half),
        text_encoder=CLIPTextModel(CLIPTextConfig(hidden_size=64, **text)).to(half),
        text_encoder_2=CLIPTextModelWithProjection(
            CLIPTextConfig(hidden_size=64, projection_dim=64, **text)
        ).to(half),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        unet=UNet2DConditionModel(
            sample_size=64,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(128, 256),
            transformer_layers_per_block=(1, 2),
            attention_head_dim=(4, 8),
            cross_attention_dim=128,
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=32,
            projection_class_embeddings_input_dim=64 + 6 * 32,
        ).to(half),
        scheduler=EulerDiscreteScheduler(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-hand", default="")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--size", type=int, default=512)
    args = parser.parse_args()

    pipe = pipeline()
    pipe.set_progress_bar_config(disable=True)
    if args.by_hand == "model-cpu-offload":
        pipe.enable_model_cpu_offload()
    elif args.by_hand == "sequential-cpu-offload":
        pipe.enable_sequential_cpu_offload()
    elif args.by_hand == "group-offload":
        pipe.enable_group_offload(onload_device=torch.device("cuda"), offload_type="leaf_level", use_stream=True)
    elif args.by_hand == "fp8-weights":
        pipe.unet.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.float16)
        pipe.to("cuda")
    else:
        pipe.to("cuda")
    if args.by_hand == "vae-slicing":
        pipe.vae.enable_slicing()
    if args.by_hand == "vae-tiling":
        pipe.vae.enable_tiling()
    if args.by_hand == "attention-slicing":
        pipe.enable_attention_slicing()
    size = {"height": args.size, "width": args.size, "num_inference_steps": 2}
    if args.by_hand == "one-image-at-a-time":
        for _ in range(args.images):
            pipe("a cat", num_images_per_prompt=1, **size)
    elif args.by_hand == "text-encoders-away":
        embeds = encoded(pipe, args.images)
        pipe(num_images_per_prompt=args.images, **embeds, **size)
    else:
        pipe("a cat", num_images_per_prompt=args.images, **size)
    print_peaks()


@torch.no_grad()
def encoded(pipe, images):
    """The prompt as the denoiser takes it; the encoders leave the card after that."""
    names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
    embeds = dict(zip(names, pipe.encode_prompt("a cat", device="cuda", num_images_per_prompt=1)))
    pipe.text_encoder.to("cpu")
    pipe.text_encoder_2.to("cpu")
    return embeds


if __name__ == "__main__":
    main()
