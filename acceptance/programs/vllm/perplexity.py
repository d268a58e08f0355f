"""Perplexity of long documents under a model: vLLM with prompt_logprobs."""
import argparse
import math

from vllm import LLM, SamplingParams


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--documents", type=int, default=4)
    parser.add_argument("--length", type=int, default=32000)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.95)
    parser.add_argument("--max-num-batched-tokens", type=int, default=32768)
    args = parser.parse_args()

    llm = LLM(
        model=args.model,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=32768,
        max_num_batched_tokens=args.max_num_batched_tokens,
        gpu_memory_utilization=args.gpu_memory_utilization,
    )
    params = SamplingParams(max_tokens=1, prompt_logprobs=1, detokenize=False, ignore_eos=True)
    for number in range(args.documents):
        prompt = {"prompt_token_ids": [(number * 7919 + at) % 30000 for at in range(args.length)]}
        answer = llm.generate([prompt], params)[0]
        found = [next(iter(entry.values())).logprob for entry in answer.prompt_logprobs[1:]]
        print(f"document {number}: {-sum(found) / len(found):.3f}")


if __name__ == "__main__":
    main()
