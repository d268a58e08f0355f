"""Detects whether a loop gathers a result of each iteration on the host: what comes after it then depends on its length.

Features of all pictures, gathered on the host and sent to the card as one tensor, take less of the card when the loop that
made them was shortened. Lists that grow with each iteration, of tensors or arrays, tell such loops.
"""

from __future__ import annotations

from oomph.looking import attribute, with_locals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_TWICE = 2
"""Iterations in a row in which a list has to grow."""
_DEEPEST = 3


class Gathered:
    """Looks at the lists that the code around a loop knows by name."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._grown: dict[str, int] = {}
        self.name: str | None = None
        """A list that grows; None as long as none is known to."""

    def look(self, frame: FrameType) -> None:
        """An iteration of the loop in this frame has ended."""
        if self.name is not None:
            return
        with_locals(frame, self._compare)

    def _compare(self, names):
        for name, found in _lists(names):
            before = self._lengths.get(name)
            self._lengths[name] = len(found)
            if before is None:
                continue
            self._grown[name] = self._grown.get(name, 0) + 1 if len(found) > before and _is_data(found[-1]) else 0
            if self._grown[name] >= _TWICE:
                self.name = name
                return


def _lists(names):
    """Lists by their names: variables, attributes of `self`, and values of dictionaries."""
    for name, value in list(names.items()):
        if type(value) is list:
            yield name, value
        elif type(value) is dict or name == "self":
            inner = value if type(value) is dict else attribute(value, "__dict__", {})
            for key, one in list(inner.items())[:64]:
                if type(one) is list:
                    yield "%s.%s" % (name, key), one


def _is_data(value, depth=0):
    """Whether a value is a tensor or an array, or holds one."""
    if depth > _DEEPEST:
        return False
    if isinstance(value, (list, tuple)):
        return any(_is_data(one, depth + 1) for one in value[:4])
    if isinstance(value, dict):
        return any(_is_data(one, depth + 1) for one in list(value.values())[:4])
    # A scalar of each iteration, such as a loss, is small whatever its number.
    count = attribute(value, "ndim", 0)
    return isinstance(count, int) and count > 0
