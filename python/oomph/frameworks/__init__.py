"""Frameworks other than PyTorch: JAX, TensorFlow with Keras, ONNX Runtime, XGBoost, Numba, llama.cpp.

Each has a module here that waits for the program to import it. What they have in common, the record of peaks and of the
error that ended the program, is `oomph.frameworks.watch`.
"""

from __future__ import annotations

import os

from oomph import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._protocol import HookConfig


def install(config: HookConfig) -> None:
    """Wait for the frameworks; nothing of them is imported here."""
    if hook.on_virtual_card():
        _suit_the_virtual_card()
    hook.on_import("jax", lambda module: _watch("jax", module, config))
    hook.on_import("tensorflow", lambda module: _watch("tensorflow", module, config))
    # Whichever framework it computes with. A program that imports Keras first imports TensorFlow from inside of it.
    hook.on_import("keras", lambda module: _note_version("keras", module))
    hook.on_import("onnxruntime", lambda module: _watch("onnxruntime", module, config))
    # Numba without its CUDA target compiles for the CPU and is none of ours.
    hook.on_import("numba.cuda", lambda module: _watch("numba", module, config))
    for name in ("llama_cpp", "cyllama"):
        hook.on_import(name, lambda module: _watch("llama", module, config))
    hook.on_import("xgboost", lambda module: _watch("xgboost", module, config))


def _suit_the_virtual_card():
    """Settings that a program on a real card must not get: there they would cost it speed, memory or checks of its own."""
    hook.before_import("jax", lambda: _grow("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"))
    hook.before_import("jax", _do_not_measure)
    hook.on_import("jax._src.hardware_utils", _jax_sees_the_card)
    hook.before_import("tensorflow", lambda: _grow("TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH", "true"))
    hook.before_import("tensorflow", _do_not_measure)


set_here: dict[str, tuple[str, str]] = {}
"""Variables that were set here because the program's environment did not have them, by framework."""


def _grow(framework, variable, value):
    """Have a framework take memory as the program needs it, unless the user has decided or the run is to see it otherwise.

    A pool that takes most of the card at its start hides what the program needs.
    """

    def settle():
        pools = hook.config["pools"]
        if pools == "as-on-a-card":
            if set_here.pop(framework, None) is not None:
                os.environ.pop(variable, None)
        elif pools == "always-as-needed" or not os.environ.get(variable):
            os.environ[variable] = value
            set_here[framework] = (variable, value)

    settle()
    # The fork server imports for runs of all kinds.
    hook.in_new_run(settle)


def _do_not_measure():
    """Keep XLA from timing kernels against each other, unless the user has decided.

    Nothing runs on a virtual card, so the choice would be chance, and compiling all the candidates takes minutes.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_autotune_level" not in flags:
        os.environ["XLA_FLAGS"] = (flags + " --xla_gpu_autotune_level=0").strip()


def _jax_sees_the_card(module):
    """JAX looks for NVIDIA's device nodes before it loads its plugin, and passes over CUDA without a word."""
    if hasattr(module, "has_visible_nvidia_gpu"):
        module.has_visible_nvidia_gpu = lambda: True


def _note_version(name, module):
    from oomph import record

    record.current().frameworks[name] = str(module.__version__)


def _watch(name, module, config):
    import importlib

    from oomph import record

    watcher = importlib.import_module("oomph.frameworks." + name)
    watcher.install(module, record.current(), config)
