"""Writes answers with vLLM and scores them with a reward model on the same card (best of n)."""
import argparse

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification
from vllm import LLM, SamplingParams


def score(judge, sequences):
    longest = max(len(tokens) for tokens in sequences)
    batch = torch.zeros(len(sequences), longest, dtype=torch.long, device="cuda")
    for row, tokens in enumerate(sequences):
        batch[row, : len(tokens)] = torch.tensor(tokens, device="cuda")
    with torch.no_grad():
        return judge(batch).logits[:, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("judge")
    parser.add_argument("--n", type=int, default=8)
    args = parser.parse_args()

    config = AutoConfig.from_pretrained(args.judge, num_labels=1, pad_token_id=0)
    judge = AutoModelForSequenceClassification.from_config(config, torch_dtype=torch.bfloat16).cuda().eval()

    llm = LLM(model=args.model, load_format="dummy", skip_tokenizer_init=True, max_model_len=4096, enforce_eager=True)
    params = SamplingParams(n=args.n, max_tokens=8, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": list(range(1, 200))} for _ in range(4)]
    for answer in llm.generate(prompts, params):
        scores = score(judge, [answer.prompt_token_ids + list(one.token_ids) for one in answer.outputs])
        print("best", int(scores.argmax()))


if __name__ == "__main__":
    main()
