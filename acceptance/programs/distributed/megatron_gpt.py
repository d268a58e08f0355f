"""A small GPT of Megatron-Core in tensor- and data-parallel groups, trained for a few steps.

    torchrun --nproc-per-node 4 megatron_gpt.py --tensor-parallel 2
"""

import argparse

import ranks
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 4, 1024, 16, 32768, 256


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    rank, _ = ranks.start()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=args.tensor_parallel)
    tensor_parallel.model_parallel_cuda_manual_seed(0)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS, attention_dropout=0.0, hidden_dropout=0.0,
        tensor_model_parallel_size=args.tensor_parallel, bias_dropout_fusion=False,
    )
    model = GPTModel(
        config, get_gpt_layer_local_spec(), vocab_size=VOCABULARY, max_sequence_length=LENGTH,
        share_embeddings_and_output_weights=False,
    ).cuda()
    before = torch.cuda.memory_allocated()
    optimizer = torch.optim.Adam(model.parameters())
    positions = torch.arange(LENGTH, device="cuda").expand(2, -1)
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device="cuda").triu(1)
    inputs = torch.cuda.memory_allocated() - before
    group = parallel_state.get_data_parallel_group()
    for _ in range(args.steps):
        tokens = torch.randint(0, VOCABULARY, (2, LENGTH), device="cuda")
        model(tokens, positions, mask, labels=tokens).mean().backward()
        for parameter in model.parameters():
            torch.distributed.all_reduce(parameter.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
        del tokens
    own = sum(parameter.numel() for parameter in model.parameters())
    ranks.tell(rank, resting=torch.cuda.memory_allocated() - inputs, parameters=own)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
