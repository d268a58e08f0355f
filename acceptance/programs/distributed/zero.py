"""DeepSpeed's ZeRO in its stages, with and without its optimizer in host memory."""

import argparse

import deepspeed
import torch
import torch.distributed as dist

import ranks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()

    torch.cuda.set_device(ranks.local_rank())
    deepspeed.init_distributed("nccl")
    # A bucket of a whole number of granules, so that nothing is lost to rounding.
    zero = {"stage": args.stage, "reduce_bucket_size": 2**23}
    if args.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
    }
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=args.stage == 3):
        model = ranks.blocks()
    optimizer = torch.optim.AdamW(model.parameters())
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for _ in range(args.steps):
        inputs = torch.randn(4, ranks.WIDTH, device="cuda", dtype=torch.bfloat16)
        engine.backward(engine(inputs).pow(2).mean())
        engine.step()
    del inputs
    ranks.tell(dist.get_rank(), skipped=engine.skipped_steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
