"""Reports the moments at which something can be seen or changed: a model is called, an optimizer is made.

Each moment is watched only once somebody asks for it, by one change to the library it belongs to. Calls of models are
watched for remedies only, since every call of a module pays for it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading

from oomph import hook
from oomph.quiet import Quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Loader, Model, Optimizer, Pipeline, Torch
    from oomph.record import Record


class Moments:
    """Watches a program. Callbacks run in the order in which they were given."""

    def __init__(self, torch: Torch, record: Record) -> None:
        self.torch = torch
        self.record = record
        self.quiet = Quiet(torch)
        self._local = threading.local()
        self._before_model: list[Callable[..., Any]] = []
        self._around_model: list[Callable[..., Any]] = []
        self._after_model: list[Callable[..., Any]] = []
        self._before_move: list[Callable[..., Any]] = []
        self._arguments: list[Callable[..., Any]] = []
        self._trainers: list[tuple[Callable[..., Any] | None, Callable[..., Any] | None]] = []
        self._optimizers: list[Callable[..., Any]] = []
        self._parameters: list[Callable[..., Any]] = []
        self._steps: list[Callable[..., Any]] = []
        self._backward: list[Callable[..., Any]] = []
        self._pretrained: list[tuple[Callable[..., Any] | None, Callable[..., Any] | None]] = []
        self._pipelines: list[Callable[..., Any]] = []
        self._pipeline_calls: list[Callable[..., Any]] = []
        self._batches: list[Callable[..., Any]] = []
        self.trainer_seen = False
        """The program trains with the Trainer of transformers, which has arguments for most remedies."""

    @property
    def steps_seen(self) -> int:
        """How many optimizer steps the program has made."""
        return self.record.steps

    # -- calls of the models that the program itself calls ------------------------------------------------------

    def before_model(
        self,
        callback: Callable[[Model, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None],
    ) -> None:
        """`callback(model, args, kwargs)` before such a call; it may give other (args, kwargs)."""
        self._watch_models()
        self._before_model.append(callback)

    def around_model(self, factory: Callable[[Model], Any]) -> None:
        """`factory(model)` gives a context manager to run the call in, or None."""
        self._watch_models()
        self._around_model.append(factory)

    def after_model(self, callback: Callable[[Model, Any], Any]) -> None:
        """`callback(model, result)` after such a call that succeeded; it may give another result."""
        self._watch_models()
        self._after_model.append(callback)

    def in_backward(self) -> bool:
        """Say whether this thread is inside a backward pass, where calls of modules are recomputations."""
        task = getattr(self.torch._C, "_current_graph_task_id", None)
        return task is not None and task() != -1

    def _watch_models(self):
        module = self.torch.nn.Module
        original = module.__call__
        if getattr(original, "_oomph_remedies", False):
            return
        compiling = getattr(getattr(self.torch, "compiler", None), "is_compiling", None) or (lambda: False)
        local = self._local
        outermost = self._outermost

        def __call__(self, *args, **kwargs):
            if compiling() or getattr(local, "inside", False):
                return original(self, *args, **kwargs)
            return outermost(original, self, args, kwargs)

        functools.update_wrapper(__call__, original)
        __call__._oomph_remedies = True  # type: ignore[attr-defined]
        module.__call__ = __call__

    def _outermost(self, original, model, args, kwargs):
        # A loss function is a module too, but no model.
        if self.in_backward() or next(model.parameters(), None) is None:
            return original(model, *args, **kwargs)
        self._local.inside = True
        try:
            for callback in self._before_model:
                changed = callback(model, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            with contextlib.ExitStack() as stack:
                for factory in self._around_model:
                    context = factory(model)
                    if context is not None:
                        stack.enter_context(context)
                result = original(model, *args, **kwargs)
            for callback in self._after_model:
                changed = callback(model, result)
                if changed is not None:
                    result = changed
            return result
        finally:
            self._local.inside = False

    # -- moves to a card ---------------------------------------------------------------------------------------

    def before_move(self, callback: Callable[[Model], object]) -> None:
        """`callback(model)` before `model.to(...)` or `model.cuda()` brings it to a card."""
        if not self._before_move:
            self._watch_moves()
        self._before_move.append(callback)

    def _watch_moves(self):
        module = self.torch.nn.Module
        parse = getattr(self.torch._C._nn, "_parse_to", None)
        callbacks = self._before_move
        plain_to, plain_cuda = module.to, module.cuda

        def moving(model):
            for callback in callbacks:
                callback(model)

        @functools.wraps(plain_to)
        def to(self, *args, **kwargs):
            if parse is not None and goes_to_a_card(parse, args, kwargs):
                moving(self)
            return plain_to(self, *args, **kwargs)

        @functools.wraps(plain_cuda)
        def cuda(self, device=None):
            moving(self)
            return plain_cuda(self, device)

        module.to, module.cuda = to, cuda

    # -- the Trainer of transformers ---------------------------------------------------------------------------

    def on_arguments(self, callback: Callable[[Any], object]) -> None:
        """`callback(arguments)` when TrainingArguments are made, before the library looks at what was given."""
        if not self._arguments:
            hook.on_import("transformers.training_args", self._watch_arguments)
        self._arguments.append(callback)

    def _watch_arguments(self, module):
        cls = module.TrainingArguments
        original = cls.__post_init__
        moments = self

        @functools.wraps(original)
        def __post_init__(self, *args, **kwargs):
            moments.trainer_seen = True
            for callback in moments._arguments:
                callback(self)
            return original(self, *args, **kwargs)

        cls.__post_init__ = __post_init__

    def on_trainer(
        self, before: Callable[[dict[str, Any]], object] | None = None, after: Callable[[Any], object] | None = None
    ) -> None:
        """`before(kwargs)` and `after(trainer)` when a Trainer is made; kwargs are those of its `__init__`, by name."""
        if not self._trainers:
            hook.on_import("transformers.trainer", self._watch_trainers)
        self._trainers.append((before, after))

    def _watch_trainers(self, module):
        import inspect

        cls = module.Trainer
        original = cls.__init__
        signature = inspect.signature(original)
        moments = self

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            given = signature.bind(self, *args, **kwargs).arguments
            given.pop("self", None)
            for before, _ in moments._trainers:
                if before is not None:
                    before(given)
            original(self, **given)
            for _, after in moments._trainers:
                if after is not None:
                    after(self)

        cls.__init__ = __init__

    # -- optimizers and backward passes ------------------------------------------------------------------------

    def on_optimizer(self, callback: Callable[[Optimizer], object]) -> None:
        """`callback(optimizer)` when an optimizer has been made."""
        self._watch_optimizers()
        self._optimizers.append(callback)

    def before_optimizer(self, callback: Callable[[list[Any]], list[Any] | None]) -> None:
        """`callback(parameters)` before an optimizer is made of a list; it may give another list."""
        self._watch_optimizers()
        self._parameters.append(callback)

    def _watch_optimizers(self):
        if self._optimizers or self._parameters:
            return
        # Not an attribute of torch.optim: the package deletes the names of its submodules.
        base = sys.modules["torch.optim.optimizer"].Optimizer
        original = base.__init__
        moments = self

        @functools.wraps(original)
        def __init__(self, params, defaults, *args, **kwargs):
            if moments._parameters and not isinstance(params, moments.torch.Tensor):
                params = list(params)
                for callback in moments._parameters:
                    changed = callback(params)
                    params = params if changed is None else changed
            original(self, params, defaults, *args, **kwargs)
            for callback in moments._optimizers:
                callback(self)

        base.__init__ = __init__

    def on_step(self, callback: Callable[[Optimizer], object]) -> None:
        """`callback(optimizer)` after each step of an optimizer."""
        if not self._steps:
            register = getattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_post_hook", None)
            if register is not None:
                callbacks = self._steps

                def oomph_step(optimizer, args, kwargs):
                    for each in callbacks:
                        each(optimizer)

                register(self.quiet.skip(oomph_step))
        self._steps.append(callback)

    def on_backward(self, callback: Callable[[], object]) -> None:
        """`callback()` before a backward pass that the program starts."""
        if not self._backward:
            autograd = self.torch.autograd
            tensor = self.torch.Tensor
            autograd.backward = self._announcing(autograd.backward)
            tensor.backward = self._announcing(tensor.backward)
            autograd.grad = self._announcing(autograd.grad)
        self._backward.append(callback)

    def _announcing(self, original):
        callbacks = self._backward

        @functools.wraps(original)
        def backward(*args, **kwargs):
            for callback in callbacks:
                callback()
            return original(*args, **kwargs)

        return backward

    # -- from_pretrained, pipelines ----------------------------------------------------------------------------

    def on_pretrained(
        self,
        before: Callable[[type, dict[str, Any]], object] | None = None,
        after: Callable[[Model, dict[str, Any]], Model | None] | None = None,
    ) -> None:
        """`before(cls, kwargs)` and `after(model, kwargs)` when a model of transformers or diffusers is loaded by name.

        `after` may give another model in place of the one that was loaded.
        """
        if not self._pretrained:
            hook.on_import("transformers.modeling_utils", lambda module: self._watch_pretrained(module.PreTrainedModel))
            hook.on_import("diffusers.models.modeling_utils", lambda module: self._watch_pretrained(module.ModelMixin))
        self._pretrained.append((before, after))

    def _watch_pretrained(self, base):
        original = base.__dict__["from_pretrained"].__func__
        moments = self

        @functools.wraps(original)
        def from_pretrained(cls, *args, **kwargs):
            for before, _ in moments._pretrained:
                if before is not None:
                    before(cls, kwargs)
            model = original(cls, *args, **kwargs)
            for _, after in moments._pretrained:
                if after is not None:
                    changed = after(model, kwargs)
                    model = model if changed is None else changed
            return model

        base.from_pretrained = classmethod(from_pretrained)

    def on_pipeline(self, callback: Callable[[Pipeline], object]) -> None:
        """`callback(pipeline)` when a pipeline of diffusers has its components."""
        if not self._pipelines:
            hook.on_import("diffusers.pipelines.pipeline_utils", self._watch_pipelines)
        self._pipelines.append(callback)

    def _watch_pipelines(self, module):
        cls = module.DiffusionPipeline
        original = cls.register_modules
        callbacks = self._pipelines

        @functools.wraps(original)
        def register_modules(self, **kwargs):
            original(self, **kwargs)
            for callback in callbacks:
                callback(self)

        cls.register_modules = register_modules

    def on_pipeline_call(self, callback: Callable[[Pipeline, tuple[Any, ...], dict[str, Any]], object]) -> None:
        """`callback(pipeline, args, kwargs)` before a pipeline of diffusers is called."""
        if not self._pipeline_calls:
            self.on_pipeline(self._watch_calls_of)
        self._pipeline_calls.append(callback)

    def _watch_calls_of(self, pipeline):
        cls = type(pipeline)
        original = cls.__call__
        if getattr(original, "_oomph_watched", False):
            return
        callbacks = self._pipeline_calls

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            for callback in callbacks:
                callback(self, args, kwargs)
            return original(self, *args, **kwargs)

        __call__._oomph_watched = True  # type: ignore[attr-defined]
        cls.__call__ = __call__

    # -- data --------------------------------------------------------------------------------------------------

    def on_first_batch(self, callback: Callable[[Loader, Any], object]) -> None:
        """`callback(loader, batch)` when a pass over a DataLoader gives its first batch."""
        if not self._batches:
            hook.on_import("torch.utils.data.dataloader", self._watch_loaders)
        self._batches.append(callback)

    def _watch_loaders(self, module):
        iterator = module._BaseDataLoaderIter
        plain_init, plain_next = iterator.__init__, iterator.__next__
        callbacks = self._batches

        @functools.wraps(plain_init)
        def __init__(self, loader, *args, **kwargs):
            self._oomph_loader = loader
            plain_init(self, loader, *args, **kwargs)

        @functools.wraps(plain_next)
        def __next__(self):
            batch = plain_next(self)
            loader = self.__dict__.pop("_oomph_loader", None)
            if loader is not None:
                for callback in callbacks:
                    callback(loader, batch)
            return batch

        iterator.__init__, iterator.__next__ = __init__, __next__


def goes_to_a_card(parse: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether the arguments of `Module.to` name a CUDA device."""
    try:
        device = parse(*args, **kwargs)[0]
    except Exception:
        # The parser is torch's own and refuses arguments in its own ways; the call itself raises then.
        return False
    return device is not None and device.type == "cuda"
