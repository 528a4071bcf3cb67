"""Event listeners of one plugin on engines and sessions: added once each, and removed again.

SQLAlchemy's own collections of listeners raise an error in a thread that iterates over them while
another thread adds or removes one. Collections that a plugin uses are first replaced, once, by
collections that iterate over a copy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from bloomstore.sql.sqlalchemy_private import class_functions, replace_class_functions

OF_DIALECT = ("do_execute", "do_executemany", "do_execute_no_params")


class Listeners:
    """The listeners of one plugin, and how each is undone. Safe in several threads."""

    def __init__(self) -> None:
        self.lock = (
            threading.RLock()
        )  # protects the fields below; held while a target is added or all are undone
        self._undo: list[Callable[[], None]] = []

    def add(self, target: Any, name: str, listener: Callable[..., Any]) -> None:
        """Calls the listener at these events from now on."""
        with self.lock:
            if event.contains(target, name, listener):
                return
            _replace(target, name)
            event.listen(target, name, listener)
            self.undo_later(lambda: _remove(target, name, listener))

    def undo_later(self, undo: Callable[[], None]) -> None:
        """Registers `undo`, which is called when everything is undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Undoes everything, last first."""
        with self.lock:
            while self._undo:
                self._undo.pop()()


def _remove(target: Any, name: str, listener: Callable[..., Any]) -> None:
    _replace(target, name)  # an engine that was disposed of has another pool
    event.remove(target, name, listener)


class _Copying(deque[Any]):
    """Iterates over the functions that it had at the beginning of the iteration."""

    def __iter__(self) -> Iterator[Any]:
        return iter([*super().__iter__()])


def _replace(target: Any, name: str) -> None:
    """Replaces the collection of listeners, if it is as SQLAlchemy 2.0 and 2.1 have it."""
    if isinstance(target, Engine):
        owner: Any = target.dialect if name in OF_DIALECT else target.pool
        _replace_in_instance(owner.dispatch, name)
    elif isinstance(kind := getattr(target, "class_", target), type):
        _replace_in_class(kind, name)
    else:
        _replace_in_instance(target.dispatch, name)


def _replace_in_instance(dispatch: Any, name: str) -> None:
    collection = getattr(dispatch, name).for_modify(dispatch)
    if type(collection.listeners) is deque:
        collection.listeners = _Copying(collection.listeners)


def _replace_in_class(target: type, name: str) -> None:
    functions = class_functions(target, name)
    if type(functions) is deque:
        replace_class_functions(target, name, _Copying(functions))
