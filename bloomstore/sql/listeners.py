"""Listeners of one plugin at engines and sessions: added once each, and taken away again.

SQLAlchemy's own collections raise an error in whoever goes through them while another thread adds
or removes a listener. Those that a plugin uses are replaced by calm ones first, once.
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
    """What must be undone when the plugin ceases to listen. Safe in several threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # protects all below; held while somebody begins or ceases
        self._undo: list[Callable[[], None]] = []

    def add(self, target: Any, name: str, listener: Callable[..., Any]) -> None:
        """Tells the listener of these events from now on."""
        with self.lock:
            if event.contains(target, name, listener):
                return
            _calm(target, name)
            event.listen(target, name, listener)
            self.undo_later(lambda: _remove(target, name, listener))

    def undo_later(self, undo: Callable[[], None]) -> None:
        """Calls this when all is undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Undoes everything, the last first."""
        with self.lock:
            while self._undo:
                self._undo.pop()()


def _remove(target: Any, name: str, listener: Callable[..., Any]) -> None:
    _calm(target, name)  # an engine that was disposed of has another pool
    event.remove(target, name, listener)


class _Calm(deque[Any]):
    """Whoever goes through it goes through what it had then."""

    def __iter__(self) -> Iterator[Any]:
        return iter([*super().__iter__()])


def _calm(target: Any, name: str) -> None:
    """Makes the collection of listeners calm, if it is as SQLAlchemy 2.0 and 2.1 have it."""
    if isinstance(target, Engine):
        owner: Any = target.dialect if name in OF_DIALECT else target.pool
        _calm_instance(owner.dispatch, name)
    elif isinstance(made := getattr(target, "class_", target), type):
        _calm_class(made, name)
    else:
        _calm_instance(target.dispatch, name)


def _calm_instance(dispatch: Any, name: str) -> None:
    found = getattr(dispatch, name).for_modify(dispatch)
    if type(found.listeners) is deque:
        found.listeners = _Calm(found.listeners)


def _calm_class(target: type, name: str) -> None:
    functions = class_functions(target, name)
    if type(functions) is deque:
        replace_class_functions(target, name, _Calm(functions))
