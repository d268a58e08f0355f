"""Notes what each optimizer step saw and left, what the program printed, and what it held at the end.

Of each tensor the norm is noted and some of its elements, spread over it, so that the notes of two programs can be compared without
either of them. They are written after each step: a run that is ended is known as far as it came.
"""

from __future__ import annotations

import array
import atexit
import itertools
import json
import math
import os
import sys
import weakref

from oomph import _protocol as protocol
from oomph import hook, sites
from oomph.comparing import batching, drawing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any

    from oomph._protocol import Compare, ComparedPiece, ComparedStep, ComparedValue
    from oomph._types import Optimizer, Tensor, Torch
    from oomph.comparing.reducing import Reduced

#: How many elements of a tensor are noted.
_MOST = 512
#: How many lines of output are noted, and how many variables.
_LINES = 200
_VARIABLES = 400


class Observer:
    """Follows the optimizers of this process."""

    def __init__(self, torch: Torch, wanted: Compare, reduced: Reduced) -> None:
        self._torch = torch
        self._wanted = wanted
        self._reduced = reduced
        self._numbers = array.array("d")
        self._written = 0
        self._steps: list[ComparedStep] = []
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._lived: dict[str, Any] = {}
        self._lived_before: dict[str, Any] = {}
        self._process = os.getpid()
        self._batch: int | None = None
        self._output = _Output()

    def begin(self) -> None:
        """From here on steps are noted."""
        # `torch.optim` takes the name away.
        optimizer = sys.modules["torch.optim.optimizer"]
        original = optimizer.Optimizer.__init__
        observer = self

        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            hook.guarded(observer._made, self)

        optimizer.Optimizer.__init__ = __init__
        optimizer.register_optimizer_step_post_hook(lambda made, args, kwargs: hook.guarded(self._after, made))
        sys.stdout = self._output.around(sys.stdout)
        batching.watch(self._torch, self._wanted, lambda: bool(self._reduced.loaders), self._begin_again)
        atexit.register(hook.guarded, self._ended)

    def _begin_again(self, batch):
        """Ends the run, for one that is made with fewer samples."""
        self._batch = batch
        self._write([], False)
        os._exit(0)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _made(self, optimizer):
        draws = drawing.current()
        if draws is not None:
            draws.trains = True
        if self._wanted["perturbed"]:
            with self._torch.no_grad():
                for parameter in _parameters(optimizer):
                    self._perturb(parameter)

    def _perturb(self, parameter):
        """Changes each number by about as much as rounding it does."""
        torch = self._torch
        if not parameter.is_floating_point():
            return
        generator = torch.Generator(device="cpu")
        generator.manual_seed(parameter.numel())
        signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
        host = parameter.detach().cpu()
        changed = host * (1 + signs * torch.finfo(parameter.dtype).eps)
        parameter.copy_(changed.to(parameter.dtype))

    def _after(self, optimizer):
        if os.getpid() != self._process:
            return
        parameters = _parameters(optimizer)
        self._steps.append({
            "optimizer": self._number(optimizer),
            # An optimizer that computes them by a closure has them only now.
            "gradients": [self._noted(one.grad) for one in parameters if one.grad is not None],
            "weights": [self._noted(one) for one in parameters],
            "rates": [float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
        })
        steps = sum(step["optimizer"] == self._steps[-1]["optimizer"] for step in self._steps)
        frame = sys._getframe(1)
        if steps < self._wanted["steps"]:
            self._remember(frame)
            self._write([], False)
            return
        self._write(self._state(frame), True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _number(self, optimizer):
        for number, known in enumerate(self._optimizers):
            if known() is optimizer:
                return number
        self._optimizers.append(weakref.ref(optimizer))
        return len(self._optimizers) - 1

    # -- the end ---------------------------------------------------------------------------------------------------

    def _ended(self):
        """The program has come to its end before as many steps as were asked for."""
        if os.getpid() == self._process:
            main = sys.modules.get("__main__")
            # What the last step had made is still there.
            self._lived = self._lived_before
            self._write(list(self._values(vars(main) if main is not None else {}, not self._steps)), True)

    def _remember(self, frame):
        """Keeps what variables held after this step: what lives on is a part of what is computed, and a batch is not."""
        kinds = (self._torch.Tensor, dict, list)
        self._lived_before = self._lived
        self._lived = {name: value for name, value in _variables(frame) if isinstance(value, kinds)}

    def _state(self, frame):
        found: dict[str, ComparedValue] = {}
        for name, value in _variables(frame):
            for one in self._value(name, value, False):
                found.setdefault(one["name"], one)
        return list(found.values())

    def _values(self, variables: dict[str, Any], everything: bool) -> Iterator[ComparedValue]:
        for name, value in list(variables.items()):
            if not name.startswith("__"):
                yield from self._value(name, value, everything)

    def _value(self, name: str, value: Any, everything: bool) -> Iterator[ComparedValue]:
        torch = self._torch
        tensors: list[Any]
        lives = everything or self._lived.get(name) is value
        if isinstance(value, torch.nn.Module):
            for key, tensor in itertools.chain(value.named_parameters(), value.named_buffers()):
                yield {"name": "%s.%s" % (name, key), "piece": self._noted(tensor)}
        elif not lives:
            return
        elif isinstance(value, torch.Tensor):
            yield {"name": name, "piece": self._noted(value)}
        elif isinstance(value, dict):
            for key, tensor in list(value.items())[:_VARIABLES]:
                if not isinstance(tensor, torch.Tensor):
                    continue
                yield {"name": "%s[%r]" % (name, key), "piece": self._noted(tensor)}
        elif isinstance(value, (list, tuple)):
            tensors = [one for one in value if isinstance(one, torch.Tensor)]
            numbers = [one for one in value if isinstance(one, (int, float))]
            if tensors and len(tensors) == len(value) and everything:
                joined = torch.cat([one.detach().reshape(-1).double().cpu() for one in tensors])
                yield {"name": name, "piece": self._noted(joined)}
            elif numbers and len(numbers) == len(value):
                yield {"name": name, "piece": self._noted(torch.tensor([float(one) for one in numbers]))}

    # -- notes -----------------------------------------------------------------------------------------------------

    def _noted(self, tensor: Tensor) -> ComparedPiece:
        """Notes a tensor: where its elements are in the file of numbers, how many it has, and its norm."""
        torch = self._torch
        with torch.no_grad():
            flat = tensor.detach()
            if flat.layout != torch.strided:
                flat = flat.to_dense()
            if flat.is_complex():
                flat = torch.view_as_real(flat)
            flat = flat.cpu().reshape(-1).double()
            count = flat.numel()
            # Odd, so that it does not fall on one column of a matrix.
            some = flat[:: max(1, count // _MOST) | 1][:_MOST]
            norm = float(torch.linalg.vector_norm(flat)) if count else 0.0
            piece: ComparedPiece = {
                "at": self._written + len(self._numbers), "noted": len(some), "count": count,
                # JSON has no word for what is not a number.
                "norm": norm if math.isfinite(norm) else None,
            }
            self._numbers.extend(some.tolist())
            return piece

    def _write(self, kept: list[ComparedValue], ended: bool) -> None:
        folder = hook.run_folder()
        if folder is None:
            return
        draws = drawing.current()
        place = os.path.join(folder, protocol.PATH_HOOK, str(os.getpid()))
        with open(place + protocol.PATH_NUMBERS_END, "ab") as file:
            self._numbers.tofile(file)
        self._written += len(self._numbers)
        self._numbers = array.array("d")
        text = json.dumps({
            "schema": protocol.SCHEMA_COMPARED,
            "steps": self._steps,
            "kept": kept,
            "printed": self._output.lines,
            "draws": draws.count if draws is not None else 0,
            "loaders": [{"batch": batch, "samples": samples} for batch, samples in self._reduced.loaders],
            "blocks": [{"name": name, "count": count} for name, count in sorted(self._reduced.blocks.items())],
            "uncomputed": sorted(_uncomputed()),
            "batch": self._wanted["batch"] or self._batch,
            "few": self._wanted["few"] if self._wanted["batch"] else None,
            "ended": ended,
        })
        with open(place + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(place + ".new", place + protocol.PATH_COMPARED_END)


class _Output:
    """The lines that the program prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._begun = ""

    def around(self, stream: Any) -> Any:
        """The same stream, whose text is noted."""
        original = stream.write

        def write(text):
            hook.guarded(self._note, text)
            return original(text)

        try:
            stream.write = write
        except AttributeError:
            # A stream of the program's own that takes no attributes goes on unseen.
            pass
        return stream

    def _note(self, text):
        *whole, self._begun = (self._begun + text).split("\n")
        self.lines.extend(whole[: max(0, _LINES - len(self.lines))])


def _parameters(optimizer: Optimizer) -> Iterable[Any]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """The variables of the program's functions that are under way, and of its script."""
    seen: set[str] = set()
    while frame is not None:
        if sites.is_user_file(frame.f_code.co_filename):
            for name, value in list(frame.f_locals.items())[:_VARIABLES]:
                if name not in seen and not name.startswith("__"):
                    seen.add(name)
                    yield name, value
                    if name == "self":
                        for key, inner in list(getattr(value, "__dict__", {}).items())[:_VARIABLES]:
                            yield "self." + key, inner
        frame = frame.f_back



def _uncomputed():
    """The operations whose results were used and never computed."""
    from oomph import values

    kernels = getattr(values.session(), "kernels", None)
    return getattr(kernels, "left_out", ())
