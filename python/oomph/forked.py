"""Knows whether this process was forked from one that used a card: there nothing of oomph's asks CUDA anything.

CUDA does not work in a process that was forked after it began. A question raises there, or waits for a lock that a thread of
the parent's held; and the libraries above CUDA may make the process abort. Workers that load data are such processes, and
so are pools that were forked late.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_used = False
_away = False
_in_use: list[Callable[[], bool]] = []


def card_is_used() -> None:
    """This process uses a card from now on, so that what is forked from it cannot."""
    global _used
    _used = True


def ask_at_fork(in_use: Callable[[], bool]) -> None:
    """Have a forked child ask whether its parent used a card. The callable sees only what the child inherited, and asks no card."""
    _in_use.append(in_use)


def is_away() -> bool:
    """Whether this process was forked from one that used a card."""
    return _away


def _begin_in_child():
    global _away
    if _away:
        return
    _away = _used
    for in_use in () if _away else _in_use:
        try:
            _away = _away or bool(in_use())
        except Exception:
            # What a framework does not say now, it says when it is asked.
            continue


if hasattr(os, "register_at_fork"):
    # This module is imported before whatever registers for the same moment and wants to know.
    os.register_at_fork(after_in_child=_begin_in_child)
