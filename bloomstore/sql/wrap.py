"""A method of a dialect inside a function of ours, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Wrap:
    """One such method. Wraps of several plugins may be nested."""

    def __init__(
        self,
        dialect: Any,
        name: str,
        around: Callable[[Wrap, Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._dialect, self._name = dialect, name
        self.is_active = True
        self._inner = getattr(dialect, name)
        self._wrapped = around(self, self._inner)
        setattr(dialect, name, self._wrapped)

    def undo(self) -> None:
        """Puts the method back; if another wrap lies around it, this one does nothing from now."""
        self.is_active = False
        if vars(self._dialect).get(self._name) is self._wrapped:
            delattr(self._dialect, self._name)
            if getattr(self._dialect, self._name) != self._inner:  # it was wrapped before
                setattr(self._dialect, self._name, self._inner)
