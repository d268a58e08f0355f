"""Readings of PyTorch's allocator: peaks that survive resets, bytes of tensors, and a card left empty."""

import gc

import torch


class Peaks:
    """Follows the peaks of one setting over its phases.

    PyTorch keeps one peak of each kind; a reset at every phase separates the phases, and the largest of each is kept
    here.
    """

    def __init__(self):
        self.allocated = {}
        self.reserved = 0
        torch.cuda.reset_peak_memory_stats()

    def end(self, phase):
        """Ends a phase: keeps its peak of allocated bytes and starts the next."""
        self.allocated[phase] = max(self.allocated.get(phase, 0), torch.cuda.max_memory_allocated())
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()

    def peak(self):
        """The largest peak of allocated bytes over all phases, and the phase."""
        return max((size, phase) for phase, size in self.allocated.items())


def rounded(size):
    """Bytes as the caching allocator hands them out, in multiples of 512."""
    return -(-size // 512) * 512


def bytes_on_card(tensors):
    """Bytes that the allocator counts for these tensors' storages, each storage once."""
    storages = {}
    for tensor in tensors:
        if tensor is not None and tensor.is_cuda:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = rounded(storage.nbytes())
    return sum(storages.values())


def optimizer_bytes(optimizer):
    """Bytes of an optimizer's state on the card."""
    return bytes_on_card(
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    )


def cublas_workspaces():
    """Gives back cuBLAS's workspaces and says how many bytes they were. They live in PyTorch's allocator."""
    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    return before - torch.cuda.memory_allocated()


def clean():
    """Leaves the card as a new process finds it, or says what was left on it."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    left = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    return left
