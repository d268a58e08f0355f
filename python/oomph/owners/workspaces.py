"""Recognizes cuBLAS workspaces, which torch allocates below every Python frame, by their size and lifetime."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Torch
    from oomph.owners.notes import Notes


def workspace_sizes(torch: Torch) -> dict[int, str]:
    """The sizes in bytes of the workspaces that torch makes for cuBLAS and cuBLASLt on this device, with their names."""
    native = torch._C
    sizes = {}
    for name, title in (("_cuda_getCublasLtWorkspaceSize", "cublasLt"), ("_cuda_getCublasWorkspaceSize", "cublas")):
        ask = getattr(native, name, None)
        if ask is not None:
            sizes[int(ask())] = title
    if not sizes:
        # Versions that cannot be asked take 32 MiB on compute capability 9.0 and else 2 x 4 MiB + 8 x 16 KiB; what
        # they take for cuBLASLt is 1 MiB, on 9.0 32 MiB.
        hopper = torch.cuda.get_device_capability()[0] == 9
        sizes[1 << 20] = "cublasLt"
        sizes[32 << 20 if hopper else (2 * 4096 + 8 * 16) << 10] = "cublas"
    return sizes


def see_workspaces(torch: Torch, snapshot: dict[str, Any], notes: Notes) -> None:
    """Name the allocations of a history that are workspaces.

    A workspace for one call is given back before anything else is allocated; one that torch keeps is never given back,
    and no tensor stands on it.
    """
    sizes = workspace_sizes(torch)
    for device, events in enumerate(snapshot["device_traces"]):
        number = notes.count(device) - sum(event["action"] == "alloc" for event in events)
        live = {}
        for event in events:
            action = event["action"]
            if action == "alloc":
                number += 1
                if event["size"] in sizes:
                    live[event["addr"]] = (number, event["size"])
            elif action == "free_requested" and event["addr"] in live:
                since, size = live.pop(event["addr"])
                if since == number:
                    notes.workspace(device, since, event["addr"], size, sizes[size])
        named = notes.addresses() if live else ()
        for address, (since, size) in live.items():
            if (device, address) not in named:
                notes.workspace(device, since, address, size, sizes[size])
