"""What every acceptance program shares: the two lines that the tests compare with the report."""

import torch


def device():
    """The card, or the CPU where there is none, so that a program can be tried with tiny shapes anywhere."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def print_peaks():
    """Print the allocator's own peaks on card 0. The tests expect these as the last lines of stdout."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"max_memory_reserved={torch.cuda.max_memory_reserved()}")
    print(f"max_memory_allocated={torch.cuda.max_memory_allocated()}", flush=True)


def build(make, dtype=torch.float32):
    """Make a model and place it on the card as `from_pretrained(..., dtype=dtype).to(device)` would.

    There are no weights to read, and a random 12 B model would need 24 GB of host memory and minutes of
    random numbers. So the parameters are made without storage and only get it on the card, one by one
    and in the order of `Module.to`; buffers are real, because code reads their values.
    """
    from accelerate import init_empty_weights

    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with init_empty_weights(include_buffers=False):
            model = make()
    finally:
        torch.set_default_dtype(default)

    # What is made without storage is no longer shared, and neither is what is placed, so both are tied again.
    tie = getattr(model, "tie_weights", lambda: None)
    tie()
    placed = {}

    def place(tensor):
        if not tensor.is_meta:
            return tensor.to(device())
        if id(tensor) not in placed:
            placed[id(tensor)] = torch.empty_like(tensor, device=device())
        return placed[id(tensor)]

    model._apply(place)
    tie()
    return model
