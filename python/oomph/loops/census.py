"""Counts what a program keeps, to see what grows with the iterations of a loop: collections, arrays, counters.

What comes after a loop depends on how many results it has left behind: features of all pictures that are joined, labels that
are compared with each other. They lie where the code around the loop can reach them: in variables of its functions and
modules, in attributes, in what functions share, in containers, on the host or on the card. Only sizes are kept.
"""

from __future__ import annotations

import functools
import types

from oomph import sites
from oomph.looking import attribute, has_own_names, with_locals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import FrameType

    Path = tuple[Hashable, ...]

LIMIT = 3000
"""Objects looked at in one count."""
_DEEPEST = 5
_LOOKED_INTO = 24
"""A container of at most this many members is looked into; a longer one is taken for a collection of like things."""
MODULE_INTERNALS = frozenset((
    "_parameters", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks", "_is_full_backward_hook",
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks", "training",
))  # fmt: skip
_MACHINERY = (
    "oomph", "torch.utils.data", "torch.optim", "torch.amp", "torch.cuda", "multiprocessing", "threading", "queue", "logging", "tqdm",
)
"""Libraries whose objects keep no results: loaders, optimizers, progress bars. What an object is for is not to be seen on it, and most
objects of libraries may well keep some, as metrics do."""
_SKIPPED = (float, complex, type(None), type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)


class Seen:
    """The size of one thing."""

    __slots__ = ("size", "data", "number", "bare")

    def __init__(self, size: int, data: bool, number: bool = False, bare: bool = False) -> None:
        self.bare = bare
        """Whether it is an array, and not a container: a larger one may be a larger batch."""
        self.size = size
        """Members of a container, elements of an array, or the value of a counter."""
        self.data = data
        """Whether it is an array or holds some: what can be sent to the card unchanged."""
        self.number = number


def count(frame: FrameType | None, tensor_type: type, module_type: type) -> dict[Path, Seen]:
    """What can be reached from the stack that ends in `frame`, by path."""
    return _Count(tensor_type, module_type).run(frame)


class _Count:
    def __init__(self, tensor_type, module_type):
        self._tensor = tensor_type
        self._module = module_type
        self._left = LIMIT
        self._seen = set()
        self.found: dict[Path, Seen] = {}

    def run(self, frame):
        first = True
        spaces = set()
        while frame is not None:
            code = frame.f_code
            # The loop's own function may be a library's: a trainer's.
            if first and not sites.is_own_file(code.co_filename) or sites.is_user_file(code.co_filename):
                first = False
                if has_own_names(code):
                    with_locals(frame, functools.partial(self._names, where=(code.co_filename, code.co_name)))
                if id(frame.f_globals) not in spaces and (sites.is_user_file(code.co_filename) or not has_own_names(code)):
                    spaces.add(id(frame.f_globals))
                    self._names(frame.f_globals, (code.co_filename, ""))
            frame = frame.f_back
        return self.found

    def _names(self, names, where):
        pairs = [pair for pair in list(names.items()) if not pair[0].startswith("__")]
        # What has a name of its own is known by it, though an object may hold it too.
        for name, value in sorted(pairs, key=lambda pair: not self._is_plain(pair[1])):
            self._look(value, (where, name), 0)

    def _is_plain(self, value):
        return isinstance(value, (list, tuple, dict, set, self._tensor)) or type(value) is int

    def _look(self, value, path, depth):
        kind = type(value)
        if kind is int:
            self.found[path] = Seen(value, False, number=True)
            return
        if kind is str or kind is bytes:
            self.found[path] = Seen(len(value), False)
            return
        if issubclass(kind, _SKIPPED) or kind is bool or self._left <= 0 or id(value) in self._seen:
            return
        self._left -= 1
        self._seen.add(id(value))
        if issubclass(kind, self._tensor):
            if value.dim():
                self.found[path] = Seen(value.numel(), True, bare=True)
        elif issubclass(kind, (list, tuple, dict, set, frozenset)) or kind.__name__ == "deque":
            self._container(value, path, depth)
        elif issubclass(kind, types.FunctionType):
            self._shared(value, path, depth)
        elif issubclass(kind, types.MethodType):
            self._look(value.__self__, path, depth)
        elif _shape_of(value):
            # Arrays and frames of any library.
            self.found[path] = Seen(_product(_shape_of(value)), True, bare=True)
        else:
            self._attributes(value, path, depth)

    def _container(self, value, path, depth):
        length = len(value)
        self.found[path] = Seen(length, is_data(_newest(value), self._tensor))
        if depth >= _DEEPEST or length > _LOOKED_INTO or isinstance(value, (set, frozenset)):
            return
        # It may change while it is looked at, in another thread.
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        for key, one in pairs:
            if isinstance(key, (str, int)):
                self._look(one, (*path, key), depth + 1)

    def _shared(self, function, path, depth):
        if depth >= _DEEPEST or not function.__closure__ or not sites.is_user_file(function.__code__.co_filename):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__):
            try:
                self._look(cell.cell_contents, (*path, name), depth + 1)
            except ValueError:
                # Nothing is in it yet.
                continue

    def _attributes(self, value, path, depth):
        names = attribute(value, "__dict__")
        # A class that was made by `exec` need not have a module.
        module = str(attribute(type(value), "__module__", ""))
        if depth >= _DEEPEST or not isinstance(names, dict) or _is_machinery(module):
            return
        internals = MODULE_INTERNALS if isinstance(value, self._module) else ()
        for name, one in list(names.items()):
            if name not in internals:
                self._look(one, (*path, name), depth + 1)


def _is_machinery(module):
    """Whether a module belongs to one of those libraries; a module of the program's may begin with the name of one."""
    return any(module == name or module.startswith(name + ".") for name in _MACHINERY)


def _shape_of(value):
    shape = attribute(value, "shape")
    return shape if isinstance(shape, tuple) and shape and all(isinstance(length, int) for length in shape) else None


def _product(shape):
    total = 1
    for length in shape:
        total *= length
    return total


def _newest(value):
    try:
        if isinstance(value, dict):
            return value[next(reversed(value))]
        return value[-1]
    except Exception:
        # It is empty, has no order, or its class has rules of its own.
        return None


def is_data(value: object, tensor_type: type, depth: int = 0) -> bool:
    """Whether a value is a tensor or an array, or holds one; a scalar of each iteration, such as a loss, is small."""
    if depth > 3:
        return False
    if isinstance(value, (list, tuple)):
        return any(is_data(one, tensor_type, depth + 1) for one in value[:4])
    if isinstance(value, dict):
        return any(is_data(one, tensor_type, depth + 1) for one in list(value.values())[:4])
    dimensions = attribute(value, "ndim", 0)
    if isinstance(dimensions, int) and dimensions > 0:
        return True
    names = attribute(value, "__dict__")
    if depth < 2 and isinstance(names, dict) and not isinstance(value, type):
        # A record of the program's own: a transition, a sample.
        return any(is_data(one, tensor_type, depth + 2) for one in list(names.values())[:8])
    return False


class Growth:
    """What grew from count to count, at the ends of iterations of one loop."""

    MOST = 6
    """Counts after which no more are made."""

    def __init__(self) -> None:
        self._first: dict[Path, Seen] | None = None
        self._before: dict[Path, Seen] = {}
        self._last: dict[Path, int] = {}
        """By how much each thing grew in the last iteration."""
        self._shrank: set[Path] = set()
        self._stayed: set[Path] = set()
        self._at = -1
        self.counts = 0

    def look(self, found: dict[Path, Seen], iteration: int) -> None:
        """An iteration has ended, the one of this number."""
        if iteration == self._at:
            return
        follows, self._at = iteration == self._at + 1, iteration
        self.counts += 1
        if self._first is None:
            self._first = found
        else:
            self._last = {}
            for path, now in found.items():
                before = self._before.get(path)
                if before is None:
                    # It appeared: a variable of the loop's body, or a collection that begins only now.
                    self._first.setdefault(path, now)
                elif now.size < before.size:
                    self._shrank.add(path)
                elif now.size == before.size:
                    self._stayed.add(path)
                elif follows:
                    self._last[path] = now.size - before.size
        self._before = found

    def last(self) -> dict[Path, int]:
        """By how much what grows grew in the last iteration; empty where the one before was not looked at."""
        return {path: more for path, more in self._last.items() if path not in self._shrank}

    def grown(self) -> dict[Path, Seen]:
        """What has grown since the first count and never shrank, counters left out."""
        return {path: seen for path, seen in self._grown() if not seen.number}

    def counters(self) -> dict[Path, Seen]:
        """Whole numbers that have grown since the first count and never shrank."""
        return {path: seen for path, seen in self._grown() if seen.number}

    def _grown(self):
        for path, seen in self._before.items():
            first = (self._first or {}).get(path)
            if first is None or seen.size <= first.size or path in self._shrank or seen.bare and path in self._stayed:
                # What is joined to an array is joined in each iteration; batches are larger now and then.
                continue
            yield path, seen


def shown(path: Path) -> str:
    """A path as people write it: `self.feats`."""
    return ".".join(str(part) for part in path[1:])
