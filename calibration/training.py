"""One setting of the image training grid, run: a denoiser trained as the training scripts of diffusers do it.

The autoencoder and the text encoders are frozen and lie on the card in the type of computation; images are encoded without
a graph, noise is predicted, and its error is the loss (`train_text_to_image.py`, `train_text_to_image_lora.py`,
`train_dreambooth_lora_flux.py`; DreamBooth with prior preservation is the same with twice the batch).
"""

import dataclasses
import importlib.metadata

import torch

import image_models
import readings

STEPS = 3


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is trained, on `images` pictures a step."""

    model: str
    task: str  # full or lora
    width: int
    height: int
    images: int
    dtype: str = "amp-bf16"  # fp32, or amp-bf16: what is frozen is bf16, and autocast is on
    checkpointing: str = "none"
    optimizer: str = "adamw-foreach"
    lora_rank: int = 0


SIDES = {"sd-1.5": 512, "sdxl": 1024, "sd3-medium": 1024, "pixart-sigma": 1024}


def grid():
    """The whole grid. Kinds of settings before models, so that also its beginning shows all models."""
    full = lambda **more: dict(task="full", images=1, half=False) | more
    lora = lambda **more: dict(task="lora", images=1, half=False, lora_rank=4) | more
    kinds = [
        full(checkpointing="full", optimizer="adamw-8bit"),
        lora(half=True, images=4, lora_rank=16, checkpointing="full"),
        lora(),
        full(half=True, images=2),
        full(),
        full(half=True, dtype="fp32"),
        lora(images=4, lora_rank=16),
        full(images=4, checkpointing="full"),
    ]
    for number, kind in enumerate(kinds):
        for name, side in SIDES.items():
            if name == "pixart-sigma" and kind["task"] == "lora":
                continue  # Its class has no `add_adapter`.
            side = side // 2 if kind["half"] else side
            yield Setting(name, width=side, height=side, **{key: value for key, value in kind.items() if key != "half"})
        if number in (1, 2):
            for side, images in ((512, 1), (1024, 1)) if number == 2 else ((1024, 1), (512, 4)):
                checkpointing = "none" if number == 2 else "full"
                yield Setting("flux.1-dev", "lora", side, side, images, checkpointing=checkpointing, lora_rank=16)


def optimizer(setting, trained):
    if setting.optimizer == "adamw-8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(trained)
    return torch.optim.AdamW(trained)


def prediction(setting, pipeline, network, latents, count):
    """What the network says of noisy latents; the text is what its encoders would give."""
    size = lambda *shape: torch.empty(*shape, device="cuda", dtype=latents.dtype)
    t = torch.full((count,), 10, device="cuda")
    if setting.model.startswith("sd-"):
        return network(latents, t, size(count, 77, network.config.cross_attention_dim)).sample
    if setting.model == "sdxl":
        more = {"text_embeds": size(count, 1280), "time_ids": size(count, 6)}
        return network(latents, t, size(count, 77, 2048), added_cond_kwargs=more).sample
    if setting.model == "sd3-medium":
        return network(hidden_states=latents, timestep=t, encoder_hidden_states=size(count, 333, 4096),
                       pooled_projections=size(count, 2048)).sample
    if setting.model == "pixart-sigma":
        more = {"resolution": None, "aspect_ratio": None}
        return network(latents, size(count, 300, 4096), t, added_cond_kwargs=more).sample
    height, width = latents.shape[-2] // 2, latents.shape[-1] // 2
    packed = pipeline._pack_latents(latents, count, latents.shape[1], *latents.shape[-2:])
    ids = pipeline._prepare_latent_image_ids(count, height, width, "cuda", latents.dtype)
    return network(hidden_states=packed, timestep=t / 1000, guidance=size(count), pooled_projections=size(count, 768),
                   encoder_hidden_states=size(count, 512, 4096), txt_ids=size(512, 3), img_ids=ids).sample


def run(setting):
    """Runs one setting on an empty card and returns its row."""
    if left := readings.clean():
        raise RuntimeError(f"{left} bytes were left on the card by the setting before {setting}")
    half = torch.float32 if setting.dtype == "fp32" else torch.bfloat16
    pipeline = image_models.build(setting.model, half)
    network = image_models.denoiser(pipeline)
    if setting.task == "full":
        network.float().requires_grad_(True)
    else:
        import peft

        network.add_adapter(peft.LoraConfig(r=setting.lora_rank, lora_alpha=setting.lora_rank, init_lora_weights="gaussian",
                                            target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    network.train()
    if setting.checkpointing == "full":
        network.enable_gradient_checkpointing()
    torch.cuda.empty_cache()
    trained = [p for p in network.parameters() if p.requires_grad]
    steps = optimizer(setting, trained)
    peaks = readings.Peaks()
    rest = torch.cuda.memory_allocated()
    saved = 0
    for _ in range(STEPS):
        pixels = torch.empty(setting.images, 3, setting.height, setting.width, device="cuda")
        with torch.no_grad():
            latents = pipeline.vae.encode(pixels.to(half)).latent_dist.sample() * pipeline.vae.config.scaling_factor
        peaks.end("encode")
        before = torch.cuda.memory_allocated()
        noise = torch.randn_like(latents)
        with torch.autocast("cuda", torch.bfloat16, enabled=setting.dtype != "fp32"):
            predicted = prediction(setting, pipeline, network, latents + noise, setting.images).float()
        target = torch.empty_like(predicted)
        loss = torch.nn.functional.mse_loss(predicted, target)
        saved = torch.cuda.memory_allocated() - before
        peaks.end("forward")
        del predicted
        loss.backward()
        peaks.end("backward")
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        steps.step()
        peaks.end("step")
        steps.zero_grad(set_to_none=True)
    row = {
        "trainable": sum(p.numel() for p in trained), "rest_allocated": rest, "peak_allocated": peaks.peak()[0],
        "peak_reserved": peaks.reserved, "peak_phase": peaks.peak()[1], "peak_encode": peaks.allocated["encode"],
        "peak_forward": peaks.allocated["forward"], "peak_backward": peaks.allocated["backward"],
        "peak_step": peaks.allocated["step"], "saved_for_backward": saved,
        "optimizer_state": readings.optimizer_bytes(steps),
        "peft": importlib.metadata.version("peft"), "bitsandbytes": importlib.metadata.version("bitsandbytes"),
    }
    # Whatever still knows the optimizer (a hook does) must hold nothing on the card.
    steps.state.clear()
    nothing = torch.empty(0, device="cuda")
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            for tensor in [*part.parameters(), *part.buffers()]:
                tensor.data = nothing.to(tensor.dtype)
    return dataclasses.asdict(setting) | row
