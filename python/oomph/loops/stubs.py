"""Replaces what is dear in an iteration by what it gave before: calls of modules, optimizer steps, batches.

Everything else of the loop's body runs, so that it leaves behind what it would have left; a backward pass has then little to
go through. A call of a module is replaced
where an equal one was seen that changed nothing but its result; the others run, and their parts are replaced.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref

from oomph import contents
from oomph.looking import attribute
from oomph.loops.census import MODULE_INTERNALS
from oomph.loops.collating import Collated
from oomph.loops.results import CannotRemember, Result
from oomph.loops.skim import size_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Optimizer, Tensor, Torch

OFF, LEARNING, REPLACING, REAL = "off", "learning", "replacing", "real"
"""What happens to calls: nothing; they run and are remembered; they are replaced; they run while batches are replaced."""
_DEEPEST = 6


class Stubs:
    """Stands between a program and torch while a loop is abridged."""

    def __init__(self, torch: Torch, compiling: Callable[[], bool]) -> None:
        self._torch = torch
        self._compiling = compiling
        self._local = threading.local()
        self._undo: list[Callable[[], object]] = []
        self.mode = OFF
        self.misses = 0
        """Calls of modules that ran and were not expected to, since `misses` was set to 0."""
        self._results: dict[Any, Result] = {}
        self._impure: set[int] = set()
        self._held: dict[int, Any] = {}
        """Modules whose identity is a key, so that no other takes their place."""
        self._optimizers: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.loaders = Loaders()

    # -- putting in place ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put everything in place; calls run and are remembered."""
        self.mode = LEARNING
        self._watch_modules()
        self._watch_optimizers()
        self.loaders.attach(self._undo, lambda: self.mode)

    def replace(self) -> None:
        """From now on what is remembered is replaced."""
        self.mode = REPLACING
        for optimizer, _ in list(self._optimizers.values()):
            self._still(optimizer)

    def run(self) -> None:
        """From now on everything runs; only batches are still those that were remembered."""
        self.mode = REAL
        self._move()

    def end(self) -> None:
        """Leave the program to torch again."""
        self.mode = OFF
        self._move()
        while self._undo:
            self._undo.pop()()
        self._results.clear()
        self._impure.clear()
        self._held.clear()
        self._optimizers.clear()
        self.loaders.forget()

    # -- modules ---------------------------------------------------------------------------------------------------------

    def _watch_modules(self):
        module = self._torch.nn.Module
        original = module.__call__
        called = self._called
        local, compiling, thread = self._local, self._compiling, threading.get_ident()

        def __call__(self, *args, **kwargs):
            if getattr(local, "inside", False) or threading.get_ident() != thread or compiling():
                return original(self, *args, **kwargs)
            return called(original, self, args, kwargs)

        functools.update_wrapper(__call__, original)
        module.__call__ = __call__

        def undo():
            if module.__call__ is __call__:
                module.__call__ = original

        self._undo.append(undo)

    def _called(self, original, module, args, kwargs):
        if self.mode not in (LEARNING, REPLACING) or id(module) in self._impure or self._in_backward():
            return original(module, *args, **kwargs)
        given: list[Tensor] = []
        key = self._key(module, args, kwargs, given)
        if self.mode is REPLACING:
            result = self._results.get(key)
            if result is not None:
                return result.make(given)
        self.misses += 1
        before = self._sizes(module, args, kwargs)
        self._local.inside = True
        try:
            out = original(module, *args, **kwargs)
        finally:
            self._local.inside = False
        self._held[id(module)] = module
        if key is None or before is None or self._sizes(module, args, kwargs) != before:
            # It keeps something of each call, or somebody listens to its parts: those are looked at one by one.
            self._impure.add(id(module))
            return out
        try:
            self._results[key] = Result(self._torch, out, given, module)
        except CannotRemember:
            self._impure.add(id(module))
        return out

    def _in_backward(self):
        task = getattr(self._torch._C, "_current_graph_task_id", None)
        return task is not None and task() != -1

    def _key(self, module, args, kwargs, given):
        """A key that calls with alike results share; None where a call has no key. Collects the call's tensors in `given`."""
        torch = self._torch
        try:
            shape = self._signature(args, given, 0), self._signature(kwargs, given, 0)
        except CannotRemember:
            return None
        mode = (
            module.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled(),
            self._autocast(),
        )  # fmt: skip
        return id(module), mode, shape

    def _autocast(self):
        # The function without an argument is older than PyTorch 2.4.
        dtype = getattr(self._torch, "get_autocast_dtype", None)
        return dtype("cuda") if dtype is not None else self._torch.get_autocast_gpu_dtype()

    def _signature(self, value, given, depth):
        if depth > _DEEPEST:
            raise CannotRemember
        kind = type(value)
        if isinstance(value, self._torch.Tensor):
            given.append(value)
            if value.layout != self._torch.strided:
                raise CannotRemember
            return value.size(), value.stride(), value.dtype, value.device, value.requires_grad
        if kind is float:
            # A temperature, a rate, a time: no size follows from it.
            return float
        if value is None or kind in (bool, int, str, bytes):
            return value
        if isinstance(value, (list, tuple)):
            return (kind, *(self._signature(one, given, depth + 1) for one in value))
        if isinstance(value, dict):
            return (kind, *((key, self._signature(one, given, depth + 1)) for key, one in value.items()))
        return kind, id(value) if callable(value) else None

    def _sizes(self, module, args, kwargs):
        """How much the parts of a module and the objects that it is given hold; None where somebody listens to its calls."""
        sizes: list[Any] = []
        for part in module.modules():
            if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
                return None
            for name, value in part.__dict__.items():
                if name not in MODULE_INTERNALS and name != "_modules":
                    sizes.append(self._size(value, 0))
        for value in (*args, *kwargs.values()):
            sizes.append(self._size(value, 0))
        return sizes

    def _size(self, value, depth):
        kind = type(value)
        if kind in (int, float, bool, str, bytes, type(None)):
            # Counters of calls change no size; what appears where nothing was does.
            return value is None
        if isinstance(value, self._torch.Tensor):
            return value.numel()
        shape = attribute(value, "shape")
        if isinstance(shape, tuple):
            return shape
        if isinstance(value, (list, tuple, dict, set)) or kind.__name__ == "deque":
            length = len(value)
            if depth < 3 and length <= 256:
                members = list(value.values()) if isinstance(value, dict) else list(value)
                return length, [self._size(one, depth + 1) for one in members]
            return length
        names = attribute(value, "__dict__")
        if depth < 3 and isinstance(names, dict) and not callable(value) and len(names) <= 64:
            return [self._size(one, depth + 1) for one in list(names.values())]
        return 0

    # -- optimizers -------------------------------------------------------------------------------------------------------

    def _watch_optimizers(self):
        # Not an attribute of torch.optim: the package deletes the names of its submodules.
        register = getattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_pre_hook", None)
        if register is None:
            return

        def oomph_stubs(optimizer, args, kwargs):
            if id(optimizer) not in self._optimizers:
                self._optimizers[id(optimizer)] = optimizer, {}
                if self.mode is REPLACING:
                    self._still(optimizer)

        self._undo.append(register(oomph_stubs).remove)
        scaler = getattr(sys.modules.get("torch.amp.grad_scaler"), "GradScaler", None)
        if scaler is not None:
            self._watch_scaler(scaler)

    def _still(self, optimizer: Optimizer) -> None:
        """An optimizer makes no step: its gradients stay as they are."""
        names = optimizer.__dict__
        kept = self._optimizers[id(optimizer)][1]
        for name, instead in (("step", _step), ("zero_grad", _nothing)):
            if name not in kept:
                kept[name] = names.get(name, _ABSENT)
                stub: Any = functools.partial(instead)
                # Schedulers of learning rates ask for it.
                stub._wrapped_by_lr_sched = True
                names[name] = stub

    def _move(self):
        """Optimizers make their steps again."""
        for optimizer, kept in self._optimizers.values():
            for name, value in kept.items():
                if value is _ABSENT:
                    optimizer.__dict__.pop(name, None)
                else:
                    optimizer.__dict__[name] = value
            kept.clear()

    def _watch_scaler(self, scaler):
        for name in ("step", "unscale_", "update"):
            original = scaler.__dict__.get(name)
            if original is not None:
                setattr(scaler, name, self._unless_replaced(original))
                self._undo.append(functools.partial(setattr, scaler, name, original))

    def _unless_replaced(self, original):
        @functools.wraps(original)
        def instead(scaler, *args, **kwargs):
            return None if self.mode is REPLACING else original(scaler, *args, **kwargs)

        return instead


_ABSENT = object()


def _step(closure: Callable[[], Any] | None = None, *args: Any, **kwargs: Any) -> Any:
    """In the place of an optimizer's step: what computes the loss is called, as the step calls it."""
    return closure() if closure is not None else None


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


class Loaders:
    """The batches of PyTorch's loaders: the last one of each loader is remembered, and given again."""

    def __init__(self) -> None:
        self._batches: dict[Any, Any] = {}
        self._shapes: dict[Any, Any] = {}
        self._vary: set[Any] = set()
        self._left: dict[int, int] = {}
        self._given: dict[int, tuple[Any, Any, int]] = {}
        """Of each iterator, by its identity: a reference, what its epoch draws samples from, and how many batches it was spared."""
        self._collated = Collated()
        self.sized: Callable[[int], None] = lambda size: None
        """Called with the size of each batch that was loaded, before a loop has it."""

    def attach(self, undo: list[Callable[[], object]], mode: Callable[[], str]) -> None:
        """Stand between loops and loaders."""
        module = sys.modules.get("torch.utils.data.dataloader")
        if module is None:
            return
        iterator = module._BaseDataLoaderIter
        original = iterator.__next__
        loaders = self

        @functools.wraps(original)
        def __next__(self):
            now = mode()
            key = loaders.key_of(self) if now != OFF else None
            if now != LEARNING and key is not None and key in loaders._batches and key not in loaders._vary:
                return loaders.again(self, key)
            batch = original(self)
            if key is not None:
                loaders.remember(self, key, batch)
            if now != OFF:
                loaders.sized(size_of(batch))
            return batch

        iterator.__next__ = __next__

        def restore():
            if iterator.__next__ is __next__:
                iterator.__next__ = original

        undo.append(restore)
        self._collated.attach(undo, lambda: None if mode() == OFF else mode() != LEARNING, _copied)

    def forget(self) -> None:
        """Drop what is remembered; loaders that are still read go on behind the batches that they were spared."""
        for reference, drawn, count in list(self._given.values()):
            iterator = reference()
            if iterator is not None and iterator._sampler_iter is drawn and iterator._num_yielded < (total_of(iterator) or 0):
                _pass_over(iterator, count)
        self._given.clear()
        self._collated.forget()
        self._batches.clear()
        self._shapes.clear()
        self._vary.clear()
        self._left.clear()

    @staticmethod
    def key_of(iterator: Any) -> Any:
        """A key that the iterators of one loader share; None where nobody knows how many batches it gives."""
        if type(attribute(iterator, "_index_sampler")).__name__ == "_InfiniteConstantSampler" or total_of(iterator) is None:
            return None
        return id(iterator._dataset), id(iterator._index_sampler)

    def remember(self, iterator: Any, key: Any, batch: Any) -> None:
        """A loader has given a batch."""
        shapes: list[Any] = []
        self._batches[key] = _copied(batch, shapes)
        self._left[id(iterator)] = (total_of(iterator) or 0) - iterator._num_yielded
        known = self._shapes.get(key)
        if known is None:
            self._shapes[key] = shapes
            if contents.may_vary(sys.modules["torch"], iterator):
                self._vary.add(key)
        elif known != shapes and self._left[id(iterator)]:
            self._vary.add(key)

    def again(self, iterator: Any, key: Any) -> Any:
        """The batch of a loader once more, or what is left of one at its end."""
        total = total_of(iterator) or 0
        if iterator._num_yielded >= total:
            shut_down = attribute(iterator, "_shutdown_workers")
            if shut_down is not None and not attribute(iterator, "_persistent_workers", False):
                shut_down()
            raise StopIteration
        iterator._num_yielded += 1
        _, drawn, count = self._given.get(id(iterator), (None, None, 0))
        again = count if drawn is iterator._sampler_iter else 0
        self._given[id(iterator)] = weakref.ref(iterator), iterator._sampler_iter, again + 1
        self._left[id(iterator)] = total - iterator._num_yielded
        batch = _copied(self._batches[key], [])
        size, rest = _rest_of(iterator._index_sampler)
        return batch if iterator._num_yielded < total or not rest else _cut(batch, size, rest)

    def left(self) -> int | None:
        """Batches that are left of the loader that ends first; None where no loader is known."""
        return min(self._left.values(), default=None)

    def varies(self) -> None:
        """The batches are not alike: each is loaded."""
        self._vary.update(self._batches)


def total_of(iterator: Any) -> int | None:
    """How many batches an iterator of PyTorch's loaders gives; None where nothing says."""
    try:
        return len(iterator._index_sampler)
    except Exception:
        # A sampler of the program's own need not have a length.
        return None


def _pass_over(iterator, count):
    """Have an iterator of a loader leave out the next `count` batches."""
    left = [True for _ in range(count) if next(iterator._sampler_iter, None) is not None]
    for _ in range(count - len(left)):
        # Workers have begun with them.
        next(iterator, None)
        iterator._num_yielded -= 1


def _rest_of(sampler):
    """The size of a full batch, and how many samples the last one has where it is not full, else 0."""
    size = attribute(sampler, "batch_size")
    if not isinstance(size, int) or size <= 0 or attribute(sampler, "drop_last", False):
        return 0, 0
    try:
        return size, len(sampler.sampler) % size
    except Exception:
        # As above.
        return 0, 0


def _copied(value, shapes, depth=0):
    """The same tensors in containers of their own: a body may change those that it is given."""
    kind = type(value)
    if depth <= _DEEPEST:
        if kind in (list, tuple):
            return kind(_copied(one, shapes, depth + 1) for one in value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return kind(*(_copied(one, shapes, depth + 1) for one in value))
        if kind is dict:
            return {key: _copied(one, shapes, depth + 1) for key, one in value.items()}
    size = attribute(value, "shape")
    if isinstance(size, tuple):
        shapes.append(tuple(size))
    names = attribute(value, "data")
    if isinstance(names, dict) and depth <= _DEEPEST:
        # A dictionary in a class of its own, such as a tokenizer's.
        import copy

        made = copy.copy(value)
        made.data = {key: _copied(one, shapes, depth + 1) for key, one in names.items()}
        return made
    return value


def _cut(value, size, rest):
    """A batch of `size` samples with `rest` of them."""
    kind = type(value)
    shape = attribute(value, "shape")
    if isinstance(shape, tuple):
        return value[:rest] if shape and shape[0] == size else value
    if kind in (list, tuple):
        plain = len(value) == size and not any(isinstance(attribute(one, "shape"), tuple) and attribute(one, "ndim") for one in value)
        return value[:rest] if plain else kind(_cut(one, size, rest) for one in value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*(_cut(one, size, rest) for one in value))
    if kind is dict:
        return {key: _cut(one, size, rest) for key, one in value.items()}
    names = attribute(value, "data")
    if isinstance(names, dict):
        value.data = {key: _cut(one, size, rest) for key, one in names.items()}
    return value
