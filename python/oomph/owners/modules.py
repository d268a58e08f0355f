"""Follows calls of modules: names of parameters and buffers, inputs, caches, and which module is at work.

The hooks are torch's own global ones, which come before any hook of the program and change neither arguments nor
results. While a compiler traces a model they do nothing, and say so in a way that the compiler can fold away.
"""

from __future__ import annotations

import sys
import threading
import weakref

from oomph import _protocol as protocol
from oomph import forked
from oomph.looking import with_locals
from oomph.owners.kept import Lengths
from oomph.owners.workers import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Model, Tensor, Torch
    from oomph.owners.notes import Moment, Notes
    from oomph.owners.share import Share
    from oomph.owners.tensors import Tensors
    from oomph.quiet import Quiet

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "OptimizedModule")
_INFIXES = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_CACHE_ATTRIBUTES = ("kv_cache", "kv_caches", "key_cache", "value_cache", "k_cache", "v_cache", "cache_k", "cache_v")
"""What modules call the keys and values that they keep: vLLM's attention, and models that are written by hand."""
_CACHE_NAMES = ("past_key_values", "past_key_value", "past_key_values_out", "layer_past", "cache_params", "kv_cache", "cache")


class Root:
    """A module that the program itself called: what there is below it, by name, without holding any of it."""

    def __init__(self, module: Model, prefix: str) -> None:
        self.prefix = prefix
        self.module = weakref.ref(module)
        self.members: list[tuple[str, Callable[[], Model]]] = []
        self.calls = 0
        self.threads: set[int] = set()
        """The threads that called it."""


class Modules:
    """Watches the calls of modules. One object serves all threads."""

    def __init__(self, torch: Torch, tensors: Tensors, notes: Notes, share: Share, quiet: Quiet) -> None:
        self.torch = torch
        self.tensors = tensors
        self.notes = notes
        self.share = share
        self.quiet = quiet
        self.workers = Workers(torch)
        self.roots: list[Root] = []
        self.parameters: dict[int, tuple[Callable[[], Tensor], str]] = {}
        """id of a parameter -> (weak reference, name): how an optimizer's state gets its names."""
        self._names: dict[int, tuple[Callable[[], Model], str]] = {}
        self._callers: dict[int, set[int]] = {}
        """id of a module -> the threads that called a root which it is part of."""
        self._local = threading.local()
        self._named_root = False
        self._lengths = Lengths()
        self.devices: tuple[int, ...] = ()
        """Indices of the devices that modules have been seen on."""

    def forked(self) -> None:
        """Begin again in a forked child."""
        self._local = threading.local()
        self.workers.forked()

    # -- hooks -------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Register the global hooks."""
        compiling = getattr(getattr(self.torch, "compiler", None), "is_compiling", None) or (lambda: False)
        entered, left = self.quiet.around(self.entered), self.quiet.around(self.left)

        def oomph_entered(module, args):
            if compiling():
                return
            entered(module, args)

        def oomph_left(module, args, result):
            if compiling():
                return
            left(module, args, result)

        register = self.torch.nn.modules.module
        register.register_module_forward_pre_hook(self.quiet.skip(oomph_entered))
        register.register_module_forward_hook(self.quiet.skip(oomph_left), always_call=True)
        self._watch_moves()

    def _watch_moves(self):
        """`Module.to` and its kin give a module new memory, perhaps at an old address."""
        module = self.torch.nn.Module
        original = module._apply
        notes = self.notes

        def _apply(self, *args, **kwargs):
            notes.generation += 1
            return original(self, *args, **kwargs)

        _apply.__wrapped__ = original  # type: ignore[attr-defined]
        _apply.__doc__ = original.__doc__
        module._apply = self.quiet.skip(_apply)

    def entered(self, module: Model, args: tuple[Any, ...]) -> None:
        """A module's forward is about to run."""
        if forked.is_away():
            return
        since = self.share.start()
        try:
            stack = self._stack()
            recomputes = self.workers.is_in_pass()
            if not stack and not recomputes:
                self._local.phase = None
                self._root_entered(module, args, sys._getframe(3))
            if stack or recomputes:
                self._local.followed = self._local.followed if stack else self.share.left()
            name = None
            if self._local.followed:
                name = self.name_of(module)
                for device in self.devices:
                    self.notes.module(device, self.notes.count(device), "enter", name)
            else:
                self.notes.modules_complete = False
            stack.append((id(module), name))
        except Exception:
            # A fault here would be one of the model's call.
            pass
        finally:
            self.share.end(since)

    def left(self, module: Model, args: tuple[Any, ...], result: Any) -> None:
        """A module's forward has ended, perhaps with an exception; then what was below it may not have said so."""
        if forked.is_away():
            return
        since = self.share.start()
        try:
            stack = self._stack()
            own = id(module)
            if not any(entry[0] == own for entry in stack):
                return
            name = None
            while stack:
                known, name = stack.pop()
                if known == own:
                    break
            if name is not None:
                for device in self.devices:
                    self.notes.module(device, self.notes.count(device), "leave", name)
            if not stack and getattr(self._local, "phase", None) is not None:
                self._root_left(result)
        except Exception:
            # A fault here would be one of the model's call.
            pass
        finally:
            self.share.end(since)

    def _stack(self):
        stack = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
            self._local.phase = None
            self._local.followed = False
        return stack

    def settle(self) -> None:
        """No module of this thread is at work now, whatever exceptions have left behind."""
        stack = self._stack()
        if stack:
            phase, self._local.phase = self._local.phase, None
            names = [name for _, name in stack if name is not None]
            del stack[:]
            for device in self.devices:
                at = self.notes.count(device)
                for name in reversed(names):
                    self.notes.module(device, at, "leave", name)
                if phase is not None:
                    self.notes.phase(device, at, phase, False)

    # -- roots -------------------------------------------------------------------------------------------------

    def _root_entered(self, module, args, frame):
        is_call = frame.f_code.co_name in ("_call_impl", "inner")
        kwargs = with_locals(frame, lambda names: names.get("kwargs")) if is_call else None
        kwargs = kwargs if isinstance(kwargs, dict) else {}
        root = self.root_of(module)
        self._called_here(root)
        self._find_devices(root, args, kwargs)
        self._local.followed = self.share.left()
        phase = self._phase_of(frame)
        self._local.phase = phase
        moment = self.notes.moment()
        for device in self.devices:
            self.notes.phase(device, moment.at(device), phase, True)
        if self.notes.is_full():
            self.notes.close(self.notes.window.step)
        if root.calls <= 2 or self.share.left():
            self.see_root(root, moment)
            self._see_inputs(args, kwargs, moment)
            self.see_caches(kwargs, moment)
        root.calls += 1

    def _called_here(self, root):
        thread = self.workers.works()
        if thread not in root.threads:
            root.threads.add(thread)
            for _, reference in root.members:
                member = reference()
                if member is not None:
                    self._callers.setdefault(id(member), set()).add(thread)

    def _root_left(self, result):
        phase, self._local.phase = self._local.phase, None
        moment = self.notes.moment()
        for device in self.devices:
            self.notes.phase(device, moment.at(device), phase, False)
        if self.share.left():
            self._see_outputs(result, moment)

    def _phase_of(self, frame):
        if self.torch.is_grad_enabled():
            return protocol.PHASE_FORWARD
        steps = 0
        while frame is not None and steps < 60:
            if frame.f_code.co_name == "generate":
                return protocol.PHASE_GENERATE
            frame = frame.f_back
            steps += 1
        return protocol.PHASE_EVAL

    def root_of(self, module: Model) -> Root:
        """The root that a module is, made and named when the program calls it for the first time."""
        for root in self.roots:
            if root.module() is module:
                return root
        bare = module
        while type(bare).__name__ in _WRAPPERS and len(bare._modules) == 1:
            bare = next(iter(bare._modules.values()))
        known = self._known_name(bare)
        prefix = ""
        if known is not None:
            # A part of another root, called on its own.
            prefix = known
        elif next(iter(bare.parameters()), None) is not None:
            if self._named_root:
                prefix = "(%s)" % type(bare).__name__
            self._named_root = True
        else:
            prefix = "(%s)" % type(bare).__name__
        root = Root(module, prefix)
        self.roots.append(root)
        if len(self.roots) > 1000:
            self.roots = [root for root in self.roots if root.module() is not None][-500:]
        self._fill(root, bare)
        if bare is not module:
            self._remember(module, "(%s)" % type(module).__name__)
        return root

    def _fill(self, root, module):
        """Name everything below a root; what has a name keeps it."""
        root.members = []
        for path, member in module.named_modules(remove_duplicate=True):
            for infix in _INFIXES:
                path = path.replace(infix, "")
            full = "%s.%s" % (root.prefix, path) if root.prefix and path else root.prefix or path
            name = self._known_name(member)
            if name is None:
                name = full or "(%s)" % type(member).__name__
                self._remember(member, name)
            root.members.append((full, weakref.ref(member)))

    def _known_name(self, module):
        known = self._names.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def _remember(self, module, name):
        self._names[id(module)] = (weakref.ref(module), name)

    def name_of(self, module: Model) -> str:
        """The name of a module; one that was added to a root later is looked for once."""
        name = self._known_name(module)
        if name is None:
            for root in self.roots:
                owner = root.module()
                if owner is not None and any(member is module for member in owner.modules()):
                    self._fill(root, owner)
                    name = self._known_name(module)
                    break
            if name is None:
                name = "(%s)" % type(module).__name__
                self._remember(module, name)
        return name

    def _find_devices(self, root, args, kwargs):
        found = set(self.devices)
        for _, reference in root.members:
            member = reference()
            if member is not None:
                for parameter in member._parameters.values():
                    if parameter is not None and parameter.device.type == "cuda":
                        found.add(parameter.device.index or 0)
        if not found:
            for _, tensor in self.tensors.inside((args, kwargs)):
                if tensor.device.type == "cuda":
                    found.add(tensor.device.index or 0)
        self.devices = tuple(sorted(found))

    # -- what there is to see ----------------------------------------------------------------------------------

    def see_root(self, root: Root, moment: Moment) -> None:
        """Observe the parameters and buffers of a root."""
        for path, reference in root.members:
            member = reference()
            if member is None:
                continue
            dot = path + "." if path else ""
            for kind, table in ((protocol.OWNER_PARAMETER, member._parameters), (protocol.OWNER_BUFFER, member._buffers)):
                for name, tensor in table.items():
                    if tensor is None:
                        continue
                    full = dot + name
                    if kind == protocol.OWNER_PARAMETER and id(tensor) not in self.parameters:
                        self.parameters[id(tensor)] = (weakref.ref(tensor), full)
                    moment.see(self.tensors, tensor, kind, full, lasting=(kind, full))
                    for suffix, extra in self.tensors.extras(tensor):
                        moment.see(self.tensors, extra, kind, full + suffix, lasting=(kind, full + suffix))
            self._see_attributes(member, dot, moment)

    def _see_attributes(self, member, dot, moment):
        """Tensors that a module keeps as plain attributes: the state of quantized layers, tables made by hand.

        A list that gets longer from step to step holds results, which are no part of the model.
        """
        for name, value in list(member.__dict__.items()):
            if name.startswith("_") or isinstance(value, (str, int, float, bool, type(None))):
                continue
            owner = self._lengths.owner(member, name, value)
            if owner is None:
                continue
            for path, tensor in self.tensors.inside(value, name, objects=name in ("state", "quant_state")):
                kind = protocol.OWNER_KV_CACHE if name in _CACHE_ATTRIBUTES else owner
                lasting = (kind, dot + path) if owner == protocol.OWNER_BUFFER else None
                moment.see(self.tensors, tensor, kind, dot + path, lasting=lasting)

    def _see_inputs(self, args, kwargs, moment):
        given = dict(kwargs)
        for name in list(given):
            if is_cache(name, given[name]):
                del given[name]
        for path, tensor in self.tensors.inside({"args": args, "kwargs": given}):
            # What was computed by another module is not an input of the program's.
            if tensor.grad_fn is None and not tensor.requires_grad:
                place, _, rest = path.partition(".")
                moment.see(self.tensors, tensor, "input", rest if place == "kwargs" else "input." + rest)

    def see_caches(self, table: dict[str, Any], moment: Moment) -> None:
        """Observe key-value caches among the named values of a call or of its result."""
        for name, value in table.items():
            if is_cache(name, value):
                for path, tensor in self.tensors.inside(value, str(name), objects=True):
                    moment.see(self.tensors, tensor, protocol.OWNER_KV_CACHE, path)

    def _see_outputs(self, result, moment):
        table = result if isinstance(result, dict) else getattr(result, "__dict__", None)
        if isinstance(table, dict) and not self.tensors.is_tensor(result):
            self.see_caches(table, moment)
            result = {name: value for name, value in table.items() if not is_cache(name, value)}
        for path, tensor in self.tensors.inside(result, "output"):
            owner = protocol.OWNER_ACTIVATION if tensor.grad_fn is not None else protocol.OWNER_OTHER
            moment.see(self.tensors, tensor, owner, path)

    def see_gradients(self, moment: Moment) -> None:
        """Observe the gradients of every parameter of every root, but for those that other threads may let go of meanwhile.

        Their optimizers' steps give them names.
        """
        others = self.workers.others()
        for root in self.roots:
            for path, reference in root.members:
                member = reference()
                if member is None or others and others & self._callers.get(id(member), others):
                    continue
                dot = path + "." if path else ""
                for name, parameter in member._parameters.items():
                    if parameter is not None and parameter.is_leaf and parameter.grad is not None:
                        moment.see(self.tensors, parameter.grad, protocol.OWNER_GRADIENT, dot + name)

    def name_of_parameter(self, parameter: Tensor) -> str | None:
        """The name of a parameter that a root holds, or None."""
        known = self.parameters.get(id(parameter))
        return known[1] if known is not None and known[0]() is parameter else None


def is_cache(name: object, value: object) -> bool:
    """Say whether a named value is a key-value cache, by its name or by its class."""
    return value is not None and (name in _CACHE_NAMES or type(value).__name__.endswith("Cache"))
