"""Writes models.json: what transformers and diffusers build, without memory, of every built-in configuration.

Usage: python make.py [--lists FOLDER] [NAME...] > models.json

Each network is built on PyTorch's meta device from the configuration in ../../data/models. Of its parameters and
buffers the file keeps their number, the sums, and a digest of their names and shapes; --lists writes them all out.
"""

import argparse
import json
import pathlib
import sys
import tomllib

import diffusers
import torch
import transformers
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

DATA = pathlib.Path(__file__).parents[2] / "data/models"
# A 0 in the data stands for an empty value of these.
EMPTY = ("sliding_window", "q_lora_rank")


def with_empty(config):
    if isinstance(config, dict):
        return {key: None if key in EMPTY and value == 0 else with_empty(value) for key, value in config.items()}
    return config


def build(config):
    config = with_empty(dict(config))
    class_name = config.pop("_class_name", None)
    with torch.device("meta"):
        if class_name:
            return getattr(diffusers, class_name)(**config)
        family = config.pop("model_type")
        if config["architectures"][0] == "StableDiffusionSafetyChecker":
            return StableDiffusionSafetyChecker(transformers.CLIPConfig(**config))
        cls = getattr(transformers, config["architectures"][0])
        tied = config.get("tie_word_embeddings")
        config = transformers.CONFIG_MAPPING[family](**config)
        model = cls._from_config(config) if hasattr(cls, "_from_config") else cls(config)
        if tied is False and family in ("t5", "mt5") and hasattr(model, "lm_head"):
            # The class claims a tie whatever the file says; published weights without one are loaded without one.
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


def fnv(lines):
    digest = 0xCBF29CE484222325
    for line in lines:
        for byte in (line + "\n").encode():
            digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def named(model):
    """Parameters by name; one that has several is called by that of the embedding, whichever comes first."""
    names = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        known = names.get(id(tensor))
        if known is None or ("embeddings" in name and "embeddings" not in known[0]):
            names[id(tensor)] = (name, tensor)
    return names.values()


def describe(model):
    parameters = [(name, list(tensor.shape), tensor) for name, tensor in named(model)]
    buffers = [(name, list(tensor.shape), tensor) for name, tensor in model.named_buffers()]
    lines = sorted(f"{name} {shape}".replace(", ", ",") for name, shape, _ in parameters)
    buffer_lines = sorted(f"{name} {shape}".replace(", ", ",") for name, shape, _ in buffers)
    return lines, buffer_lines, {
        "parameters": sum(tensor.numel() for _, _, tensor in parameters),
        "tensors": len(parameters),
        "digest": fnv(lines),
        "buffers": len(buffers),
        "buffer_elements": sum(tensor.numel() for _, _, tensor in buffers),
        "buffer_digest": fnv(buffer_lines),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lists", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    out = {}
    for path in sorted(DATA.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for entry in content.get("model", []) + content.get("network", []):
            name = entry["name"]
            if "config" not in entry or entry.get("library") or (arguments.names and name not in arguments.names):
                continue
            try:
                lines, buffers, out[name] = describe(build(entry["config"]))
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
                continue
            if arguments.lists:
                arguments.lists.mkdir(exist_ok=True)
                (arguments.lists / name).write_text("\n".join(lines + ["--"] + buffers) + "\n")
            print(name, out[name]["parameters"], file=sys.stderr)
    versions = {"transformers": transformers.__version__, "diffusers": diffusers.__version__, "torch": torch.__version__}
    json.dump({"versions": versions, "networks": out}, sys.stdout, indent=1, sort_keys=True)
    print()


main()
