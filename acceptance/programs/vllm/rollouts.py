"""A small loop of reinforcement learning: vLLM writes, a policy on the same card learns from it."""
import argparse
import os

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from vllm import LLM, SamplingParams


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--completion", type=int, default=32)
    args = parser.parse_args()

    llm = LLM(
        model=args.model,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=2048,
        gpu_memory_utilization=0.6,
    )
    policy = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.model), torch_dtype=torch.bfloat16).cuda()
    policy.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    params = SamplingParams(n=args.group_size, max_tokens=args.completion, ignore_eos=True, detokenize=False)

    for step in range(args.steps):
        answer = llm.generate([{"prompt_token_ids": list(range(1, 1000))}], params)[0]
        rows = [answer.prompt_token_ids + list(one.token_ids) for one in answer.outputs]
        tokens = torch.tensor(rows, device="cuda")
        logits = policy(tokens).logits[:, :-1].float()
        chosen = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        reward = torch.randn(len(rows), 1, device="cuda")
        loss = -(reward * chosen).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
