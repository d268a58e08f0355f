"""Writes defaults.json: what the configuration classes of transformers have where a config.json leaves a key out.

Usage: python make_defaults.py > defaults.json   (with transformers installed)
"""

import inspect
import json
import sys

import transformers
from transformers import CONFIG_MAPPING

TYPES = """albert bart bert bloom clip clip_text_model clip_vision_model cohere deberta-v2 deepseek_v2 deepseek_v3 deit
dinov2 distilbert electra falcon gemma gemma2 gemma3_text glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite
llama llama4_text llama4_vision_model mbart mistral mixtral mpt mt5 olmo olmo2 opt pegasus phi phi3 phimoe qwen2
qwen2_moe qwen3 qwen3_moe roberta siglip siglip_text_model siglip_vision_model smollm3 stablelm starcoder2 t5 umt5 vit
whisper xlm-roberta""".split()

# What is read of none of these: names of tokens, labels, sub-configurations and settings of generation.
DROPPED = ("architectures", "id2label", "label2id", "transformers_version", "layer_types", "moe_layers", "rope_parameters",
           "output_hidden_states", "return_dict", "chunk_size_feed_forward", "is_encoder_decoder", "use_cache")


def main():
    out = {}
    for name in TYPES:
        # Of the class and not of an object: an object fills in what follows from other values.
        signature = inspect.signature(CONFIG_MAPPING[name].__init__).parameters
        values = {}
        for key, value in ((key, parameter.default) for key, parameter in signature.items()):
            plain = isinstance(value, (bool, int, float, str)) and not key.startswith("_name")
            if plain and key not in DROPPED and "token" not in key and "initializer" not in key and value != "":
                values[key] = value
        out[name] = values
    print("{")
    for index, (name, values) in enumerate(sorted(out.items())):
        print(f"  {json.dumps(name)}: {json.dumps(values)}" + ("," if index + 1 < len(out) else ""))
    print("}")
    print(f"made with transformers {transformers.__version__}", file=sys.stderr)


main()
