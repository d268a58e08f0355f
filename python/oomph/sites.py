"""Reads stacks: which line of the user's and of the library, which module, which phase, whether it is an out-of-memory
error.

Everything works on frames and code objects alone and imports nothing of torch, so it can be used inside the
allocator's observer and tested on stacks that were made by hand.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
import tempfile
import time

from oomph import _protocol as protocol
from oomph import module_path, notebook
from oomph.looking import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType, TracebackType
    from typing import Literal

    from oomph._protocol import HookOom, HookSite, Phase
    from oomph._types import Model
    from oomph.module_path import Called

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_OOM_TEXTS = (
    "cuda out of memory",
    "hip out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cusparse_status_insufficient_resources",
    "cudaerrormemoryallocation",
    "cuda_error_out_of_memory",
    "nccl_out_of_memory",
)
_OOM_NAMES = ("OutOfMemoryError", "CUDAOutOfMemoryError")
_OTHER_FRAMEWORKS = ("jax", "jaxlib", "tensorflow", "keras", "onnxruntime")
"""Frameworks whose errors are read by `oomph.frameworks`, which knows their pools."""
_BEGAN = time.time()
_library_roots: tuple[str, ...] | None = None


def _roots():
    global _library_roots
    if _library_roots is None:
        paths = sysconfig.get_paths()
        roots = set()
        for key in ("stdlib", "platstdlib", "purelib", "platlib"):
            if paths.get(key):
                roots.add(os.path.abspath(paths[key]) + os.sep)
                roots.add(os.path.realpath(paths[key]) + os.sep)
        # A virtual environment runs the standard library of the interpreter it was made from.
        roots.add(os.path.dirname(os.path.abspath(os.__file__)) + os.sep)
        roots.add(os.path.dirname(os.path.realpath(os.__file__)) + os.sep)
        roots.update(_elsewhere())
        _library_roots = tuple(roots)
    return _library_roots


@functools.lru_cache(maxsize=1)
def _elsewhere():
    try:
        own = sys.path[0], os.getcwd()
    except (IndexError, OSError):
        return ()
    return tuple(_installed_elsewhere(sys.path, own))


def _installed_elsewhere(folders: Iterable[str], own: Iterable[str]) -> list[str]:
    """Those of `folders` into which an installer put packages (`pip install --target`): it leaves its records there.

    A folder that holds one of `own`, where the program lies, is the program's, with its packages next to it.
    """
    places = [os.path.abspath(one) + os.sep for one in own]
    found = []
    for folder in folders:
        root = os.path.abspath(folder) + os.sep
        if not folder or any(place.startswith(root) for place in places):
            continue
        try:
            if any(name.endswith(".dist-info") for name in os.listdir(root)):
                found.append(root)
        except OSError:
            # An archive, or a folder that is not there.
            continue
    return found


def is_user_file(filename: str) -> bool:
    """Say whether code of this file is the user's rather than a library's, the interpreter's or ours."""
    if not filename:
        return False
    if filename.startswith("<"):
        # `<stdin>` and notebook cells (`<ipython-input-...>`) are the user's; `<frozen ...>` and generated code
        # (`<eval_with_key>`, `<__array_function__ internals>`) are not. `<string>` is the text of `python -c`, and elsewhere
        # what is generated as well, such as the methods of a dataclass.
        if filename == "<string>":
            return sys.argv[:1] == ["-c"]
        return filename == "<stdin>" or filename.startswith("<ipython")
    path = os.path.abspath(filename)
    if path.startswith(_OWN):
        return False
    # What was compiled by Cython names its source as its author had it, seldom as a file that is here.
    if filename.endswith((".pyx", ".pxi")) and not os.path.isfile(path):
        return False
    if "/site-packages/" in path or "/dist-packages/" in path:
        return False
    base = os.path.basename(os.path.dirname(path))
    if base.startswith("torchinductor_") or "/torchinductor_" in path:
        return False
    # What TensorFlow makes of a function before it traces it.
    if os.path.basename(path).startswith("__autograph_generated_file"):
        return False
    if path.startswith(_temporary()) and _is_generated(path):
        return False
    return not path.startswith(_roots())


@functools.lru_cache(maxsize=1)
def _temporary():
    return tuple({os.path.join(folder(tempfile.gettempdir()), "") for folder in (os.path.abspath, os.path.realpath)})


@functools.lru_cache(maxsize=1024)
def _is_generated(path):
    """Whether this is the file of a module and younger than the process: made to be run (layers of `torch_geometric`)."""
    try:
        if os.stat(path).st_mtime <= _BEGAN:
            return False
    except OSError:
        # A notebook's cell has a name there, and no file.
        return False
    return any(attribute(module, "__file__") == path for module in list(sys.modules.values()))


def is_own_file(filename: str) -> bool:
    """Say whether code of this file is the hook's."""
    return filename.startswith(_OWN)


_MACHINERY = (
    "/torch/nn/modules/module.py", "/torch/autograd/", "/torch/_tensor.py", "/torch/_ops.py", "/torch/overrides.py",
    "/torch/utils/", "/torch/_dynamo/", "/torch/optim/optimizer.py", "/torch/cuda/", "/torch/_jit_internal.py",
    "/accelerate/hooks.py",
)  # fmt: skip
"""Code of libraries that only passes a call on: its lines say nothing of what is computed."""


def is_library_file(filename: str) -> bool:
    """Say whether code of this file is a library's and computes something: not Python's own, and no mere wrapper."""
    if is_user_file(filename) or is_own_file(filename) or filename.startswith("<"):
        return False
    path = filename.replace("\\", "/")
    if "/site-packages/" not in path and "/dist-packages/" not in path and not os.path.abspath(path).startswith(_elsewhere()):
        return False
    return not any(part in path for part in _MACHINERY)


def _site(code, line):
    filename = code.co_filename
    cell = notebook.cell_of(filename)
    if not filename.startswith("<"):
        filename = os.path.abspath(filename)
    if cell is not None:
        filename = notebook.file_of(code.co_filename) or filename
    site = {"file": filename, "line": int(line or code.co_firstlineno), "function": code.co_name}
    if cell is not None:
        site["cell"] = cell
        site["text"] = notebook.line_of(code.co_filename, site["line"])
    return site


def site_of_frame(frame: FrameType | None) -> HookSite | None:
    """The innermost line of the user's on the stack that ends in `frame`, or None."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return _site(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return None


def site_of_line(code: CodeType, line: int) -> HookSite:
    """A line of a function, in the form of docs/internals/run-folder.md."""
    return _site(code, line)


def shown(file: str, line: int) -> str:
    """A place for people: relative to the working directory where the file is below it."""
    try:
        near = os.path.relpath(file)
        if not near.startswith(os.pardir):
            file = near
    except (OSError, ValueError):
        pass
    return "%s:%d" % (file, line)


def library_site_of_frame(frame: FrameType | None) -> HookSite | None:
    """The innermost line of a library below the user's innermost line, or None.

    A line outside of PyTorch says more than the one in PyTorch that it calls (`down_proj(...)` more than `F.linear`).
    """
    found = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_user_file(filename):
            break
        # What overrides torch for a subclass of tensors computes nothing itself.
        if frame.f_code.co_name != "__torch_function__" and is_library_file(filename):
            if "-packages/torch/" not in filename.replace("\\", "/"):
                return _site(frame.f_code, frame.f_lineno)
            found = found or _site(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return found


def site_of_traceback(tb: TracebackType | None) -> HookSite | None:
    """The innermost line of the user's in a traceback, or None."""
    found = None
    while tb is not None:
        code = tb.tb_frame.f_code
        if is_user_file(code.co_filename):
            found = _site(code, tb.tb_lineno)
        tb = tb.tb_next
    return found


def is_oom(error: BaseException | None) -> bool:
    """Say whether one exception is an out-of-memory error of a GPU, by type or by the texts that libraries use."""
    if error is None:
        return False
    framework = (type(error).__module__ or "").split(".")[0]
    if type(error).__name__ in _OOM_NAMES and framework == "torch":
        return True
    if framework in _OTHER_FRAMEWORKS:
        return False
    if isinstance(error, (SyntaxError, ImportError)):
        return False
    try:
        text = str(error).lower()
    except Exception:
        # Another library's exception may fail at its own text.
        return False
    if any(known in text for known in _OOM_TEXTS):
        return True
    # bitsandbytes and other extensions report through a plain text and name CUDA or the GPU next to it.
    return "out of memory" in text and ("cuda" in text or "gpu" in text)


def find_oom(error: BaseException | None, is_oom: Callable[[BaseException], bool] = is_oom) -> BaseException | None:
    """Find the out-of-memory error in the chain of an exception (`__cause__`, `__context__`, groups), or None.

    `is_oom` says of one exception whether it is one; by default by PyTorch's words.
    """
    seen = set()
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if is_oom(current):
            inner = find_oom(current.__cause__ or current.__context__, is_oom)
            # A wrapper that repeats the text is not the place where it happened; the innermost one is.
            return inner or current
        waiting.append(current.__cause__)
        waiting.append(current.__context__)
        waiting.extend(getattr(current, "exceptions", None) or ())
    return None


def message_of(error: BaseException) -> str:
    """The text of an error on one line, without the advice and the C++ stack that follow it."""
    try:
        text = str(error).strip()
    except Exception:
        # Another library's exception may fail at its own text.
        return type(error).__name__
    lines = []
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith(("Exception raised from", "frame #", "CUDA kernel errors might")):
            break
        lines.append(line)
    return " ".join(lines) or type(error).__name__


def without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    """Drop oomph's frames from a traceback that is about to be shown to the user."""
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_OWN):
        tb = tb.tb_next
    current = tb
    while current is not None:
        following = current.tb_next
        while following is not None and following.tb_frame.f_code.co_filename.startswith(_OWN):
            following = following.tb_next
        if following is not current.tb_next:
            current.tb_next = following
        current = following
    return tb


_LOAD_NAMES = ("from_pretrained", "load_state_dict", "from_single_file", "dispatch_model", "load_checkpoint_and_dispatch")
_SAVE_NAMES = ("save_pretrained", "save_model", "_save_checkpoint", "save_checkpoint", "save_state")
_EVAL_NAMES = ("evaluate", "evaluation_loop", "prediction_loop", "prediction_step", "predict", "validation_step", "validate")
_STEP_NAMES = ("training_step", "_inner_training_loop")
_OWN_EVAL = re.compile(r"(?:^|_)(?:eval|evaluate|evaluation|val|valid|validate|validation|test)(?:_|$)")
"""What programs call the functions in which they evaluate."""


def is_named_for_evaluation(name: str | None) -> bool:
    """Whether a function is called as programs call those that evaluate and do not train."""
    return bool(name and _OWN_EVAL.search(name) and "train" not in name)


TRAINING_STEP: Literal["training step"] = "training step"
"""What a frame of a trainer's training step says: whatever runs in it evaluates nothing, with gradients or without."""


def classify(filename: str, function: str) -> Phase | Literal["training step"] | None:
    """Name the phase that one frame stands for, or None when it says nothing."""
    path = filename.replace("\\", "/")
    if "/torch/autograd/" in path and ("backward" in function or function in ("grad", "_engine_run_backward")):
        return protocol.PHASE_BACKWARD
    if path.endswith("/torch/_tensor.py") and function == "backward":
        return protocol.PHASE_BACKWARD
    if "/torch/optim/" in path and not path.endswith("lr_scheduler.py") and not path.endswith("swa_utils.py"):
        return None if function in ("__init__", "add_param_group", "zero_grad") else protocol.PHASE_OPTIMIZER
    if "/bitsandbytes/optim/" in path and function != "__init__":
        return protocol.PHASE_OPTIMIZER
    if function == "step" and ("optim" in path.rsplit("/", 1)[-1] or "/optimizers/" in path):
        return protocol.PHASE_OPTIMIZER
    if "/transformers/" in path and "/generation/" in path and function in ("generate", "_sample", "_beam_search"):
        return protocol.PHASE_GENERATE
    if function == "generate" and ("/transformers/" in path or "/peft/" in path or "/vllm/" in path):
        return protocol.PHASE_GENERATE
    if "/diffusers/" in path:
        phase = _classify_pipeline(path, function)
        if phase is not None:
            return phase
    if function in _LOAD_NAMES:
        return protocol.PHASE_LOAD
    if path.endswith("/torch/serialization.py"):
        return protocol.PHASE_LOAD if "load" in function else protocol.PHASE_SAVING if "save" in function else None
    if function in _SAVE_NAMES:
        return protocol.PHASE_SAVING
    if path.endswith("/torch/nn/modules/module.py") and function in ("_apply", "to", "cuda", "half", "bfloat16", "float"):
        return protocol.PHASE_LOAD
    if function in _EVAL_NAMES:
        return protocol.PHASE_EVAL
    if function in _STEP_NAMES and "-packages/" in path:
        return TRAINING_STEP
    if path.endswith("/torch/nn/modules/module.py") and function in ("_call_impl", "_wrapped_call_impl", "_slow_forward"):
        return protocol.PHASE_FORWARD
    # A loss that is computed outside of any module.
    return protocol.PHASE_FORWARD if path.endswith("/torch/nn/functional.py") else None


def _classify_pipeline(path, function):
    """The parts of a pipeline of diffusers: its prompt, its denoising loop, its decoder."""
    if "/diffusers/models/autoencoders/" in path and function == "decode":
        return protocol.PHASE_DECODING
    if "/diffusers/pipelines/" in path:
        if function.lstrip("_").startswith("encode_prompt") or "prompt_embeds" in function:
            return protocol.PHASE_TEXT_ENCODING
        if function == "__call__":
            return protocol.PHASE_DENOISING
    return None


def phase_of_stack(
    frames: Iterable[tuple[str, str]], grad_enabled: bool = True, evaluates: bool | Callable[[], bool] = True
) -> Phase | None:
    """Name the phase of one stack, given as (filename, function) pairs from the innermost outwards.

    The innermost telling frame decides; a module call only counts when nothing around it says more, except that a
    module called from a closure of an optimizer is a forward. Without gradients a forward is an evaluation where a frame
    says so, or where none does and the model `evaluates` (a value or a callable): a reference model, a teacher or an
    encoder is called without gradients in the middle of a training step.
    """
    forward = step = False
    for filename, function in frames:
        phase = classify(filename, function)
        if phase is None:
            if not grad_enabled and _OWN_EVAL.search(function) and is_user_file(filename):
                return protocol.PHASE_EVAL
        elif phase == TRAINING_STEP:
            step = True
            break
        elif phase == protocol.PHASE_FORWARD:
            forward = True
        elif phase == protocol.PHASE_DENOISING and not forward:
            # Outside of its models a pipeline moves latents and images about.
            return None
        elif phase == protocol.PHASE_OPTIMIZER and forward:
            break
        else:
            return phase
    if step:
        return protocol.PHASE_FORWARD
    if forward and not grad_enabled:
        return protocol.PHASE_EVAL if (evaluates() if callable(evaluates) else evaluates) else protocol.PHASE_FORWARD
    return protocol.PHASE_FORWARD if forward else None


_SELF_EVIDENT = (
    protocol.PHASE_BACKWARD, protocol.PHASE_OPTIMIZER, protocol.PHASE_LOAD, protocol.PHASE_SAVING, protocol.PHASE_GENERATE,
    protocol.PHASE_TEXT_ENCODING, protocol.PHASE_DENOISING, protocol.PHASE_DECODING,
)


def pairs(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """File and function of each frame of a stack, the innermost first."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_code.co_name
        frame = frame.f_back


class Place:
    """Where a process is: the phase, the innermost lines of the user and of a library, and the module at work."""

    def __init__(
        self,
        phase: Phase,
        site: HookSite | None,
        library_site: HookSite | None,
        module: Called | None,
        in_training_step: bool = False,
    ) -> None:
        self.phase = phase
        self.in_training_step = in_training_step
        """Whether a trainer's training step is on the stack, within which nothing is evaluated."""
        self.site = site
        self.library_site = library_site
        self.module = module
        """A `module_path.Called`, or None outside of any module."""


def frame_of_main_thread() -> FrameType | None:
    """The innermost frame of the main thread, for a call from another thread; None where this is it."""
    import threading

    main = threading.main_thread().ident
    return None if main is None or main == threading.get_ident() else sys._current_frames().get(main)


def where(grad_enabled: bool = True, trains: Callable[[Model], bool] | None = None) -> Place:
    """Say where the process is now, as a `Place`. `trains(model)` says whether an optimizer updates a model.

    The backward pass runs in threads of the autograd engine, which have no Python frames of the user's; then the
    thread that waits in `backward` decides. An activation that is recomputed in backward counts as backward.
    """
    import threading

    stacks = sys._current_frames()
    own = threading.get_ident()
    # Only a thread that has not been started has none.
    main = threading.main_thread().ident or 0
    # The frame listed for this thread is this call's own. Kept in one of its variables it would refer to
    # itself, and keep what the program holds in its frames until the garbage is collected: a program that goes on after
    # an out-of-memory error would find its tensors still there.
    stacks.pop(own, None)
    here = sys._getframe().f_back
    module = module_path.called(here)
    library = library_site_of_frame(here)

    def evaluates():
        return module is None or (not module.training and (trains is None or trains(module.root)))

    phase = phase_of_stack(pairs(here), grad_enabled, evaluates)
    site = site_of_frame(here)
    if phase in _SELF_EVIDENT or (phase and own == main):
        return Place(phase, site, library, module, any(classify(*pair) == TRAINING_STEP for pair in pairs(here)))
    order = [stacks.pop(main, None)] + list(stacks.values())
    if site is None or phase is None or own != main:
        # Called from another thread than the program's own: look whether somebody waits for a backward pass.
        for frame in order:
            if frame is not None and phase_of_stack(pairs(frame)) == protocol.PHASE_BACKWARD:
                return Place(protocol.PHASE_BACKWARD, site or site_of_frame(frame), library, module)
    if site is None:
        for frame in order:
            site = site_of_frame(frame) if frame is not None else None
            if site is not None:
                phase = phase or phase_of_stack(pairs(frame), grad_enabled, evaluates)
                break
    return Place(phase or protocol.PHASE_OTHER, site, library, module)


def passes_on(error: BaseException, refusal: HookOom | None) -> bool:
    """Whether an error has the words of the allocator's refusal, as that of a library's operator may."""
    if refusal is None:
        return False
    requested, refused = requested_of(message_of(error)), refusal["requested_bytes"]
    # The words have two decimals.
    return requested > 0 and abs(requested - refused) <= refused / 100


def requested_of(message: str) -> int:
    """The size that a message says was asked for, in bytes; 0 when it names none."""
    import re

    # The second is what PyTorch says with cudaMallocAsync.
    found = re.search(r"(?:[Tt]ried to allocate|\bRequested +:) ([0-9.]+) ?(bytes|[KMGT]i?B)", message)
    if not found:
        return 0
    scale = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}[found.group(2)[0].lower()]
    return int(float(found.group(1)) * scale)
