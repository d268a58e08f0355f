"""Finds tensors that the program keeps: lists of losses with their graphs, running totals, results on the card.

Looked for from the frames of the user's code outwards, a bounded distance: local and global names, what functions made in
other functions share with those, attributes of the objects and modules there, lists, tuples, deques and dictionaries in them.
"""

from __future__ import annotations

import functools
import sys
import types

from oomph import sites
from oomph.looking import attribute, has_own_names, with_locals
from oomph.program.growers import line_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from oomph._types import Tensor, Torch

LIMIT = 4000
"""Objects looked at in one search."""

NODES = 300
"""Nodes of a graph among which the sum of the step before is looked for."""

_LIMITS = ("capacity", "maxlen", "max_len", "max_size", "maxsize", "buffer_size", "memory_size", "mem_size", "size_limit", "max_memory")
"""What the classes of buffers call the number of things that they keep."""

_CONTAINERS = (list, tuple, dict, set)
_SKIPPED = (str, bytes, int, float, bool, complex, type(None), type, types.ModuleType, types.BuiltinFunctionType, types.MethodType)


class Found:
    """One place that holds tensors: a container, or a name that holds a sum or a state."""

    def __init__(
        self,
        name: str,
        container: Any,
        whose: tuple[str, str],
        tensors: list[Tensor],
        home: str | None = None,
        owner: Any = None,
    ) -> None:
        self.name = name
        self.owner = owner
        """The object that it is an attribute of."""
        self.container = container
        self.file, self.function = whose
        self.tensors = tensors
        self.home = home
        """The file of the class that it is an attribute of."""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies this place in the next search."""
        return self.file, self.name

    @property
    def limit(self) -> int | None:
        """How many members a container takes before it drops old ones, on its own or because its owner says so; or None."""
        most = attribute(self.container, "maxlen")
        if most is None and self.owner is not None:
            of_owner = (attribute(self.owner, name) for name in _LIMITS)
            most = next((value for value in of_owner if isinstance(value, int) and value >= len(self.container)), None)
        return most

    @property
    def is_state(self) -> bool:
        """Whether it is a few tensors that go from step to step, such as the hidden state of an LSTM."""
        return self.container is None and len(self.tensors) > 1


class Search:
    """One walk over what the user's frames can reach."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.left = LIMIT
        self.seen: set[int] = set()
        self.found: list[Found] = []

    def run(self, frame: FrameType | None) -> list[Found]:
        """Walk the stack that ends in `frame`; give the places found."""
        modules = set()
        while frame is not None:
            code = frame.f_code
            if sites.is_user_file(code.co_filename):
                whose = code.co_filename, code.co_name
                with_locals(frame, functools.partial(self._names, whose=whose))
                if id(frame.f_globals) not in modules and has_own_names(code):
                    modules.add(id(frame.f_globals))
                    self._names(frame.f_globals, whose)
            frame = frame.f_back
        return self.found

    def _names(self, table, whose):
        for name, value in list(table.items()):
            if not name.startswith("__"):
                self._look(name, value, whose, 3)

    def _look(self, name, value, whose, depth, home=None, owner=None):
        kind = type(value)
        if self.left <= 0 or issubclass(kind, _SKIPPED) or id(value) in self.seen:
            return
        self.left -= 1
        if issubclass(kind, self.torch.Tensor):
            if value.grad_fn is not None:
                self.found.append(Found(name, None, whose, [value], home))
            return
        self.seen.add(id(value))
        if issubclass(kind, types.FunctionType):
            self._shared(value, whose, depth)
        elif issubclass(kind, self.torch.nn.Module):
            if depth == 3:
                self._modules(name, value, whose, depth)
        elif issubclass(kind, self.torch.optim.Optimizer):
            return
        elif _is_container(value):
            self._members(name, value, whose, depth, home, owner)
        elif depth > 0 and _file_of(kind):
            self._attributes(name, value, whose, depth)
        elif depth == 3 and kind.__name__ == "Trainer" and "lightning" in str(kind.__module__):
            module = attribute(value, "lightning_module")
            if module is not None:
                self._look("%s.lightning_module" % name, module, whose, depth)

    def _members(self, name, value, whose, depth, home, owner):
        kind = type(value)
        members = list(value.values()) if issubclass(kind, dict) else list(value) if len(value) < LIMIT else list(value)[-LIMIT:]
        tensors = [member for member in members if isinstance(member, self.torch.Tensor)]
        if issubclass(kind, tuple) and tensors and all(tensor.grad_fn is not None for tensor in tensors):
            self.found.append(Found(name, None, whose, tensors, home))
            return
        nested = [part for member in members for part in self._parts(member)]
        if tensors or nested:
            self.found.append(Found(name, value, whose, tensors + nested, home, owner))
        elif depth > 0:
            pairs = value.items() if issubclass(kind, dict) else enumerate(members[:50])
            for key, member in list(pairs)[:50]:
                self._look("%s[%r]" % (name, key) if isinstance(key, (str, int)) else name, member, whose, depth - 1, home)

    def _parts(self, member):
        """The tensors in one member of a container: in a pair, a record, or a dictionary of what a step gave."""
        kind = type(member)
        if issubclass(kind, (list, tuple)):
            parts = member
        elif issubclass(kind, dict):
            parts = list(member.values())
        elif not issubclass(kind, self.torch.nn.Module) and _file_of(kind):
            parts = list(getattr(member, "__dict__", {}).values())
        else:
            return []
        return [part for part in parts if isinstance(part, self.torch.Tensor)]

    def _shared(self, function, whose, depth):
        """The names that a function of the user's shares with the one that made it."""
        if depth > 0 and function.__closure__ and sites.is_user_file(function.__code__.co_filename):
            for name, cell in zip(function.__code__.co_freevars, function.__closure__):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                self._look(name, value, (function.__code__.co_filename, whose[1]), depth - 1)

    def _modules(self, name, root, whose, depth):
        """Attributes that modules have in addition to their parameters, buffers and parts."""
        for path, module in list(root.named_modules())[:LIMIT]:
            if module is root or _file_of(type(module)):
                self.seen.add(id(module))
                self._attributes("%s.%s" % (name, path) if path else name, module, whose, depth, skip_private=True)

    def _attributes(self, name, value, whose, depth, skip_private=False):
        home = _file_of(type(value))
        shared: dict[str, Any] = {}
        for kind in reversed(type(value).__mro__):
            # A list in the body of a class belongs to all its objects; those of libraries are not looked into.
            if _file_of(kind):
                shared.update((key, one) for key, one in vars(kind).items() if _is_container(one) and key[:2] != "__")
        for key, member in list({**shared, **getattr(value, "__dict__", {})}.items()):
            if not (skip_private and (key.startswith("_") or key == "training")):
                self._look("%s.%s" % (name, key), member, whose, depth - 1, home, value)


def _is_container(value):
    return isinstance(value, _CONTAINERS) or type(value).__name__ == "deque"


def _file_of(kind):
    """The user's file that has a class; None for a class of a library."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return file if sites.is_user_file(file) else None


class Growing:
    """Compares searches at the boundaries of steps."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.counts: dict[tuple[str, str], int] = {}
        self.graphs: dict[tuple[str, str], Any] = {}
        self.kept: dict[tuple[str, str], dict[str, Any]] = {}
        self.filling: dict[tuple[str, str], dict[str, Any]] = {}
        """Containers with a limit: how many members they had at each look, and how many bytes those held."""

    def look(self, frame: FrameType | None, last: bool = False) -> None:
        """Search, and note what has grown since the last time; the `last` search takes what is there for grown."""
        for place in Search(self.torch).run(frame):
            if place.container is None:
                self._sum(place)
            else:
                self._container(place, last)

    def _container(self, place, last):
        if place.limit is not None:
            filled = self.filling.setdefault(place.key, {"limit": place.limit, "count": [], "bytes": []})
            filled["count"].append(len(place.container))
            # Of a long list only the last members were looked at.
            size = sum(one.nbytes for one in {id(one): one for one in place.tensors}.values())
            filled["bytes"].append(size * max(1.0, len(place.container) / LIMIT))
        # Model parameters in lists and dictionaries stay what they are and are no history.
        held = [tensor for tensor in place.tensors if not tensor.is_leaf or not tensor.requires_grad]
        count = len(held)
        before = self.counts.get(place.key)
        self.counts[place.key] = count
        if count < 2 or not last and (before is None or count <= before):
            return
        if last and line_of(place) == 0:
            # Not everything that holds tensors has grown; a line that makes it grow speaks for it.
            return
        graphs = [tensor for tensor in held if tensor.grad_fn is not None]
        if graphs:
            kind = "loss-history" if all(tensor.numel() == 1 for tensor in graphs) else "graph-history"
            self._keep(place, kind, len(graphs), graphs)
        elif any(tensor.is_cuda for tensor in held):
            on_card = [tensor for tensor in held if tensor.is_cuda]
            self._keep(place, "results", len(on_card), on_card)

    def _sum(self, place):
        """A running total holds the graph of the total before it, and so does a state that goes from step to step."""
        function = place.tensors[0].grad_fn
        number = _number_of(function)
        before = self.graphs.get(place.key)
        self.graphs[place.key] = number
        if number is None or before is None or before == number:
            return
        # Nodes are identified by number: to hold one would hold what its graph has saved.
        reached = [function]
        known: set[Any] = set()
        while reached and len(known) < NODES:
            function = reached.pop(0)
            if _number_of(function) == before:
                self._keep(place, "carried-state" if place.is_state else "running-total", 1, place.tensors)
                return
            for following, _ in function.next_functions:
                if following is not None and following not in known:
                    known.add(following)
                    reached.append(following)

    def _keep(self, place, kind, count, tensors):
        size = sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in tensors}.values())
        file, line = _line(place)
        self.kept[place.key] = {
            "kind": kind, "file": file, "line": line, "count": count, "bytes": size, "name": place.name,
        }  # fmt: skip

    def forget(self) -> None:
        """Let go of what was compared."""
        self.graphs.clear()


def _number_of(function):
    """The number of a node, which autograd counts up from step to step, with its name; None where it has none."""
    number = getattr(function, "_sequence_nr", None)
    return (number(), function.name()) if number is not None else None


def line_of(place: Found) -> int:
    """The line that makes it grow: where `NAME.append(`, `NAME +=` and the like stand; 0 when no line shows it."""
    return _line(place)[1]


def _line(place):
    """The file and the line that make a place grow."""
    name = place.name.split("[")[0]
    names = [name]
    if "." in name:
        # What the program calls `probe.cache` is `self.cache` to the class.
        names.append("self." + name.rsplit(".", 1)[1])
    for file in dict.fromkeys(file for file in (place.home, place.file) if file):
        line = line_in(file, names, place.container is None)
        if line:
            return file, line
    return place.file, 0
