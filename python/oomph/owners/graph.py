"""Finds activations: what the graph of autograd has saved for the backward pass, by walking the graph.

The walk reads what nodes offer of themselves. Hooks that unpack saved tensors are the one thing that could run there
(a checkpoint would compute again, an offload would copy back), so they are made inert while a walk goes on.
"""

from __future__ import annotations

import threading
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from oomph._types import Tensor, Torch
    from oomph.owners.tensors import Tensors
    from oomph.quiet import Quiet

MAX_NODES = 100000

_walking = threading.local()


class _Inert(Exception):
    """Raised in place of unpacking something during a walk."""


class Graph:
    """Walks graphs of one torch."""

    def __init__(self, torch: Torch, tensors: Tensors, quiet: Quiet) -> None:
        self.torch = torch
        self.tensors = tensors
        self.quiet = quiet
        self._attributes: dict[type, list[str]] = {}
        self._blocked = False

    def attach(self) -> None:
        """Make the unpack hooks of `saved_tensors_hooks` know when a walk goes on."""
        native = self.torch._C._autograd
        original = getattr(native, "_push_saved_tensors_default_hooks", None)
        if original is None:
            return
        graph = self

        def _push_saved_tensors_default_hooks(pack, unpack):
            if isinstance(unpack, (types.FunctionType, types.MethodType)):
                unpack = graph.quiet.skip(_inert_in_walks(unpack))
            else:
                # An object that others may want to recognise, like a traced graph: then nothing is unpacked at all.
                graph._blocked = True
            return original(pack, unpack)

        native._push_saved_tensors_default_hooks = self.quiet.skip(_push_saved_tensors_default_hooks)

    def saved(self, outputs: Iterable[Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Give (name, tensor) for every tensor that is saved below some tensors, each with the name of its node."""
        if self._blocked:
            return
        _walking.nodes, _walking.inputs, _walking.frames = [], [], set()
        _walking.on = True
        try:
            seen: set[Any] = set()
            waiting = [getattr(tensor, "grad_fn", None) for tensor in outputs]
            while (waiting or _walking.nodes) and len(seen) < MAX_NODES:
                node = waiting.pop() if waiting else _walking.nodes.pop()
                if node is None or node in seen:
                    continue
                seen.add(node)
                yield from self._of_node(node)
                waiting.extend(pair[0] for pair in node.next_functions)
            yield from self._checkpoint_inputs()
        finally:
            _walking.on = False
            _walking.nodes = _walking.inputs = _walking.frames = None

    def _checkpoint_inputs(self):
        for name, kept in _walking.inputs:
            if hasattr(kept, "unpack") and not self.tensors.is_tensor(kept):
                try:
                    kept = kept.unpack()
                except Exception:
                    # Unpacking runs hooks of the program's, which may have let go of what they held.
                    continue
            if self.tensors.is_tensor(kept):
                yield name, kept

    def _of_node(self, node):
        kind = type(node)
        names = self._attributes.get(kind)
        if names is None:
            names = [name for name in dir(kind) if name.startswith("_saved_") and "_sym_" not in name]
            if hasattr(kind, "saved_tensors"):
                names.append("saved_tensors")
            self._attributes[kind] = names
        title = node.name() if hasattr(node, "name") else kind.__name__
        for name in names:
            try:
                value = getattr(node, name)
            except Exception:
                # Freed already, changed in place since, or held by a hook.
                continue
            label = title + "." + name.replace("_saved_", "")
            if self.tensors.is_tensor(value):
                yield label, value
            elif isinstance(value, (tuple, list)):
                for index, item in enumerate(value):
                    if self.tensors.is_tensor(item):
                        yield "%s.%d" % (label, index), item
        own = getattr(node, "__dict__", None)
        if own:
            # What a Function written in Python put on its context itself.
            yield from self.tensors.inside(own, title)


def _inert_in_walks(unpack):
    def unpack_hook(packed):
        if getattr(_walking, "on", False):
            _found_behind(unpack)
            raise _Inert
        return unpack(packed)

    unpack_hook.__wrapped__ = unpack  # type: ignore[attr-defined]
    return unpack_hook


def _found_behind(unpack):
    """A checkpoint that recomputes keeps its inputs where only its unpack hook finds them: in a frame of its own."""
    for cell in getattr(unpack, "__closure__", None) or ():
        try:
            frame = cell.cell_contents
        except ValueError:
            continue
        if not hasattr(frame, "recompute_fn") or frame in _walking.frames:
            continue
        _walking.frames.add(frame)
        # Up to 2.14 in a node of the graph, afterwards in a list.
        saver = getattr(frame, "input_saver", None)
        node = getattr(saver, "grad_fn", saver)
        if hasattr(node, "next_functions"):
            _walking.nodes.append(node)
        for index, kept in enumerate(getattr(frame, "saved_args", None) or ()):
            _walking.inputs.append(("checkpoint.input.%d" % index, kept))
