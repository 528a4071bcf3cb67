"""The two things above this room that a guard works with: own writes and a key feed.

Both are Protocols, so that guards import nothing from capture/ and outbox/, which implement them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.engine import Connection

from bloomstore.keys import Key

if TYPE_CHECKING:
    from bloomstore.sql.guards.guard import ActiveGuard


class OwnWrites(Protocol):
    """The keys that the asking transaction has written and not yet committed.

    It is false if the transaction has written nothing that concerns a guard.
    """

    @property
    def keys(self) -> Mapping[ActiveGuard, set[Key]]:
        """By guard, the keys of the written rows."""

    @property
    def unknown(self) -> Container[ActiveGuard]:
        """Guards for which some written keys are not known."""


class KeyFeed(Protocol):
    """The way of keys from an outbox into the filter of one guard."""

    def catch_up(self, connection: Connection | None) -> str:
        """Reads missing keys; "" if ABSENT may be believed now, else why it may not."""

    def note_position(self) -> None:
        """Writes down how far the outbox was read, for other processes and the next start."""
