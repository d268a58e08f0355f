"""The image models of the grid, as diffusers pipelines built from their public configurations with unset weights."""

import diffusers as df
import torch
import transformers as tf

CLIP_L = dict(vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
              projection_dim=768)
OPENCLIP_H = dict(vocab_size=49408, hidden_size=1024, intermediate_size=4096, num_hidden_layers=23, num_attention_heads=16,
                  hidden_act="gelu", projection_dim=512)
OPENCLIP_G = dict(vocab_size=49408, hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20,
                  hidden_act="gelu", projection_dim=1280)
T5_XXL = dict(vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64,
              feed_forward_proj="gated-gelu", tie_word_embeddings=False, is_encoder_decoder=False, use_cache=False)
VAE = dict(down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
           block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4, sample_size=512)
VAE_XL = VAE | dict(sample_size=1024, force_upcast=True, scaling_factor=0.13025)
VAE_16 = VAE | dict(latent_channels=16, sample_size=1024, force_upcast=True, use_quant_conv=False,
                    use_post_quant_conv=False, scaling_factor=1.5305, shift_factor=0.0609)
UNET_XL = dict(sample_size=128, block_out_channels=(320, 640, 1280), cross_attention_dim=2048,
               down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
               up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
               transformer_layers_per_block=(1, 2, 10), attention_head_dim=(5, 10, 20), use_linear_projection=True,
               addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816)


class Tokenizer:
    """Replaces a tokenizer: any text becomes as many tokens as the model takes."""

    def __init__(self, length):
        self.model_max_length = length
        self.added_tokens_encoder = {}

    def tokenize(self, text, **_):
        """No token of a prompt stands for a learned concept."""
        return [text]

    def __call__(self, text, padding=None, max_length=None, **_):
        count = 1 if isinstance(text, str) else len(text)
        length = (max_length or self.model_max_length) if padding == "max_length" else 8
        ids = torch.ones(count, length, dtype=torch.long)
        return tf.BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def component(dtype, kind, configuration=None, **values):
    """One network on the card, in inference mode."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            network = kind(configuration) if configuration is not None else kind(**values)
    finally:
        torch.set_default_dtype(default)
    network.to_empty(device="cuda")
    if hasattr(network, "tie_weights"):
        network.tie_weights()
    return network.eval().requires_grad_(False)


def clip(dtype, values, projection=False):
    return component(dtype, tf.CLIPTextModelWithProjection if projection else tf.CLIPTextModel, tf.CLIPTextConfig(**values))


def t5(dtype):
    return component(dtype, tf.T5EncoderModel, tf.T5Config(**T5_XXL))


def sd15(dtype):
    return df.StableDiffusionPipeline(
        vae=component(dtype, df.AutoencoderKL, **VAE), text_encoder=clip(dtype, CLIP_L), tokenizer=Tokenizer(77),
        unet=component(dtype, df.UNet2DConditionModel, sample_size=64, cross_attention_dim=768, attention_head_dim=8),
        scheduler=df.DDIMScheduler(), safety_checker=None, feature_extractor=None, requires_safety_checker=False)


def sd21(dtype):
    return df.StableDiffusionPipeline(
        vae=component(dtype, df.AutoencoderKL, **VAE | {"sample_size": 768}), text_encoder=clip(dtype, OPENCLIP_H),
        tokenizer=Tokenizer(77),
        unet=component(dtype, df.UNet2DConditionModel, sample_size=96, cross_attention_dim=1024,
                       attention_head_dim=(5, 10, 20, 20), use_linear_projection=True),
        scheduler=df.DDIMScheduler(), safety_checker=None, feature_extractor=None, requires_safety_checker=False)


def sdxl(dtype):
    return df.StableDiffusionXLPipeline(
        vae=component(dtype, df.AutoencoderKL, **VAE_XL), text_encoder=clip(dtype, CLIP_L),
        text_encoder_2=clip(dtype, OPENCLIP_G, projection=True), tokenizer=Tokenizer(77), tokenizer_2=Tokenizer(77),
        unet=component(dtype, df.UNet2DConditionModel, **UNET_XL), scheduler=df.DDIMScheduler(), add_watermarker=False)


def sd3(dtype):
    return df.StableDiffusion3Pipeline(
        vae=component(dtype, df.AutoencoderKL, **VAE_16), text_encoder=clip(dtype, CLIP_L, projection=True),
        text_encoder_2=clip(dtype, OPENCLIP_G, projection=True), text_encoder_3=t5(dtype), tokenizer=Tokenizer(77),
        tokenizer_2=Tokenizer(77), tokenizer_3=Tokenizer(512),
        transformer=component(dtype, df.SD3Transformer2DModel, sample_size=128, num_layers=24, num_attention_heads=24,
                              caption_projection_dim=1536, joint_attention_dim=4096, pos_embed_max_size=192),
        scheduler=df.FlowMatchEulerDiscreteScheduler(shift=3.0))


def flux(dtype):
    return df.FluxPipeline(
        vae=component(dtype, df.AutoencoderKL, **VAE_16 | {"scaling_factor": 0.3611, "shift_factor": 0.1159}),
        text_encoder=clip(dtype, CLIP_L), text_encoder_2=t5(dtype), tokenizer=Tokenizer(77), tokenizer_2=Tokenizer(512),
        transformer=component(dtype, df.FluxTransformer2DModel, guidance_embeds=True),
        scheduler=df.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True))


def pixart(dtype):
    return df.PixArtSigmaPipeline(
        vae=component(dtype, df.AutoencoderKL, **VAE_XL), text_encoder=t5(dtype), tokenizer=Tokenizer(512),
        transformer=component(dtype, df.PixArtTransformer2DModel, sample_size=128, num_layers=28, num_attention_heads=16,
                              attention_head_dim=72, cross_attention_dim=1152, caption_channels=4096, out_channels=8,
                              norm_type="ada_norm_single", use_additional_conditions=False, interpolation_scale=2),
        scheduler=df.DPMSolverMultistepScheduler())


# name: (how the pipeline is made, parameters of its denoiser)
MODELS = {
    "sd-1.5": (sd15, 859_520_964),
    "sd-2.1": (sd21, 865_910_724),
    "sdxl": (sdxl, 2_567_463_684),
    "sd3-medium": (sd3, 2_028_328_000),
    "flux.1-dev": (flux, 11_901_408_320),
    "pixart-sigma": (pixart, 610_856_096),
}


def denoiser(pipeline):
    """The network that runs at every step."""
    return getattr(pipeline, "unet", None) or pipeline.transformer


def build(name, dtype):
    """The whole pipeline on the card; its denoiser has the published number of parameters."""
    make, published = MODELS[name]
    pipeline = make(dtype)
    parameters = sum(p.numel() for p in denoiser(pipeline).parameters())
    if parameters != published:
        raise ValueError(f"the denoiser of {name} has {parameters} parameters and should have {published}")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
