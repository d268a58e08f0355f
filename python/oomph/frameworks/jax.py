"""Watches JAX: the peaks of XLA's pool, what each compiled program needs, and the error that a full card raises."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from typing import NamedTuple

from oomph import _protocol as protocol
from oomph import forked, frameworks, hook, sites
from oomph.frameworks import described, readback
from oomph.frameworks.keras import keras_phase
from oomph.frameworks.watch import FrameworkWatcher, given, requested_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any

    from oomph._protocol import HookCompiled, HookConfig, HookLimit, HookOom, HookSite, Phase
    from oomph._types import Library, Peaks
    from oomph.record import Record

_TEXTS = ("resource_exhausted", "out of memory while trying to allocate", "cuda_error_out_of_memory")
_MOST_PROGRAMS = 8
"""How many of the largest compiled programs are kept."""
_MOST_COMPILATIONS = 10000
"""How many compilations are remembered."""
_ROUNDING = 0.01
"""How far the figure of an error may be from the size of a buffer: it has three digits."""


class JaxWatcher(FrameworkWatcher):
    """JAX's backends of one process."""

    def __init__(self, record: Record) -> None:
        super().__init__(record, _TEXTS)
        self.programs: list[HookCompiled] = []
        self.limits: dict[int, HookLimit] = {}
        self.compilations: list[_Compiled] = []

    def _backends(self):
        bridge = sys.modules.get("jax._src.xla_bridge")
        backends = dict(getattr(bridge, "_backends", None) or {})
        return [backend for platform, backend in backends.items() if platform in ("cuda", "gpu")]

    def _devices(self):
        """The cards that JAX uses already; asking for them here must not be what makes it begin."""
        for backend in self._backends():
            yield from backend.local_devices()

    def is_in_use(self) -> bool:
        return bool(self._backends())

    def _read(self, reserved, allocated):
        found = {}
        for device in self._devices():
            stats = device.memory_stats()
            # The allocator `platform` keeps no books.
            if not stats:
                continue
            index = int(getattr(device, "local_hardware_id", None) or 0)
            pool = stats.get(reserved)
            limit = int(stats.get("bytes_limit") or 0)
            if limit:
                self.record.limits[index] = {"bytes": limit, "scales": protocol.LIMIT_SHARE}
            found[index] = (None if pool is None else int(pool), int(stats.get(allocated) or 0))
        return {index: both for index, both in found.items() if any(both)}

    def peaks(self) -> Peaks:
        return self._read("peak_pool_bytes", "peak_bytes_in_use")

    def present(self) -> Peaks:
        return self._read("pool_bytes", "bytes_in_use")

    def on_card(self, value: Any) -> Iterator[tuple[int, int]]:
        jax = sys.modules["jax"]
        for part in jax.tree_util.tree_leaves(value):
            if isinstance(part, jax.Array) and not isinstance(part, jax.core.Tracer) and not part.is_deleted():
                if any(device.platform in ("cuda", "gpu") for device in part.devices()):
                    yield id(part), part.nbytes

    def _end(self, sampler):
        super()._end(sampler)
        hook.guarded(self._see_what_nobody_read)

    def _see_what_nobody_read(self):
        """JAX runs ahead of the program: one that reads no result never hears that there was no memory for it."""
        if self.record.oom is not None or self.record.failure is not None or forked.is_away():
            return
        error = self._of_a_live_array() or self._of_a_program_larger_than_the_pool()
        if error is None:
            return
        self.failed(error)
        oom: Any = self.record.oom
        if oom is not None:
            oom["unread"] = True
        self.record.warn(
            "The program does not read the results of what was refused, and ended as if there had been memory; so it does on a "
            "real card."
        )

    def _of_a_live_array(self):
        for array in sys.modules["jax"].live_arrays() or ():
            try:
                array.block_until_ready()
            except Exception as error:
                # Another failure of a computation that nobody reads is none of the program's.
                if self.is_oom(error):
                    return error
        return None

    def _of_a_program_larger_than_the_pool(self):
        """The same for arrays that are gone: what is larger than the whole pool was refused when it ran."""
        limit = max((limit["bytes"] for limit in self.record.limits.values()), default=0)
        refused = next((one for one in self.compilations if limit and one.largest > limit), None)
        if refused is None:
            return None
        text = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate %d bytes. [executable_name='%s']"
        return RuntimeError(text % (refused.largest, refused.name))

    def is_met_again(self, known: HookOom, error: BaseException) -> bool:
        """Every array that was to be computed has it, with the words of whichever program was to compute that one."""
        return known["requested_bytes"] == requested_of(str(error))

    def phase(self, frames: Iterable[FrameType]) -> Phase:
        """Keras evaluates and predicts with JAX as well."""
        return keras_phase(frames) or super().phase(())

    def _facts(self, cause, site, frames):
        facts = super()._facts(cause, site, frames)
        if facts["phase"] == protocol.PHASE_OTHER and sites.is_named_for_evaluation(facts["model"]):
            # `jit_eval_step` is all that is compiled of it, and its error comes where the result is read.
            facts["phase"] = protocol.PHASE_EVAL
        return facts

    def hear_errors(self, errors: Library) -> None:
        """Its errors are all of one class, which older versions do not name."""
        self.hear(*filter(None, [getattr(errors, "JaxRuntimeError", None)]))

    # -- compiled programs -------------------------------------------------------------------------------------

    def watch_compiler(self, compiler: Library) -> None:
        """Keep what XLA says that each program needs when it has compiled it."""
        original = getattr(compiler, "compile_or_get_cached", None)
        if original is None:
            return
        watcher = self

        @functools.wraps(original)
        def compile_or_get_cached(*args, **kwargs):
            executable = original(*args, **kwargs)
            module = args[1] if len(args) > 1 else kwargs.get("computation")
            hook.guarded(watcher._compiled, executable, module)
            return executable

        compiler.compile_or_get_cached = compile_or_get_cached

    def _compiled(self, executable, module):
        if executable.client.platform not in ("cuda", "gpu"):
            return
        # The name of the module as XLA's messages have it: `jit_train_step`.
        name = str(module.operation.attributes["sym_name"]).strip('"')
        stats = executable.get_compiled_memory_stats()
        if len(self.compilations) < _MOST_COMPILATIONS:
            outputs, temporary = int(stats.output_size_in_bytes), int(stats.temp_size_in_bytes)
            sizes = {outputs, temporary, *(hook.guarded(_outputs_of, module) or ())}
            present = max((own[1] for own in self.present().values()), default=0)
            given_back = int(stats.alias_size_in_bytes)
            frame = sys._getframe()
            # These are of one card, which the results of a program on several are not.
            largest = max(outputs - given_back, temporary) if _is_to_run(frame) else 0
            reaches = present + outputs + temporary - given_back
            self.compilations.append(_Compiled(name, sizes, reaches, sites.site_of_frame(frame), largest))
        program: HookCompiled = {
            "name": name,
            "argument_bytes": int(stats.argument_size_in_bytes),
            "output_bytes": int(stats.output_size_in_bytes),
            "alias_bytes": int(stats.alias_size_in_bytes),
            "temp_bytes": int(stats.temp_size_in_bytes),
            "code_bytes": int(stats.generated_code_size_in_bytes),
        }
        programs = [known for known in self.programs if known != program] + [program]
        programs.sort(key=_need, reverse=True)
        self.programs = self.record.compiled = programs[:_MOST_PROGRAMS]

    def place(self, message: str, site: HookSite | None) -> tuple[str | None, HookSite | None]:
        """The program that was refused its memory, and the user's line that calls it.

        JAX runs ahead of the program: the error comes where a result is first read, which may be anywhere.
        """
        name, called = self._refused(message)
        if not called or any(_same_line(one, site) for one in called):
            return name, site
        if site is not None:
            self.record.warn(
                "JAX reported the error at %s:%d, where a result was read; %s was called before that."
                % (os.path.basename(site["file"]), site["line"], name)
            )
        return name, called[-1]

    def _refused(self, message):
        """The program that asked for what an error names, and the lines that it was compiled for.

        The error of a program is that of all that take its results, and it names the last of them.
        """
        found = re.search(r"executable_name='([^']+)'", message)
        named = found.group(1) if found else None
        requested = requested_of(message)
        if not requested:
            return named, []
        able = [one for one in self.compilations if max(one.sizes) >= requested * (1 - _ROUNDING)]
        chosen = [one for one in able if one.name == named] or self._the_first_to_fail(able, requested)
        if not chosen:
            return named, []
        name = chosen[0].name
        return name, [one.site for one in able if one.name == name and one.site is not None]

    def _the_first_to_fail(self, able, requested):
        """Those that may have asked for so many bytes, the most likely one first.

        What was in use never reached the level that the program which failed would have brought it to. Programs that were
        compiled after it may not have reached theirs either, but only because they take its results.
        """
        peak = max((own[1] for own in self.peaks().values()), default=0)
        exact = [one for one in able if any(abs(size - requested) <= requested * _ROUNDING for size in one.sizes)]
        for among in (exact, able):
            unreached = [one for one in among if one.reaches > peak]
            if unreached:
                return unreached
        return exact or able


class _Compiled(NamedTuple):
    """A program that was compiled."""

    name: str
    """The name of its module."""
    sizes: set[int]
    """The bytes of each of its outputs, of all of them, and of its temporaries."""
    reaches: int
    """The bytes in use at its first run, if that succeeds."""
    site: HookSite | None
    """The user's line that it was compiled for."""
    largest: int
    """What it allocates at once on one card when it runs, in bytes; 0 where it was not compiled to be run at once."""


def _is_to_run(frame: FrameType | None) -> bool:
    """Whether what is compiled now is run at once: `jax.jit(f).lower(x).compile()` is for later, or for its figures alone."""
    while frame is not None and not sites.is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith("/jax/_src/stages.py"):
            return False
        frame = frame.f_back
    return True


def _outputs_of(module):
    """The bytes of each result of a module's main function; of all cards together."""
    main = next(one for one in module.body.operations if one.attributes["sym_name"].value == "main")
    found = []
    for result in main.attributes["function_type"].value.results:
        element = str(result.element_type)
        bits = int((re.search(r"\d+", element) or [8])[0])
        found.append(math.prod(result.shape) * max(1, bits // 8) * (2 if element.startswith("complex") else 1))
    return found


def _watch_gradients(jax, described):
    """Who asks for gradients trains."""
    for name in ("grad", "value_and_grad"):
        original = getattr(jax, name)

        def wrapper(*args, _original=original, **kwargs):
            described.training()
            return _original(*args, **kwargs)

        functools.update_wrapper(wrapper, original)
        setattr(jax, name, wrapper)


def _same_line(one, other):
    return other is not None and (one["file"], one["line"]) == (other["file"], other["line"])


def _need(program):
    return program["argument_bytes"] + program["output_bytes"] + program["temp_bytes"] - program["alias_bytes"]


def _say_how_it_grows(record):
    preallocate = given("XLA_PYTHON_CLIENT_PREALLOCATE") or "true"
    if "JAX" in frameworks.set_here and preallocate == "false":
        record.warn(
            "JAX took memory as the program needed it (oomph set XLA_PYTHON_CLIENT_PREALLOCATE=false); by default it takes "
            "75 % of a card at its start, whatever the program needs. A real card times XLA's kernels and keeps the fastest: on "
            "an H100 that took 0 to 12 % more in three programs, and convolutions took what was free while they were tried."
        )
    elif preallocate not in ("false", "False", "0"):
        record.preallocates = True
        if given("XLA_PYTHON_CLIENT_PREALLOCATE") is None:
            record.warn(
                "JAX took its part of the card at the start, as it does by default. What the program needs of it is the "
                "allocated memory; XLA_PYTHON_CLIENT_PREALLOCATE=false leaves the rest to others."
            )
            return
        record.warn(
            "JAX preallocated its pool because XLA_PYTHON_CLIENT_PREALLOCATE=%s is set; what the program needs is the "
            "allocated memory." % preallocate
        )


def install(jax: Library, record: Record, config: HookConfig) -> JaxWatcher:
    """Attach to a JAX that has just been imported."""
    record.frameworks["jax"] = str(jax.__version__)
    watcher = JaxWatcher(record)
    watcher.attach()
    hook.guarded(_watch_gradients, jax, described.of(record))
    hook.on_import("jax._src.compiler", watcher.watch_compiler)
    hook.on_import("jax.errors", watcher.hear_errors)
    hook.on_import("jax._src.xla_bridge", lambda bridge: _when_it_begins(bridge, record))
    if hook.on_virtual_card():
        hook.on_import("jax._src.array", lambda module: readback.watch_jax(module, record, config["unknown_sizes"]))
    return watcher


_OLDEST = {"xla_cuda12": "compute_52", "xla_cuda13": "compute_75"}
"""The oldest cards that the compiler of each plugin knows: CUDA 12 begins with Maxwell, CUDA 13 with Turing."""


def _say_what_it_compiles_for(record):
    """XLA compiles for the card that it finds, but its CUDA knows no card before a certain one."""
    plugins = [_OLDEST[name] for name in _OLDEST if "jax_plugins." + name in sys.modules]
    if plugins and not record.architectures:
        record.architectures = plugins


def _when_it_begins(bridge, record):
    """Speak of the pool only where there is one: a program may use JAX on the CPU."""
    original = getattr(bridge, "_init_backend", None)
    if original is None:
        return

    @functools.wraps(original)
    def _init_backend(platform, *args, **kwargs):
        backend = original(platform, *args, **kwargs)
        if platform == "cuda":
            hook.guarded(_say_how_it_grows, record)
            hook.guarded(_say_what_it_compiles_for, record)
        return backend

    bridge._init_backend = _init_backend
