"""Things that a thread holds: an exception at any moment leaves none of them held.

A signal handler may raise (Ctrl-C, an alarm) between any two steps of a thread: between taking a
lock and the `try` that gives it back, or in the first step of the `__exit__` that should. So
everything that outlasts a step is a Holding: it is on its thread's list from before it is taken
until it is given back. `whole` is the boundary of an operation: if an exception leaves it, it gives
back, innermost first, everything that its thread did not hold at the beginning.

Invariants
  1. `give_back` may be called at any moment, half done or twice: it asks what is held and never
     counts.
  2. A Holding that the boundary has given back is off the list, and its block does nothing when it
     ends: that may be much later and in another thread, since tracebacks keep generators alive.
  3. Not on the list: locks that a `with` statement takes from C. No signal comes between such a
     lock and its block, nor between the block and the end of the lock.

Not here: the things that are held (catalog/transaction.py, store/process/writer_lock.py,
store/process/open_files.py, store/write/group_commit.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import functools
import threading
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Mine(threading.local):
    def __init__(self) -> None:
        self.held: list[Holding] = []


mine = _Mine()


class Holding:
    """Base of the context managers for things that can be held."""

    __slots__ = ()

    def announce(self) -> None:
        """Puts the Holding on the list, before anything is taken."""
        mine.held.append(self)

    def give_back(self, *, is_done: bool) -> None:
        """Makes sure that it is not held any more; `is_done` says that its block has ended well."""
        raise NotImplementedError

    def end(self, *, is_done: bool = False) -> None:
        """Gives the Holding back, after everything taken inside it, and takes it off the list."""
        held = mine.held
        if not held or held[-1] is not self:
            if self not in held:  # the boundary has given it back
                return
            surrender(held.index(self) + 1)
        self.give_back(is_done=is_done)
        held.pop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(is_done=kind is None)


def depth() -> int:
    """How many things this thread holds."""
    return len(mine.held)


def surrender(least: int) -> None:
    """Gives back all that this thread holds but the first `least` things, innermost first."""
    held = mine.held
    while len(held) > least:
        last = held[-1]
        try:
            last.give_back(is_done=False)
        except BaseException:  # noqa: BLE001  one more interrupt, or a file that is closed
            with contextlib.suppress(Exception):
                last.give_back(is_done=False)
        held.pop()


def whole(operation: abc.Callable[P, R]) -> abc.Callable[P, R]:
    """An operation that, after an exception, holds nothing that it did not hold before."""

    @functools.wraps(operation)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        least = len(mine.held)
        try:
            return operation(*args, **kwargs)
        except BaseException:
            if len(mine.held) > least:
                surrender(least)
            raise

    return guarded
