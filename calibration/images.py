"""One setting of the image grid, run: a diffusers pipeline from text to pixels, and what each part of it took."""

import dataclasses

import torch

import image_models
import readings

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
STEPS = 2


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is run: `images` pictures of one prompt, with classifier-free guidance where `guidance` says so."""

    model: str
    task: str  # pipeline
    width: int
    height: int
    images: int
    dtype: str = "fp16"
    guidance: bool = True
    vae_slicing: bool = False
    vae_tiling: bool = False
    offload: str = "none"  # none, or model: each network on the card only while it runs


def run(setting):
    """Runs one setting on an empty card and returns its row."""
    if left := readings.clean():
        raise RuntimeError(f"{left} bytes were left on the card by the setting before {setting}")
    pipeline = image_models.build(setting.model, DTYPES[setting.dtype])
    networks = {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
    size = lambda part: readings.bytes_on_card(list(part.parameters()) + list(part.buffers()))
    encoders = sum(size(part) for name, part in networks.items() if name.startswith("text_encoder"))
    row = {"text_encoders": encoders, "denoiser": size(image_models.denoiser(pipeline)), "vae": size(pipeline.vae)}
    parameters = sum(p.numel() for part in networks.values() for p in part.parameters())
    if setting.vae_slicing:
        pipeline.vae.enable_slicing()
    if setting.vae_tiling:
        pipeline.vae.enable_tiling()
    if setting.offload == "model":
        pipeline.enable_model_cpu_offload()
    peaks, phase = readings.Peaks(), "encode"
    rest = torch.cuda.memory_allocated()
    reserved = {}

    def entered(name):
        def hook(*_):
            nonlocal phase
            if phase != name:
                peaks.end(phase)
                reserved[phase] = peaks.reserved
                phase = name
        return hook

    image_models.denoiser(pipeline).register_forward_pre_hook(entered("denoise"))
    decode = pipeline.vae.decode

    def decoding(*values, **named):
        entered("decode")()
        return decode(*values, **named)

    pipeline.vae.decode = decoding
    guidance = {} if setting.model.startswith("flux") else {"guidance_scale": 5.0 if setting.guidance else 1.0}
    pipeline("a prompt", width=setting.width, height=setting.height, num_images_per_prompt=setting.images,
             num_inference_steps=STEPS, output_type="pt", **guidance)
    peaks.end(phase)
    row |= {
        "parameters": parameters, "rest_allocated": rest, "peak_allocated": peaks.peak()[0], "peak_reserved": peaks.reserved,
        "peak_phase": peaks.peak()[1], "peak_encode": peaks.allocated["encode"], "peak_denoise": peaks.allocated["denoise"],
        "peak_decode": peaks.allocated["decode"], "reserved_after_denoise": reserved["denoise"],
    }
    pipeline.vae.decode = decode
    if setting.offload != "none":
        pipeline.remove_all_hooks()
    row["cublas_workspace"] = readings.cublas_workspaces()
    return {k: int(v) if isinstance(v, bool) else v for k, v in (dataclasses.asdict(setting) | row).items()}
