"""Several cards in one process: what is placed where, and what the cards see of each other."""

import torch
from torch import nn

import ranks


def one_named_card():
    return [ranks.blocks().to("cuda:1")(torch.randn(4, ranks.WIDTH, device="cuda:1"))]


def data_parallel():
    model = nn.DataParallel(ranks.blocks().cuda())
    model(torch.randn(64, ranks.WIDTH, device="cuda")).mean().backward()
    return [model]


def automatic_map():
    from accelerate import dispatch_model, infer_auto_device_map

    model = ranks.blocks()
    half = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()) // 2
    placed = infer_auto_device_map(
        model, max_memory={0: half + 2**24, 1: 2 * half}, no_split_module_classes=["Block"]
    )
    model = dispatch_model(model, placed)
    with torch.no_grad():
        return [model, model(torch.randn(4, ranks.WIDTH, device="cuda:0"))]


def main():
    for use in (one_named_card, data_parallel, automatic_map):
        held = use()
        sizes = [torch.cuda.memory_allocated(card) for card in range(torch.cuda.device_count())]
        print(f"{use.__name__}={','.join(map(str, sizes))}")
        del held
        torch.cuda.empty_cache()
    moved = torch.arange(8, device="cuda:0").to("cuda:1")
    print(f"moved={int(moved.sum())}")
    for card in range(torch.cuda.device_count()):
        print(f"card{card}.name={torch.cuda.get_device_name(card)}")
        print(f"card{card}.max_memory_reserved={torch.cuda.max_memory_reserved(card)}", flush=True)


if __name__ == "__main__":
    main()
