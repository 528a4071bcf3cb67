"""A method of a dialect inside functions of ours, and the way back.

Several plugins may listen to one engine, come and go in any order, and while statements are sent:
their functions around one method are put together anew each time, so that nothing is left behind.
Where somebody else has wrapped the method since, ours stay below it and do nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bloomstore.sql.attached import LAYER

Around = Callable[["Wrap", Callable[..., Any]], Callable[..., Any]]

_changing = threading.Lock()  # protects every layer


class Wrap:
    """One plugin's function around one method."""

    def __init__(self, dialect: Any, name: str, around: Around) -> None:
        self.is_active = True
        self.around = around
        with _changing:
            outermost = vars(dialect).get(name)
            self._layer: _Layer = getattr(outermost, LAYER, None) or _Layer(dialect, name)
            self._layer.wraps.append(self)
            self._layer.install()

    def undo(self) -> None:
        """Takes the function away; calls that are under way pass through it."""
        with _changing:
            self.is_active = False
            self._layer.wraps.remove(self)
            self._layer.install()


class _Layer:
    """The wraps of one method between which nobody else has one."""

    def __init__(self, dialect: Any, name: str) -> None:
        self._dialect, self._name = dialect, name
        self._before = vars(dialect).get(name)  # None: the method of its class
        self._inner = getattr(dialect, name)
        self._outermost: Any = self._before
        self.wraps: list[Wrap] = []

    def install(self) -> None:
        """Puts the functions of all wraps around the method."""
        if vars(self._dialect).get(self._name) is not self._outermost:
            return  # others have wrapped it since
        if self.wraps:
            made = self._inner
            for wrap in self.wraps:
                made = wrap.around(wrap, made)
            vars(made)[LAYER] = self
            self._outermost = made
            setattr(self._dialect, self._name, made)
        elif self._before is not None:
            self._outermost = self._before
            setattr(self._dialect, self._name, self._before)
        else:
            self._outermost = None
            delattr(self._dialect, self._name)
