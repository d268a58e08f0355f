"""Sets up process groups of which not all ranks run: how a rank meets the others, and what their store says for the
absent."""

from __future__ import annotations

import functools
import inspect
import os

from oomph import ranks
from oomph.ranks import gloo
from oomph.ranks import store as stores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Library


def rendezvous(module: Library) -> None:
    """Rank 0 does not wait until every rank has come to its store."""
    original = module.TCPStore

    @functools.wraps(original)
    def meet(*args, **options):
        options["wait_for_workers"] = False
        return original(*args, **options)

    module.TCPStore = meet


def process_groups(module: Library) -> None:
    """Give every group a store that answers for its absent ranks, and leave out what would wait for them."""
    # The store answers in Python, which PyTorch's monitors may not wait for while a process ends.
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
    os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
    running = ranks.running() or []
    answering = stores.answering(module.Store)
    original = module._new_process_group_helper
    shape = inspect.signature(original)
    meeting, shares = gloo.install(module)
    world: list[tuple[Any, list[int]]] = []

    @functools.wraps(original)
    def _new_process_group_helper(*args, **options):
        call = shape.bind(*args, **options)
        given = call.arguments
        if not world:
            # The default group comes first, and without a list of its ranks.
            world.append((given["store"], list(range(given["group_size"]))))
        plain, everybody = world[0]
        members = list(given["global_ranks_in_group"] or everybody)
        absent = any(rank not in running for rank in members)
        try:
            if not absent:
                return original(*call.args, **call.kwargs)
            present = [place for place, rank in enumerate(members) if rank in running]
            name = str(given["group_name"])
            given["store"] = answering(plain, name, present)
            shares[name] = gloo.Share(len(members), present, given["group_rank"])
            with meeting.of(module.PrefixStore("oomph-gloo/" + name, plain), shares[name]):
                return original(*call.args, **call.kwargs)
        finally:
            if not given["global_ranks_in_group"]:
                world[0] = (module.PrefixStore("oomph", plain), everybody)

    module._new_process_group_helper = _new_process_group_helper
    # Whoever counts the ranks at a store would wait forever.
    module._store_based_barrier = lambda *args, **options: None

    begin = module.init_process_group

    @functools.wraps(begin)
    def init_process_group(*args, **options):
        begin(*args, **options)
        # A communicator can be split only when it is known what every rank chose, so groups are made one by one.
        group = module._get_default_group()
        if getattr(group, "bound_device_id", None) is not None:
            group.bound_device_id = None

    module.init_process_group = init_process_group

    destroy = module.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args, **options):
        destroy(*args, **options)
        if not module.is_initialized():
            del world[:]
            shares.clear()

    module.destroy_process_group = destroy_process_group
