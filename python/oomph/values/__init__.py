"""Gives values to what the host reads back from a GPU whose kernels do nothing.

Every operation runs on CUDA first, so that the real allocator makes its real decision; results that are small are then
computed on the CPU over the same memory.  Masks, `nonzero`, `.item()`, GradScaler and `generate()` behave.
`install` is the entry point; nothing happens before the program initialises CUDA.
"""

from __future__ import annotations

import functools
import os
import sys
import types

from oomph import forked
from oomph.values import poison, threads, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from oomph._types import Torch
    from oomph.record import Record

_installed: _Session | None = None


def install(
    torch: Torch, mode: str, record: Record, routing: str = "balanced", unknown_sizes: str = "most"
) -> _Session | None:
    """Arranges for small tensors (`mode` "small") or all tensors ("all-host") to have values.

    `routing` says which experts get the tokens where the router's choice was not computed: "balanced" for the same
    number each, "worst" for the same few experts all of them.

    `unknown_sizes` says which end is taken of a size that depends on values that were not computed: "most" or "least".

    `record.warn(sentence)` hears of every line where the program depends on a value that was never computed.
    """
    global _installed
    if mode not in ("small", "all-host") or _installed is not None:
        return _installed
    if not hasattr(torch._C, "_dispatch_tls_set_dispatch_key_included") or not hasattr(torch.version, "cuda"):
        record.warn("Values are not computed: PyTorch %s is too old for it." % torch.__version__)
        return None
    _installed = _Session(torch, mode, record, routing, unknown_sizes)
    _installed.stay_after_inference_mode()
    _installed.wait()
    return _installed


def prepare() -> None:
    """Does what needs no GPU and can be left to children of this process: the kernels are made and registered."""
    if _installed is not None:
        _installed.prepare()


def session() -> _Session | None:
    """What computes in this process."""
    return _installed


class _Session:
    """The kernels of one process, and the threads that use them."""

    def __init__(self, torch, mode, record, routing, unknown_sizes):
        self.torch = torch
        self.mode = mode
        self.routing = routing
        self.unknown_sizes = unknown_sizes
        self.record = record
        self.warn = unknown.Warner(record)
        self.kernels: Any = None
        self.prepared: Any = None
        """Kernels that are registered, while no thread is under them yet."""
        self.threads = threads.Threads(torch, self)

    # -- beginning -------------------------------------------------------------------------------------------------

    def wait(self):
        """Begins when the program initialises CUDA, so that one that never does pays nothing."""
        self.threads.follow()
        cuda = self.torch.cuda
        if getattr(cuda, "_initialized", False):
            self.begin()
            return
        queue = getattr(cuda, "_queued_calls", None)
        if isinstance(queue, list):
            queue.append((self.begin, []))
        else:
            cuda._lazy_call(self.begin)

    def prepare(self):
        """Registers the kernels ahead of `begin`. Without a thread under them they are never asked."""
        if self.kernels is None and self.prepared is None:
            try:
                self.prepared = self._made()
            except Exception:
                # It fails in the same manner when the program begins, and is reported there.
                self.prepared = None

    def _made(self):
        from oomph.values.kernels import Kernels

        kernels = Kernels(self.torch, self.mode, self.warn, self.routing, self.unknown_sizes)
        kernels.register()
        return kernels

    def begin(self, kernels=None):
        """Registers the kernels and puts this thread, the main thread and all later threads under them."""
        if self.kernels is not None:
            self.enter()
            return
        try:
            self._begin(kernels)
        except Exception as error:
            # The kernels rest on what is private to torch; where it has changed, the run goes on without values and says so.
            self.kernels = None
            self.record.warn("Values are not computed with PyTorch %s: %s" % (self.torch.__version__, error))

    def _begin(self, kernels):
        if kernels is not None:
            kernels.register()
        elif self.prepared is not None:
            kernels = self.prepared
            # Libraries may have brought operators since.
            kernels.register_others()
        else:
            kernels = self._made()
        forked.card_is_used()
        self.kernels = kernels
        kernels.begin(poison.is_wanted())
        if poison.is_wanted():
            poison.watch(kernels)
        self._hide_from_dynamo()
        self._let_higher_order_operators_pass()
        self._see_operators_that_load_later()
        self._see_what_inductor_allocates()
        self._trim_tracebacks()
        if hasattr(os, "register_at_fork"):
            # A forked child cannot use CUDA (torch refuses), and the kernels would ask it; nor need its data loading pay for them.
            os.register_at_fork(after_in_child=self._forked)
        self.enter()
        self.threads.admit(kernels.key)

    def enter(self):
        """Puts the calling thread under the kernels.  Autograd's own threads inherit it with each backward."""
        if self.kernels is not None and not forked.is_away():
            self.kernels.include(self.kernels.key, True)

    def leave(self):
        """Takes the calling thread out."""
        if self.kernels is not None:
            self.kernels.include(self.kernels.key, False)

    def _forked(self):
        self.leave()
        self.threads.forked()
        self.kernels.forked()

    def stay_after_inference_mode(self):
        """Puts a thread back under the kernels where it leaves an inference mode in which CUDA was initialised.

        Leaving it restores what dispatch looked like before. A `with` statement knows its way out when it begins, so this is
        done before there is any.
        """
        session, mode = self, self.torch.inference_mode
        original = mode.__exit__

        @functools.wraps(original)
        def leaving(*args):
            result = original(*args)
            session.enter()
            return result

        mode.__exit__ = leaving

    # -- torch -----------------------------------------------------------------------------------------------------

    def _hide_from_dynamo(self):
        """Make dynamo leave our frames alone: they run inside compiled programs and are not part of them."""
        try:
            skip = self.torch._C._dynamo.eval_frame.skip_code
        except AttributeError:
            return
        from oomph.values import arithmetic, blocks, copies, decoders, dynamic, kernels, memory, operations, quick, standins

        seen = set()

        def visit(code):
            if code in seen:
                return
            seen.add(code)
            skip(code)
            for constant in code.co_consts:
                if isinstance(constant, types.CodeType):
                    visit(constant)

        own = (arithmetic, blocks, copies, decoders, dynamic, kernels, memory, operations, quick, standins, threads, unknown)
        for module in (sys.modules[__name__],) + own:
            for value in list(vars(module).values()):
                if isinstance(value, types.FunctionType):
                    visit(value.__code__)
                elif isinstance(value, type) and value.__module__ == module.__name__:
                    for member in vars(value).values():
                        if isinstance(member, types.FunctionType):
                            visit(member.__code__)

    def _let_higher_order_operators_pass(self):
        """Higher-order operators dispatch in Python, where a key without a rule is an error."""
        operators = getattr(self.torch, "_ops", None)
        key = self.kernels.key
        defaults = getattr(operators, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", None)
        if isinstance(defaults, list):
            defaults.append(key)
        existing = getattr(operators, "_higher_order_ops", None)
        for operator in list(existing.values()) if isinstance(existing, dict) else ():
            try:
                operator.fallthrough(key)
            except Exception:
                # Some operators have a rule for the key already and refuse a second one.
                pass

    def _see_operators_that_load_later(self):
        """torchvision and others bring operators of their own, and may be imported after CUDA is initialised."""
        session = self

        def then(original):
            @functools.wraps(original)
            def registering(*args, **kwargs):
                result = original(*args, **kwargs)
                try:
                    session.kernels.register_others()
                except Exception:
                    # The library has been loaded; its operators go on without values.
                    pass
                return result

            return registering

        libraries = self.torch.ops
        try:
            libraries.load_library = then(libraries.load_library)
        except AttributeError:
            pass
        original = self.torch.library.Library.impl

        @functools.wraps(original)
        def impl(library, op_name, fn, dispatch_key="", *args, **kwargs):
            result = original(library, op_name, fn, dispatch_key, *args, **kwargs)
            key = dispatch_key or getattr(library, "dispatch_key", "")
            if key == "CompositeExplicitAutograd" and getattr(library, "ns", "aten") != "aten":
                try:
                    session.kernels.register_other(library.ns, op_name)
                except Exception:
                    # The operator has been registered; it goes on without values.
                    pass
            return result

        self.torch.library.Library.impl = impl

    def _see_what_inductor_allocates(self):
        """Compiled code allocates its results below the dispatcher; small ones are given zeros as well."""
        try:
            guards = self.torch._C._dynamo.guards
            original = guards._empty_strided_cuda
        except AttributeError:
            return
        from oomph.values.kernels import SMALL
        from oomph.values.unknown import UNKNOWN

        kernels = self.kernels

        def empty_strided_cuda(size, stride, dtype):
            out = original(size, stride, dtype)
            if out.numel() <= SMALL and kernels.usable(out):
                kernels.standins.fill(out, UNKNOWN)
            return out

        try:
            guards._empty_strided_cuda = empty_strided_cuda
        except AttributeError:
            pass

    def _trim_tracebacks(self):
        """The user's traceback should end where the user's would: at the line that called torch."""
        original = sys.excepthook

        def excepthook(kind, error, traceback):
            try:
                traceback = without_our_frames(traceback)
                error.__traceback__ = traceback
            except Exception:
                # The traceback is shown in any case; what failed is only the cut.
                pass
            original(kind, error, traceback)

        sys.excepthook = excepthook


def without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback with the entries of this package left out."""
    own = os.path.dirname(os.path.abspath(__file__)) + os.sep
    kept = []
    entry = traceback
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(own):
            kept.append(entry)
        entry = entry.tb_next
    result = None
    for entry in reversed(kept):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result
