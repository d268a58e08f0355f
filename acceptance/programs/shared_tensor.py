"""Sends a tensor on the card to another process, which computes with it and a tensor of its own."""

import torch
import torch.multiprocessing as multiprocessing

SHARED, OWN = 1 << 30, 256 << 20


def consume(incoming, outgoing):
    shared = incoming.get()
    own = torch.empty(OWN, dtype=torch.uint8, device="cuda")
    own.add_(shared[:OWN])
    torch.cuda.synchronize()
    outgoing.put((shared.numel(), torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()))
    del shared


def main():
    context = multiprocessing.get_context("spawn")
    to_child, to_parent = context.Queue(), context.Queue()
    child = context.Process(target=consume, args=(to_child, to_parent))
    child.start()
    tensor = torch.zeros(SHARED, dtype=torch.uint8, device="cuda")
    to_child.put(tensor)
    received, reserved, allocated = to_parent.get()
    child.join()
    print(f"received={received}")
    # The report's framework figures are the sum over the processes of a card: what is shared counts once.
    print(f"max_memory_reserved={torch.cuda.max_memory_reserved() + reserved}")
    print(f"max_memory_allocated={torch.cuda.max_memory_allocated() + allocated}", flush=True)


if __name__ == "__main__":
    main()
