"""Runs jobs of more processes than this machine can hold.

Only a few ranks of a job run, by default the first two and the last one; `OOMPH_RANKS` names them in their
environments. The others are answered for: launchers start only those that run (`starters`), their store answers for the
rest (`store`), and the virtual NCCL takes what does not run to be like what does.

Nothing here imports torch; callbacks come with its modules.
"""

from __future__ import annotations

import os

from oomph import hook

VARIABLE = "OOMPH_RANKS"
"""The ranks that run, with commas, in the environment of each of them."""

FEW = 4
"""A job of so many ranks is run whole, unless the user named the ranks."""

USUAL = "0,1,last"


def chosen(names: str | None, world: int) -> list[int] | None:
    """The ranks of a job of `world` ranks that run, in order, or None where all of them do.

    `names` is what the user gave (`0,1,last`, `0-3`, `all`), or None. Rank 0 always runs, because the others meet at
    its store; names beyond the job are left out.
    """
    if names is None:
        if world <= FEW:
            return None
        names = USUAL
    known = {0}
    for name in str(names).replace(" ", "").split(","):
        first, dash, end = name.partition("-")
        if name == "all":
            return None
        if name == "last":
            known.add(world - 1)
        elif first.isdigit() and (not dash or end.isdigit()):
            known.update(range(int(first), min(int(end or first), world - 1) + 1))
    ranks = sorted(rank for rank in known if rank < world)
    return None if len(ranks) == world else ranks


def running() -> list[int] | None:
    """The ranks that run, where not all ranks of this process's job do; else None."""
    numbers = [int(name) for name in os.environ.get(VARIABLE, "").split(",") if name.isdigit()]
    return numbers or None


def install(names: str | None) -> None:
    """Attach to the launchers, and in a rank to its process groups."""
    from oomph.ranks import starters

    hook.on_import("torch.distributed.launcher.api", lambda module: starters.elastic(module, names))
    hook.on_import("deepspeed.launcher.launch", lambda module: starters.deepspeed(module, names))
    hook.on_import("deepspeed.launcher.runner", starters.deepspeed_runner)
    hook.on_import("torch.multiprocessing.spawn", lambda module: starters.spawn(module, names))
    if running():
        from oomph.ranks import groups

        hook.on_import("torch.distributed.rendezvous", groups.rendezvous)
        hook.on_import("torch.distributed.distributed_c10d", groups.process_groups)
