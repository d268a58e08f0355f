"""Tensors that the program keeps growing: lists of losses with their graphs, running totals, results on the card.

Looked for from the frames of the user's code outwards, a bounded distance: local and global names, attributes of the
objects there, lists, tuples, deques and dictionaries in them.
"""

import linecache
import re
import sys
import types

from oomph import sites
from oomph.looking import has_own_names, with_locals

LIMIT = 4000
"""Objects looked at in one search."""

_CONTAINERS = (list, tuple, dict, set)
_SKIPPED = (str, bytes, int, float, bool, complex, type(None), type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class Found:
    """One place that holds tensors: a container, or a name that holds a sum."""

    def __init__(self, name, container, frame_file, function, tensors):
        self.name = name
        self.container = container
        self.file = frame_file
        self.function = function
        self.tensors = tensors

    @property
    def key(self):
        """What tells this place again in the next search."""
        return self.file, self.name


class Search:
    """One walk over what the user's frames can reach."""

    def __init__(self, torch):
        self.torch = torch
        self.left = LIMIT
        self.seen = set()
        self.found = []

    def run(self, frame):
        """Walk the stack that ends in `frame`; give the places found."""
        modules = set()
        while frame is not None:
            code = frame.f_code
            if sites.is_user_file(code.co_filename):
                whose = code.co_filename, code.co_name
                with_locals(frame, lambda names: self._names(names, whose))
                if id(frame.f_globals) not in modules and has_own_names(code):
                    modules.add(id(frame.f_globals))
                    self._names(frame.f_globals, whose)
            frame = frame.f_back
        return self.found

    def _names(self, table, whose):
        for name, value in list(table.items()):
            if not name.startswith("__"):
                self._look(name, value, whose, 3)

    def _look(self, name, value, whose, depth):
        kind = type(value)
        if self.left <= 0 or issubclass(kind, _SKIPPED) or id(value) in self.seen:
            return
        self.left -= 1
        if issubclass(kind, self.torch.Tensor):
            if value.grad_fn is not None and value.numel() == 1:
                self.found.append(Found(name, None, *whose, [value]))
            return
        self.seen.add(id(value))
        if issubclass(kind, self.torch.nn.Module) or issubclass(kind, self.torch.optim.Optimizer):
            if issubclass(kind, self.torch.nn.Module) and depth == 3:
                self._attributes(name, value, whose, depth, skip_private=True)
            return
        if issubclass(kind, _CONTAINERS) or kind.__name__ == "deque":
            members = list(value.values()) if issubclass(kind, dict) else list(value) if len(value) < LIMIT else list(value)[-LIMIT:]
            tensors = [member for member in members if isinstance(member, self.torch.Tensor)]
            nested = [part for member in members if type(member) in (list, tuple) for part in member if isinstance(part, self.torch.Tensor)]
            if tensors or nested:
                self.found.append(Found(name, value, *whose, tensors + nested))
            elif depth > 0:
                pairs = value.items() if issubclass(kind, dict) else enumerate(members[:50])
                for key, member in list(pairs)[:50]:
                    self._look("%s[%r]" % (name, key) if isinstance(key, (str, int)) else name, member, whose, depth - 1)
            return
        if depth > 0 and sites.is_user_file(getattr(sys.modules.get(kind.__module__), "__file__", None) or ""):
            self._attributes(name, value, whose, depth)

    def _attributes(self, name, value, whose, depth, skip_private=False):
        for key, member in list(getattr(value, "__dict__", {}).items()):
            if not (skip_private and (key.startswith("_") or key == "training")):
                self._look("%s.%s" % (name, key), member, whose, depth - 1)


class Growing:
    """Compares searches at the boundaries of steps."""

    def __init__(self, torch):
        self.torch = torch
        self.counts = {}
        self.graphs = {}
        self.kept = {}

    def look(self, frame, last=False):
        """Search, and note what has grown since the last time; the `last` search takes what is there for grown."""
        for place in Search(self.torch).run(frame):
            if place.container is None:
                self._sum(place)
            else:
                self._container(place, last)

    def _container(self, place, last):
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
        """A running total holds the graph of the total before it."""
        function = place.tensors[0].grad_fn
        before = self.graphs.get(place.key)
        self.graphs[place.key] = function
        if before is not None and before is not function:
            reached, length = [function], 0
            while reached and length < 6:
                function = reached.pop(0)
                if function is before:
                    self._keep(place, "running-total", 1, place.tensors)
                    return
                reached.extend(following for following, _ in function.next_functions[:4] if following is not None)
                length += 1

    def _keep(self, place, kind, count, tensors):
        size = sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in tensors}.values())
        self.kept[place.key] = {
            "kind": kind, "file": place.file, "line": line_of(place), "count": count, "bytes": size, "name": place.name,
        }  # fmt: skip

    def forget(self):
        """Let go of the graphs that were compared."""
        self.graphs.clear()


def line_of(place):
    """The line that makes it grow: where `NAME.append(`, `NAME +=` and the like stand; 0 when no line shows it."""
    names = [place.name.split("[")[0]]
    if "." in names[0]:
        # What the program calls `probe.cache` is `self.cache` to the class.
        names.append("self." + names[0].rsplit(".", 1)[1])
    name = "(?:%s)" % "|".join(re.escape(name) for name in names)
    pattern = re.compile(
        r"(?<![\w.])%s\s*(\[[^]]*\]\s*)*(\.(append|extend|add|insert|appendleft|update|setdefault)\b|\+=|=\s*%s\s*\+|\[.*\]\s*=(?!=))" % (name, name)
    )
    for number, line in enumerate(linecache.getlines(place.file), 1):
        if pattern.search(line) and not line.lstrip().startswith("#"):
            return number
    return 0
