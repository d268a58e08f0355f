"""Folders of published image pipelines as a download leaves them, but for the weights: `--random-weights` makes those."""

import json
import os

from diffusers import AutoencoderKL, EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPTextConfig, PreTrainedTokenizerFast, T5Config


def _tokenizer(length):
    """A tokenizer of a few words: only the length of what it returns matters here."""
    words = {"[PAD]": 0, "</s>": 1, "[UNK]": 2}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", eos_token="</s>", unk_token="[UNK]", model_max_length=length
    )


def _clip(hidden, layers, heads, projection, kind):
    config = CLIPTextConfig(
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        projection_dim=projection,
    )
    config.architectures = [kind]
    return config


def _vae(channels, **others):
    return dict(
        _class_name=AutoencoderKL.__name__,
        in_channels=3,
        out_channels=3,
        down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4,
        block_out_channels=[128, 256, 512, 512],
        layers_per_block=2,
        latent_channels=channels,
        sample_size=1024,
        **others,
    )


def _write(folder, pipeline, parts):
    """Write each part's files, and the index that names the parts' classes."""
    index = {"_class_name": pipeline}
    for name, (library, kind, part) in parts.items():
        index[name] = [library, kind]
        if part is None:
            continue
        place = os.path.join(folder, name)
        os.makedirs(place, exist_ok=True)
        if isinstance(part, dict):
            with open(os.path.join(place, "config.json"), "w") as file:
                json.dump(part, file)
        else:
            part.save_pretrained(place)
    with open(os.path.join(folder, "model_index.json"), "w") as file:
        json.dump(index, file)
    return folder


def sd(folder):
    """Stable Diffusion 1.5: a UNet of 0.86 G weights, one text encoder, a VAE."""
    unet = dict(
        _class_name="UNet2DConditionModel",
        sample_size=64,
        down_block_types=["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
        up_block_types=["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
        block_out_channels=[320, 640, 1280, 1280],
        attention_head_dim=8,
        cross_attention_dim=768,
    )
    return _write(
        folder,
        "StableDiffusionPipeline",
        {
            "vae": ("diffusers", "AutoencoderKL", dict(_vae(4, scaling_factor=0.18215), sample_size=512)),
            "text_encoder": ("transformers", "CLIPTextModel", _clip(768, 12, 12, 768, "CLIPTextModel")),
            "tokenizer": ("transformers", "PreTrainedTokenizerFast", _tokenizer(77)),
            "unet": ("diffusers", "UNet2DConditionModel", unet),
            "scheduler": ("diffusers", "EulerDiscreteScheduler", EulerDiscreteScheduler(steps_offset=1)),
            "safety_checker": (None, None, None),
            "feature_extractor": (None, None, None),
        },
    )


def sdxl(folder):
    """Stable Diffusion XL 1.0: a UNet of 2.57 G weights, two text encoders, a VAE that decodes in fp32."""
    unet = dict(
        _class_name="UNet2DConditionModel",
        sample_size=128,
        down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        block_out_channels=[320, 640, 1280],
        transformer_layers_per_block=[1, 2, 10],
        attention_head_dim=[5, 10, 20],
        cross_attention_dim=2048,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )
    return _write(
        folder,
        "StableDiffusionXLPipeline",
        {
            "vae": ("diffusers", "AutoencoderKL", _vae(4, scaling_factor=0.13025, force_upcast=True)),
            "text_encoder": ("transformers", "CLIPTextModel", _clip(768, 12, 12, 768, "CLIPTextModel")),
            "text_encoder_2": (
                "transformers",
                "CLIPTextModelWithProjection",
                _clip(1280, 32, 20, 1280, "CLIPTextModelWithProjection"),
            ),
            "tokenizer": ("transformers", "PreTrainedTokenizerFast", _tokenizer(77)),
            "tokenizer_2": ("transformers", "PreTrainedTokenizerFast", _tokenizer(77)),
            "unet": ("diffusers", "UNet2DConditionModel", unet),
            "scheduler": ("diffusers", "EulerDiscreteScheduler", EulerDiscreteScheduler()),
        },
    )


def flux(folder):
    """Flux.1-dev: a transformer of 11.9 G weights, T5-XXL and CLIP-L, a VAE of 16 channels."""
    t5 = T5Config(
        d_model=4096,
        d_ff=10240,
        d_kv=64,
        num_heads=64,
        num_layers=24,
        vocab_size=32128,
        feed_forward_proj="gated-gelu",
        use_cache=False,
        is_encoder_decoder=False,
        tie_word_embeddings=False,
    )
    t5.architectures = ["T5EncoderModel"]
    vae = _vae(
        16, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False, force_upcast=True
    )
    transformer = dict(
        _class_name="FluxTransformer2DModel", num_layers=19, num_single_layers=38, guidance_embeds=True
    )
    return _write(
        folder,
        "FluxPipeline",
        {
            "scheduler": (
                "diffusers",
                "FlowMatchEulerDiscreteScheduler",
                FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
            ),
            "vae": ("diffusers", "AutoencoderKL", vae),
            "text_encoder": ("transformers", "CLIPTextModel", _clip(768, 12, 12, 768, "CLIPTextModel")),
            "tokenizer": ("transformers", "PreTrainedTokenizerFast", _tokenizer(77)),
            "text_encoder_2": ("transformers", "T5EncoderModel", t5),
            "tokenizer_2": ("transformers", "PreTrainedTokenizerFast", _tokenizer(512)),
            "transformer": ("diffusers", "FluxTransformer2DModel", transformer),
        },
    )
