"""Moves tensors and processes: loading on the CPU, one card for each process, compilation without graph pools."""

from __future__ import annotations

import functools
import os

from oomph import _protocol as protocol
from oomph.remedies.remedy import Remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Model
    from oomph.moments import Moments


class ResumeOnCpu(Remedy):
    """`resume-on-cpu`: `torch.load` puts what it reads into host memory."""

    waits_for = "the program read nothing with torch.load"

    def attach(self, moments: Moments) -> None:
        torch = moments.torch
        original = torch.load
        remedy = self
        self.calls = 0

        @functools.wraps(original)
        def load(f, map_location=None, *args, **kwargs):
            if map_location is None or str(map_location).startswith("cuda"):
                remedy.calls += 1
                remedy.applied('torch.load is given map_location="cpu"')
                map_location = "cpu"
            else:
                remedy.already("torch.load is given map_location=%r" % (map_location,))
            return original(f, map_location, *args, **kwargs)

        torch.load = load

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED:
            self.evidence = "%d files read to the CPU" % self.calls


class OwnCard(Remedy):
    """`one-gpu-per-process`: the device of a process is the one of its LOCAL_RANK."""

    waits_for = "the process has no LOCAL_RANK"

    def attach(self, moments: Moments) -> None:
        torch = moments.torch
        rank = os.environ.get("LOCAL_RANK", "")
        if rank.isdigit():
            self.torch = torch
            self.rank = int(rank)
            torch.cuda._lazy_call(self.careful(self._started))

    def _started(self):
        self.torch.cuda.set_device(self.rank)
        self.applied("torch.cuda.set_device(%d)" % self.rank)

    def verify(self) -> None:
        if self.state == protocol.REMEDY_APPLIED:
            self.evidence = "the current device is %d" % self.torch.cuda.current_device()


class PlainCompile(Remedy):
    """`compile-without-graph-pools`: `torch.compile` in its default mode."""

    waits_for = "the program compiled nothing with CUDA graphs"

    def attach(self, moments: Moments) -> None:
        torch = moments.torch
        original = torch.compile
        remedy = self

        @functools.wraps(original)
        def compile(*args, **kwargs):
            if kwargs.get("mode") in ("reduce-overhead", "max-autotune"):
                remedy.applied("torch.compile without mode=%r" % kwargs["mode"])
                kwargs = dict(kwargs, mode=None)
            return original(*args, **kwargs)

        torch.compile = compile


class LeanLoading(Remedy):
    """`device-map` (option `device_map`) and `low-host-memory-loading`: arguments of `from_pretrained`."""

    waits_for = "the program loaded no model of transformers by name"

    def attach(self, moments: Moments) -> None:
        self.model: Model | None = None
        moments.on_pretrained(before=self.careful(self._loading), after=self.careful(self._loaded))

    def _loading(self, cls, kwargs):
        if not cls.__module__.startswith("transformers"):
            return
        wanted = self.option("device_map", "auto" if self.name == "device-map" else "cuda")
        if kwargs.get("device_map") is not None:
            self.already("the program passes device_map=%r" % (kwargs["device_map"],))
            return
        kwargs["device_map"] = wanted
        self.applied("from_pretrained of %s is given device_map=%r" % (cls.__name__, wanted))

    def _loaded(self, model, kwargs):
        places = getattr(model, "hf_device_map", None)
        if places and self.state == protocol.REMEDY_APPLIED:
            counts: dict[str, int] = {}
            for place in places.values():
                counts[str(place)] = counts.get(str(place), 0) + 1
            self.evidence = "parts on " + ", ".join("%s: %d" % item for item in sorted(counts.items()))
            # A model whose parts have their places is not moved as a whole: who writes `device_map` leaves `.to` out.
            model.to = model.cuda = lambda *args, **kwargs: model
