"""Summarises a few documents with vLLM, offline."""
import argparse

from vllm import LLM, SamplingParams


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--max-len", type=int, default=131072)
    args = parser.parse_args()
    llm = LLM(
        model=args.model,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=args.max_len,
        gpu_memory_utilization=0.9,
    )
    params = SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False)
    answers = llm.generate([{"prompt_token_ids": [1, 2, 3, 4]}] * 4, params)
    print(f"generated={len(answers[0].outputs[0].token_ids)}")


if __name__ == "__main__":
    main()
