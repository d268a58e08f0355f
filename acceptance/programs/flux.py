"""Flux.1-dev's shape in bf16: everything on the card, one image of 1024x1024 in 50 steps."""

import argparse

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast, T5Config, T5EncoderModel

from common import build, print_peaks


def tokenizer(max_length):
    """A tokenizer of a few words: only the length of what it returns matters here."""
    words = {"[PAD]": 0, "</s>": 1, "[UNK]": 2}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        eos_token="</s>",
        unk_token="[UNK]",
        model_max_length=max_length,
    )


def pipeline(args):
    bf16 = torch.bfloat16
    clip = CLIPTextConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, projection_dim=768
    )
    t5 = T5Config(
        d_model=4096,
        d_ff=10240,
        d_kv=64,
        num_heads=64,
        num_layers=args.t5_layers,
        vocab_size=32128,
        feed_forward_proj="gated-gelu",
        use_cache=False,
        is_encoder_decoder=False,
        tie_word_embeddings=False,
    )
    return FluxPipeline(
        text_encoder=build(lambda: CLIPTextModel(clip), bf16).eval(),
        text_encoder_2=build(lambda: T5EncoderModel(t5), bf16).eval(),
        tokenizer=tokenizer(77),
        tokenizer_2=tokenizer(512),
        transformer=build(
            lambda: FluxTransformer2DModel(
                num_layers=args.layers, num_single_layers=2 * args.layers, guidance_embeds=True
            ),
            bf16,
        ).eval(),
        vae=build(
            lambda: AutoencoderKL(
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
                block_out_channels=(128, 256, 512, 512),
                layers_per_block=2,
                latent_channels=16,
                sample_size=1024,
                scaling_factor=0.3611,
                shift_factor=0.1159,
                use_quant_conv=False,
                use_post_quant_conv=False,
            ),
            bf16,
        ).eval(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--layers", type=int, default=19)
    parser.add_argument("--t5-layers", type=int, default=24)
    args = parser.parse_args()

    pipe = pipeline(args)
    print(f"memory_loaded={torch.cuda.memory_reserved()}")
    image = pipe(
        "a cat holding a sign that says hello world",
        height=args.size,
        width=args.size,
        guidance_scale=3.5,
        num_inference_steps=args.steps,
        max_sequence_length=512,
    ).images[0]
    print(f"image={image.size}")
    print_peaks()


if __name__ == "__main__":
    main()
