"""Keeps torch's compiler from compiling oomph: what runs between compiled frames of the program is not the program."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Torch


class Quiet:
    """Makes functions that dynamo neither compiles nor follows into, without importing dynamo."""

    def __init__(self, torch: Torch) -> None:
        frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
        self._set = getattr(frames, "set_eval_frame", None)
        self._skip = getattr(frames, "skip_code", None) or _skipping(frames)

    def skip(self, function: Any) -> Any:
        """Have the frame of a function run unchanged; what it calls is looked at as usual."""
        if self._skip is not None:
            self._skip(function.__code__)
        return function

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a function that does the same with the compiler switched off in this thread."""
        switch = self._set
        if switch is None:
            return function

        def quiet(*args):
            before = switch(None)
            try:
                return function(*args)
            finally:
                switch(before)

        return self.skip(quiet)


def _skipping(frames):
    """The present form of `skip_code`: a strategy for one code object."""
    strategy = getattr(frames, "_FrameExecStrategy", None)
    actions = getattr(frames, "_FrameAction", None)
    if strategy is None or actions is None or not hasattr(frames, "set_code_exec_strategy"):
        return None
    skip = strategy(actions.SKIP, actions.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, skip)
