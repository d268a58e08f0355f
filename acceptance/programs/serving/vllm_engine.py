"""Starts vLLM's engine on a model of a known shape with made-up weights, and says how much KV cache it gets.

    python vllm_engine.py llama-3.1-8b --max-model-len 8192 [--eager] [--cards 2] [--generate 8]

Prints `blocks=`, `tokens=` and, with --generate, `generated=`: how many tokens a request of four gave.
"""

import argparse
import json
import os
import tempfile

SHAPES = {
    "llama-2-7b": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096,
        "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    },
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    },
    "qwen2.5-7b": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
        "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    },
    "tiny": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 1024,
        "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    },
}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--max-model-len", type=int, default=4096)
    # An engine of the server has other defaults than one of a script; who compares with a server's log gives them.
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--utilization", type=float, default=0.9)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--generate", type=int, default=0, metavar="TOKENS")
    return parser.parse_args()


def main():
    asked = arguments()
    # vLLM's workers are processes that start from scratch, so this is where it is imported.
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory() as folder:
        config = {"torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
                  "tie_word_embeddings": False, **SHAPES[asked.shape]}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        more = {"max_num_batched_tokens": asked.max_num_batched_tokens, "max_num_seqs": asked.max_num_seqs}
        engine = LLM(
            model=folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16",
            max_model_len=asked.max_model_len, gpu_memory_utilization=asked.utilization,
            enforce_eager=asked.eager, tensor_parallel_size=asked.cards,
            **{name: value for name, value in more.items() if value is not None},
        )
        cache = engine.llm_engine.vllm_config.cache_config
        print(f"blocks={cache.num_gpu_blocks}")
        print(f"tokens={cache.num_gpu_blocks * cache.block_size}", flush=True)
        if asked.generate:
            wish = SamplingParams(max_tokens=asked.generate, ignore_eos=True, detokenize=False)
            answer = engine.generate([{"prompt_token_ids": [1, 2, 3, 4]}], wish)
            print(f"generated={len(answer[0].outputs[0].token_ids)}")


if __name__ == "__main__":
    main()
