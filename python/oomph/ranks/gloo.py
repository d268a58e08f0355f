"""Runs Gloo groups of which not all ranks run: messages between processors, and what lies in the host's memory.

The virtual NCCL answers for absent ranks; gloo is the real one, and would wait for them. It is made for the ranks that
run, and what PyTorch asks of the whole group is translated: an absent rank is like the nearest one before it that runs.
"""

from __future__ import annotations

import contextlib
import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from oomph._types import Library, Tensor


class Share:
    """The ranks of a group that run: `present`, by their rank in the group, out of `size`."""

    def __init__(self, size: int, present: list[int], rank: int) -> None:
        self.size = size
        self.present = present
        self.rank = rank

    def place(self, rank: int) -> int:
        """Where a rank is among those that run; for an absent one, where the one is that it is like."""
        return max((place for place, known in enumerate(self.present) if known <= rank), default=0)

    def sizes(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Of one thing per rank of the group those of the ranks that run."""
        return [tensors[rank] for rank in self.present]

    def fill(self, tensors: Sequence[Tensor]) -> None:
        """Give the places of absent ranks what the ranks have that they are like."""
        for rank, tensor in enumerate(tensors):
            if rank not in self.present:
                like = tensors[self.present[self.place(rank)]]
                if tensor.shape == like.shape:
                    tensor.copy_(like)


class Meeting:
    """The group that is being made, for the constructor of gloo."""

    def __init__(self) -> None:
        self.now: tuple[Any, Share] | None = None

    @contextlib.contextmanager
    def of(self, store: Any, share: Share) -> Iterator[None]:
        before, self.now = self.now, (store, share)
        try:
            yield
        finally:
            self.now = before


def install(module: Library) -> tuple[Meeting, dict[str, Share]]:
    """Attach to `torch.distributed.distributed_c10d`. Gives the meeting and the shares by the name of their group."""
    meeting = Meeting()
    shares: dict[str, Share] = {}
    original: Any = getattr(module, "ProcessGroupGloo", None)
    if original is None:
        return meeting, shares

    class ProcessGroupGloo(original):
        """Gloo among the ranks that run."""

        def __init__(self, store: Any, rank: int, size: int, *args: Any, **options: Any) -> None:
            if meeting.now is not None and size == meeting.now[1].size:
                store, share = meeting.now
                rank, size = share.place(share.rank), len(share.present)
            super().__init__(store, rank, size, *args, **options)

    module.ProcessGroupGloo = ProcessGroupGloo
    translate(module, shares)
    return meeting, shares


def translate(module: Library, shares: dict[str, Share]) -> None:
    """What is asked of a whole group, for tensors in the host's memory, is asked of the ranks that run."""
    group_class = module.ProcessGroup

    def done():
        """The handle of something that is over."""
        import torch

        future = torch.futures.Future()
        future.set_result(None)
        return torch._C._distributed_c10d._create_work_from_future(future)

    def wrap(name, translated, usual):
        original = getattr(group_class, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def method(self, *args, **options):
            share = shares.get(_name(self))
            # PyTorch's own calls name nothing but the options; others go to gloo as they are.
            if share is None or not _on_host(args) or options.keys() - {"opts"}:
                return original(self, *args, **options)
            if options:
                args = (*args, options["opts"])
            elif not hasattr(args[-1], "timeout"):
                args = (*args, usual())
            translated(self, share, original, *args)
            return done()

        setattr(group_class, name, method)

    def waited(work):
        if work is not None:
            work.wait()

    def scale(share, tensors, op):
        """A sum over the ranks that run becomes one over all."""
        # The operation knows when it is like a constant; the constant does not know it of the operation.
        if not op == module.ReduceOp.SUM:
            return
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.mul_(share.size / len(share.present))
            else:
                tensor.mul_(share.size).div_(len(share.present), rounding_mode="floor")

    def allreduce(self, share, original, tensors, opts):
        waited(original(self, tensors, opts))
        scale(share, tensors, opts.reduceOp)

    def reduce(self, share, original, tensors, opts):
        root, opts.rootRank = opts.rootRank, share.place(opts.rootRank)
        waited(original(self, tensors, opts))
        if share.rank == root:
            scale(share, tensors, opts.reduceOp)

    def broadcast(self, share, original, tensors, opts):
        opts.rootRank = share.place(opts.rootRank)
        waited(original(self, tensors, opts))

    def allgather(self, share, original, outputs, inputs, opts):
        waited(original(self, [share.sizes(outputs[0])], inputs, opts))
        share.fill(outputs[0])

    def allgather_base(self, share, original, output, tensor, opts):
        parts = output.view(-1).chunk(share.size)
        options = module.AllgatherOptions()
        waited(group_class.allgather(self, [list(parts)], [tensor.reshape(-1)], options))

    def gather(self, share, original, outputs, inputs, opts):
        root = opts.rootRank
        if root not in share.present:
            return
        opts.rootRank = share.place(root)
        waited(original(self, [share.sizes(outputs[0])] if share.rank == root else outputs, inputs, opts))
        if share.rank == root:
            share.fill(outputs[0])

    def scatter(self, share, original, outputs, inputs, opts):
        root = opts.rootRank
        if root not in share.present:
            return
        opts.rootRank = share.place(root)
        waited(original(self, outputs, [share.sizes(inputs[0])] if share.rank == root else inputs, opts))

    def reduce_scatter(self, share, original, outputs, inputs, opts):
        mine = inputs[0][share.rank].clone()
        options = module.AllreduceOptions()
        options.reduceOp = opts.reduceOp
        # The parts of the others go through the same sum, so that every rank that runs takes part in each.
        for rank in share.present:
            part = mine if rank == share.rank else inputs[0][rank].clone()
            waited(group_class.allreduce(self, [part], options))
        outputs[0].copy_(mine)

    def reduce_scatter_base(self, share, original, output, tensor, opts):
        options = module.ReduceScatterOptions()
        options.reduceOp = opts.reduceOp
        parts = tensor.contiguous().view(-1).chunk(share.size)
        reduce_scatter(self, share, None, [output.view(-1)], [list(parts)], options)

    def alltoall(self, share, original, outputs, inputs, opts):
        for output, tensor in zip(outputs, inputs):
            if output.shape == tensor.shape:
                output.copy_(tensor)

    def alltoall_base(self, share, original, output, tensor, output_sizes, input_sizes, opts):
        if output.shape == tensor.shape:
            output.copy_(tensor)

    for name, translated, usual in (
        ("allreduce", allreduce, module.AllreduceOptions),
        ("reduce", reduce, module.ReduceOptions),
        ("broadcast", broadcast, module.BroadcastOptions),
        ("allgather", allgather, module.AllgatherOptions),
        ("_allgather_base", allgather_base, module.AllgatherOptions),
        # The names of the two "base" functions since PyTorch 2.15.
        ("all_gather_single", allgather_base, module.AllgatherOptions),
        ("gather", gather, module.GatherOptions),
        ("scatter", scatter, module.ScatterOptions),
        ("reduce_scatter", reduce_scatter, module.ReduceScatterOptions),
        ("_reduce_scatter_base", reduce_scatter_base, module.ReduceScatterOptions),
        ("reduce_scatter_single", reduce_scatter_base, module.ReduceScatterOptions),
        ("alltoall", alltoall, module.AllToAllOptions),
        ("alltoall_base", alltoall_base, module.AllToAllOptions),
    ):
        wrap(name, translated, usual)

    def count(name):
        """PyTorch 2.15 asks the backend, which knows of the ranks that run only."""
        original = getattr(group_class, name)

        @functools.wraps(original)
        def method(self):
            share = shares.get(_name(self))
            return original(self) if share is None else getattr(share, name)

        setattr(group_class, name, method)

    count("rank")
    count("size")

    def peer(name, at):
        original = getattr(group_class, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def method(self, *args):
            share = shares.get(_name(self))
            if share is None or not _on_host(args):
                return original(self, *args)
            if args[at] not in share.present:
                # What an absent rank would say is not known, and nobody hears what is said to it.
                return done()
            return original(self, *args[:at], share.place(args[at]), *args[at + 1 :])

        setattr(group_class, name, method)

    peer("send", 1)
    peer("recv", 1)


def _name(group):
    """The name of a group; None before it has one."""
    try:
        return group.group_name
    except Exception:
        # The property raises an error of C++ until the group has a name.
        return None


def _on_host(args):
    """Whether the tensors of a call lie in the host's memory."""
    for argument in args:
        while isinstance(argument, (list, tuple)) and argument:
            argument = argument[0]
        device = getattr(argument, "device", None)
        if device is not None and not isinstance(argument, (list, tuple)):
            return getattr(device, "type", None) == "cpu"
    return False
