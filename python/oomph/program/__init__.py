"""Describes the program to the search for remedies: libraries, models, optimizers, loaders, pipelines, what it keeps.

Everything is looked at once, when it is made or first used, and nothing is held. docs/internals/run-folder.md
has the format.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import weakref

from oomph import sites
from oomph.hook import guarded
from oomph.program.contrast import compares_samples
from oomph.program.facts import facts_of_model, facts_of_pipeline, leads_elsewhere, makes_a_needless_graph, shapes_of
from oomph.program.kept import Growing
from oomph.program.kinds import is_a

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal

    from oomph._types import Model, Optimizer, Tensor, Torch
    from oomph.moments import Moments
    from oomph.record import Record

_LIBRARIES = (
    "torch", "transformers", "peft", "trl", "diffusers", "accelerate", "bitsandbytes", "timm", "lightning", "torchvision",
    "liger_kernel", "torchao", "deepspeed",
)  # fmt: skip
_OPTIONAL = ("liger_kernel", "bitsandbytes", "peft", "torchao")
"""Packages that remedies import and a program need not have."""

_ARGUMENTS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "gradient_checkpointing", "optim",
    "per_device_eval_batch_size", "eval_accumulation_steps", "use_liger_kernel", "max_length", "packing",
    "prediction_loss_only", "torch_empty_cache_steps",
)  # fmt: skip
_MOST_CALLS = 50000
"""Calls of modules after which no further models are looked for."""
_MOST_MODELS = 16


class Program:
    """Sees what a program is made of. Its methods swallow their own errors."""

    def __init__(self, torch: Torch, record: Record, moments: Moments) -> None:
        self.torch = torch
        self.record = record
        self.moments = moments
        self.models: list[dict[str, Any]] = []
        self.trainer: dict[str, Any] | None = None
        self.loaders: list[dict[str, Any]] = []
        self.pipelines: list[dict[str, Any]] = []
        self.autocast: str | None = None
        self.grad_scaler = False
        self.compares_samples: bool | None = None
        self._backwards = 0
        self.loop: dict[str, Any] | Literal[False] | None = None
        self._optimizers: list[tuple[Callable[[], Any], dict[str, Any]]] = []
        self._untrained: list[dict[str, Any]] = []
        self._trains_one = False
        self._scaler = None
        self._known: set[int] = set()
        self._calls = 0
        self._handle: Any = None
        self._training = False
        self._evaluates = False
        self._growing = Growing(torch)
        self._stepped = 0
        self._imports: tuple[int, list[str]] = (0, [])

    def attach(self) -> None:
        """Wait for what the program makes."""
        moments = self.moments
        watch = lambda callback: lambda *args: guarded(callback, *args)
        moments.on_trainer(after=watch(self._see_trainer))
        moments.on_optimizer(watch(self._see_optimizer))
        moments.on_step(watch(self._see_step))
        moments.on_pipeline_call(watch(self._see_pipeline))
        moments.on_first_batch(watch(self._see_batch))
        self._watch_models()
        self._watch_scaler()

    # -- models ------------------------------------------------------------------------------------------------

    def _watch_models(self):
        """Look at what is called until it is known; the compiler would have to compile the hook, so it ends before."""
        from oomph import hook

        compiling = getattr(getattr(self.torch, "compiler", None), "is_compiling", None) or (lambda: False)
        known = self._known
        called = self.moments.quiet.around(self._called)

        def oomph_called(module, args):
            if compiling() or id(module) in known:
                return
            called(module, args)

        register = self.torch.nn.modules.module.register_module_forward_pre_hook
        self._handle = register(self.moments.quiet.skip(oomph_called))
        hook.on_import("torch._dynamo.convert_frame", self._watch_compiler)
        hook.on_import("torch._dynamo.eval_frame", self._watch_compiled)

    def _watch_compiler(self, module):
        """The compiler's module is there; when it begins to compile, what it compiles must not have the hook in it."""
        if not hasattr(module, "_compile"):
            self._enough()
            return
        # The second is what those call who compile a model ahead as one graph, such as vLLM.
        for name in ("_compile", "fullgraph_capture"):
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, self._enough_before(original))

    def _enough_before(self, compile):
        @functools.wraps(compile)
        def compiling(*args, **kwargs):
            self._enough()
            return compile(*args, **kwargs)

        return compiling

    def _watch_compiled(self, module):
        """A compiled model warns of any global hook when it is first called."""
        cls = module.OptimizedModule
        original = cls.__init__
        program = self

        @functools.wraps(original)
        def __init__(self, mod, *args, **kwargs):
            if program._handle is not None:
                guarded(program._see_model, mod)
                program._enough()
            original(self, mod, *args, **kwargs)

        cls.__init__ = __init__

    def _enough(self):
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
            self._known.clear()

    def _called(self, module, args):
        if module.training and self.torch.is_grad_enabled():
            self._training = True
        guarded(self._see_model, module)
        guarded(self._see_untrained, module, args)
        if self.record.phases is not None:
            self.record.phases.model_called()

    def _see_model(self, model):
        if len(self.models) >= _MOST_MODELS:
            self._enough()
            return
        self._known.update(id(part) for part in model.modules())
        if next(model.parameters(), None) is None:
            return
        if self.autocast is None and self.torch.is_autocast_enabled():
            self.autocast = str(self.torch.get_autocast_dtype("cuda")).replace("torch.", "")
        self.models.append(facts_of_model(self.torch, model))

    def _see_untrained(self, model, args):
        """A model that no optimizer changes, such as a teacher, is called so that a graph is made."""
        if not self._optimizers or not self.torch.is_grad_enabled():
            return
        if self.trains(model):
            self._trains_one = True
        elif makes_a_needless_graph(self.torch, model, args) and len(self._untrained) < _MOST_MODELS:
            site = sites.site_of_frame(sys._getframe(1))
            if site is not None:
                self._untrained.append({"class": type(model).__name__, "file": site["file"], "line": site["line"]})
                self._look_at_result(model, self._untrained[-1])

    def _look_at_result(self, model, call):
        """A call whose graph leads to weights that are not the model's own is needed."""

        def called(model, args, result):
            handle.remove()
            if guarded(leads_elsewhere, self.torch, model, result) and call in self._untrained:
                self._untrained.remove(call)

        handle = model.register_forward_hook(called)

    # -- trainers, optimizers, steps ---------------------------------------------------------------------------

    def _see_trainer(self, trainer):
        arguments = trainer.args
        given = {}
        for name in _ARGUMENTS:
            if hasattr(arguments, name):
                value = getattr(arguments, name)
                value = getattr(value, "value", value)
                given[name] = value if isinstance(value, (bool, int, float, str)) else None
        if getattr(arguments, "activation_checkpointing", None):
            given["gradient_checkpointing"] = True
        self.trainer = {"class": type(trainer).__name__, "arguments": given}
        if given.get("bf16") or given.get("fp16"):
            self.autocast = "bfloat16" if given.get("bf16") else "float16"
        self._evaluates = True

    def _see_optimizer(self, optimizer):
        self._training = True
        if len(self._optimizers) < 64 and not is_a(optimizer, "accelerate.optimizer", "AcceleratedOptimizer"):
            self._optimizers.append((weakref.ref(optimizer), facts_of_optimizer(optimizer)))

    def has_optimizer(self) -> bool:
        """Say whether the program has made an optimizer."""
        return bool(self._optimizers)

    def trains(self, model: Model) -> bool:
        """Say whether an optimizer updates a parameter of a model."""
        updated: set[int] = set()
        for reference, _ in self._optimizers:
            for group in getattr(reference(), "param_groups", None) or ():
                updated.update(id(parameter) for parameter in group["params"])
        return any(id(parameter) in updated for parameter in model.parameters())

    def _see_step(self, optimizer):
        self._training = True
        steps = self.record.steps
        if self._handle is not None and steps >= 2:
            self._enough()
        if self.loop is None:
            self._see_loop(sys._getframe(3))
        if steps == self._stepped or not 1 <= steps <= 5:
            return
        self._stepped = steps
        if steps <= 4:
            self._growing.look(sys._getframe(3))
        else:
            self._growing.forget()

    def _see_loop(self, frame):
        site = sites.site_of_frame(frame)
        if self.trainer is None and site is not None:
            splittable = any(one["splittable"] for one in self.loaders)
            self.loop = {"recognized": splittable, "file": site["file"], "line": site["line"]}
        else:
            self.loop = False

    def see_backward(self, outputs: Iterable[Tensor]) -> None:
        """A backward pass begins: look at what the first ones compute."""
        sizes = {one["facts"]["batch_size"] for one in self.loaders} - {None, 0, 1}
        if self._backwards < 3 and sizes:
            self._backwards += 1
            self.compares_samples = self.compares_samples or compares_samples(outputs, sizes)

    def out_of_memory(self) -> None:
        """The allocator found no memory: what does the program hold at this moment."""
        frame = sys._getframe(2)
        if sites.site_of_frame(frame) is None:
            # The backward pass runs in threads of the autograd engine, which have no frames of the user's.
            frame = sites.frame_of_main_thread() or frame
        self._growing.look(frame, last=True)
        self._growing.forget()

    def _watch_scaler(self):
        scaler = getattr(self.torch.amp, "GradScaler", None) or self.torch.cuda.amp.GradScaler
        original = scaler.__init__
        program = self

        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            program.grad_scaler = program.grad_scaler or bool(getattr(self, "_enabled", False))

        __init__.__wrapped__ = original  # type: ignore[attr-defined]
        scaler.__init__ = __init__

    # -- data and pipelines ------------------------------------------------------------------------------------

    def _see_batch(self, loader, batch):
        if len(self.loaders) >= 8:
            return
        sampler = getattr(loader, "batch_sampler", None)
        size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        facts = {"batch_size": size, "first_batch": shapes_of(self.torch, batch)}
        splittable = (
            sampler is not None and self.torch.is_grad_enabled() and not getattr(loader, "persistent_workers", False)
            and not type(loader).__module__.startswith("accelerate")
        )  # fmt: skip
        if not any(one["facts"] == facts for one in self.loaders):
            self.loaders.append({"facts": facts, "splittable": bool(splittable and size and size > 1)})

    def _see_pipeline(self, pipeline, args, kwargs):
        if len(self.pipelines) < 8:
            facts = facts_of_pipeline(pipeline, args, kwargs)
            if facts not in self.pipelines:
                self.pipelines.append(facts)
            # Some parts are called by other ways than as modules.
            for part in pipeline.components.values():
                if isinstance(part, self.torch.nn.Module) and id(part) not in self._known:
                    self._see_model(part)

    # -- the report --------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """What is known by now, in the form of docs/internals/run-folder.md."""
        return {
            "libraries": self._libraries(),
            "missing": [name for name in _OPTIONAL if name not in sys.modules and importlib.util.find_spec(name) is None],
            "task": self._task(),
            "trainer": self.trainer,
            "models": self.models,
            "optimizers": self._optimizer_facts(),
            "autocast": self.autocast,
            "grad_scaler": self.grad_scaler,
            "compares_samples": self.compares_samples,
            "loaders": [one["facts"] for one in self.loaders],
            "loop": self.loop or None,
            "pipelines": self.pipelines,
            "kept": list(self._growing.kept.values()),
            # Where no model is seen to be trained, its optimizer has other tensors than the model, as DeepSpeed's has.
            "untrained": self._untrained if self._trains_one else [],
            "imports": self._packages(),
        }

    def _libraries(self):
        versions = {}
        for name in _LIBRARIES:
            module = sys.modules.get(name)
            version = getattr(module, "__version__", None)
            if version is not None:
                versions[name] = str(version)
        return versions

    def _task(self):
        if self.record.steps or self._training:
            return "training"
        if self._evaluates:
            return "evaluation"
        return "inference" if self.models or self.pipelines else None

    def _optimizer_facts(self):
        # Optimizers inside others, one for each parameter say, are one thing to the reader.
        facts = []
        for reference, one in self._optimizers:
            optimizer = reference()
            if optimizer is not None and one["parameters"] is None:
                one.update(facts_of_optimizer(optimizer))
            if one not in facts:
                facts.append(one)
        return facts[:16]

    def _packages(self):
        """The packages from site-packages that were imported, by their top-level names."""
        count = len(sys.modules)
        if self._imports[0] != count:
            names = set()
            for name, module in list(sys.modules.items()):
                if "." not in name and not name.startswith("_"):
                    path = getattr(module, "__file__", None) or ""
                    if "/site-packages/" in path or "/dist-packages/" in path:
                        names.add(name)
            self._imports = count, sorted(names)
        return self._imports[1]


def facts_of_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """Class, way of stepping and size of an optimizer."""
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    first = groups[0] if groups else {}
    return {
        "class": type(optimizer).__name__,
        "module": type(optimizer).__module__,
        "foreach": first.get("foreach"),
        "fused": first.get("fused"),
        "parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    }


def install(torch: Torch, record: Record, moments: Moments) -> Program:
    """Attach to a torch that has just been imported."""
    program = Program(torch, record, moments)
    record.program = program
    program.attach()
    return program
