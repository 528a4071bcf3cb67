"""An open store as the rooms below it see one: its files, and the block of a change.

Store (store/store.py) is the only implementation. Rooms of lower rank name this Protocol instead,
so that no import points upwards.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

from bloomstore.store.process.open_files import Core
from bloomstore.store.process.watch import End


class OpenStore(Protocol):
    """One store that this process has open."""

    path: Path

    @property
    def _core(self) -> Core:
        """The open files, reopened in a forked child. Raises StoreClosed."""

    @property
    def incarnation(self) -> str:
        """Differs between a store and every copy of it."""

    @property
    def _is_closing(self) -> bool:
        """Whether a close was interrupted, so that the store must be closed again."""

    def _changing(self, what: str) -> contextlib.AbstractContextManager[Core]:
        """The writer lock, for operations that cannot be part of a batch."""

    def close(self) -> None:
        """Closes the store."""

    def _look(self, end: End) -> None:
        """Makes lookups answer "maybe" if the store is lost."""

    def _before_fork(self) -> None:
        """Waits until no thread writes or reads the catalog."""

    def _after_fork_in_parent(self) -> None:
        """Ends the pause of `_before_fork`."""

    def _after_fork_in_child(self) -> None:
        """Closes the parent's files."""
