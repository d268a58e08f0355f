"""Summaries of a folder of documents with vLLM, offline."""
import argparse
import json

from vllm import LLM, SamplingParams


def load_prompts(count, length):
    return [{"prompt_token_ids": [(n * 31 + i) % 20000 + 5 for i in range(length)]} for n in range(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--documents", type=int, default=8)
    args = parser.parse_args()

    llm = LLM(model=args.model, load_format="dummy", skip_tokenizer_init=True, tensor_parallel_size=args.tensor_parallel_size)
    outputs = llm.generate(load_prompts(args.documents, 3000), SamplingParams(temperature=0.0, max_tokens=16, detokenize=False))
    for output in outputs:
        print(json.dumps({"id": output.request_id, "tokens": len(output.outputs[0].token_ids)}))
