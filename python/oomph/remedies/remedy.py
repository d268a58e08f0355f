"""The base of every remedy: its name, its options, what became of it, and how that is reported."""

from __future__ import annotations

from oomph import _protocol as protocol
from oomph.hook import guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from oomph._protocol import AppliedRemedy, RemedyState
    from oomph._types import Library
    from oomph.moments import Moments


class Refused(Exception):
    """A remedy cannot be applied to this program; the text says why, in one clause."""


class Remedy:
    """One change to the program, made from inside and verified from inside.

    A subclass says in `attach` what it waits for. What it waits for may never come: then it stays `unused`.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.options = options
        self.state: RemedyState = protocol.REMEDY_UNUSED
        self.what = self.waits_for
        self.evidence: str | None = None

    waits_for = "nothing that it could change was seen"
    """Why a remedy that never met its object was not used."""

    def attach(self, moments: Moments) -> None:
        """Hang the remedy on the moments of the program that it needs. It may raise `Refused`."""
        raise NotImplementedError

    def verify(self) -> None:
        """Bring `evidence` up to date; called before each report, so it has to be cheap."""

    def option(self, name: str, default: Any) -> Any:
        """One option, or its default where it is absent or null."""
        value = self.options.get(name)
        return default if value is None else value

    def applied(self, what: str) -> None:
        """The program was changed."""
        self.state, self.what = protocol.REMEDY_APPLIED, what

    def already(self, what: str) -> None:
        """The program already did it; a change that was made elsewhere still counts."""
        if self.state != protocol.REMEDY_APPLIED:
            self.state, self.what = protocol.REMEDY_ALREADY, what

    def refused(self, why: str) -> None:
        """The program cannot be changed so, unless it already was, elsewhere."""
        if self.state not in (protocol.REMEDY_APPLIED, protocol.REMEDY_ALREADY):
            self.state, self.what = protocol.REMEDY_REFUSED, why

    def failed(self, why: str) -> None:
        """It was applied and had no effect, which is as good as not applied."""
        self.state, self.what, self.evidence = protocol.REMEDY_REFUSED, why, None

    def careful(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a function whose refusals and faults end in the report and never in the program."""

        def call(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except Refused as reason:
                self.refused(str(reason))
            except Exception as error:
                # The fault is in the report, and shown where the hook is debugged; the program goes on unchanged.
                if self.state != protocol.REMEDY_APPLIED:
                    self.failed("it failed with %s: %s" % (type(error).__name__, one_line(error)))
                guarded(reraise, error)
            return None

        return call

    def report(self) -> AppliedRemedy:
        """The remedy in the form of docs/internals/run-folder.md."""
        try:
            self.verify()
        except Exception:
            # The report is due in any case; without the check it has the evidence of before.
            pass
        return {"id": self.name, "state": self.state, "what": self.what, "evidence": self.evidence}


def reraise(error: BaseException) -> NoReturn:
    """Raise, so that `guarded` shows the traceback when the hook is debugged."""
    raise error


def one_line(error: BaseException) -> str:
    """The first line of an exception's text, cut to a length that a table bears."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""


def plural(count: int, noun: str) -> str:
    """`1 block`, `2 blocks`, `1 batch`, `2 batches`."""
    if count == 1:
        return "1 " + noun
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return "%d %s%s" % (count, noun, ending)


def version_of(module: Library) -> tuple[int, ...]:
    """A module's version as numbers: 5.23.1 -> (5, 23, 1); (0,) where it has none."""
    numbers = []
    for part in str(getattr(module, "__version__", "0")).split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers) or (0,)


def require(package: str, purpose: str) -> Library:
    """Import a package of the program's environment, or refuse because it is not there."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.split(".")[0]
        raise Refused("%s is not installed in the program's environment: %s needs it" % (name, purpose)) from error
