"""Replaces a dialect's method with a wrapper, and restores it.

Several plugins may listen to one engine, beginning and ceasing in any order while statements are
sent. Their wrappers around one method are recombined each time, so that none is left behind. Where
another library has wrapped the method since, our wrappers stay below its wrapper and only pass
calls on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bloomstore.sql.attached import LAYER

Around = Callable[["Wrap", Callable[..., Any]], Callable[..., Any]]

_changing = threading.Lock()  # protects every layer; no other lock is taken inside


class Wrap:
    """The wrapper of one plugin around one method."""

    def __init__(self, dialect: Any, name: str, around: Around) -> None:
        self.is_active = True
        self.around = around
        with _changing:
            outermost = vars(dialect).get(name)
            self._layer: _Layer = getattr(outermost, LAYER, None) or _Layer(dialect, name)
            self._layer.wraps.append(self)
            self._layer.install()

    def undo(self) -> None:
        """Takes the wrapper away; calls that are under way pass through it."""
        with _changing:
            self.is_active = False
            self._layer.wraps.remove(self)
            self._layer.install()


class _Layer:
    """The wrappers of one method that have no foreign wrapper between them."""

    def __init__(self, dialect: Any, name: str) -> None:
        self._dialect, self._name = dialect, name
        self._before = vars(dialect).get(name)  # None: the method of its class
        self._inner = getattr(dialect, name)
        self._outermost: Any = self._before
        self.wraps: list[Wrap] = []

    def install(self) -> None:
        """Puts all wrappers around the method, or the method back if there are none."""
        if vars(self._dialect).get(self._name) is not self._outermost:
            return  # another library has wrapped it since
        if self.wraps:
            method = self._inner
            for wrap in self.wraps:
                method = wrap.around(wrap, method)
            vars(method)[LAYER] = self
            self._outermost = method
            setattr(self._dialect, self._name, method)
        elif self._before is not None:
            self._outermost = self._before
            setattr(self._dialect, self._name, self._before)
        else:
            self._outermost = None
            delattr(self._dialect, self._name)
