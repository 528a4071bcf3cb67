"""A source can give all keys of a filter again, from the beginning or from a position.

In: nothing, or the position after a batch. Out: batches of keys, each with the position after it.

Invariants
  1. `batches` ends only when every key was given: a source that ends early, or counts differently
     itself, raises Incomplete. A rebuild relies on that alone.
  2. A key that the source has had since before the first batch, and that no writer has added to
     the filter since, is given by some batch, also when the batches of several attempts are put
     together, each from the position that the one before had reached.
  3. Identities and positions are JSON: they are kept in the store's notes.

Sources of files are in files.py and text_source.py; those of databases and guards in
bloomstore.sql.
"""

from __future__ import annotations

import collections.abc as abc
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from bloomstore import Store
from bloomstore.errors import SourceError
from bloomstore.keys import Key
from bloomstore.store.note_names import has_guard

# One turn of the writer: so few commits, and so few handovers between the thread that reads and the
# one that adds, that they do not decide the speed; a few tens of MB of Python objects at most.
BATCH_ROWS = 262_144

Position = Any  # JSON


class Batch(NamedTuple):
    """Some keys, how many rows they came from, and the position after them."""

    keys: abc.Iterable[Key]
    rows: int
    position: Position


class Owner(Protocol):
    """The owner of a filter, such as a guard: it alone knows which form the filter's keys have.

    The fences of an owned filter stand for rows that its source has, so a rebuild from that source
    lowers those that stood when it began.
    """

    def held(self) -> AbstractContextManager[None]:
        """A block around a whole rebuild: nothing else builds the filter for its owner."""

    def finish(self, rows: int) -> None:
        """Writes the record of the build, after the switch."""


class Source(ABC):
    """A source of keys. One that nothing writes to needs only the four abstract methods."""

    # Why an interrupted rebuild must begin again; "" if it can resume at a position.
    why_not_resumable: str = ""
    # Whether batches may be read in a thread while those before are added.
    reads_ahead: bool = True
    # Whether keys come to the filter by an outbox, after their rows.
    is_fed: bool = False
    # The owner of the filter, if this source gives the keys in its name.
    owner: Owner | None = None
    # Keys that the filter is declared for, where this source knows better than the store.
    declared: int | None = None

    # Whether the same identity means the same keys, as for a file that has not changed.
    is_fixed: bool = False

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """JSON that is equal for the same source, and in the same state if it must not change.

        A rebuild refuses to resume when it differs.
        """

    def proof(self) -> dict[str, Any]:
        """JSON that must still be equal, besides the identity, to resume at a position.

        For sources that may change while they are read, and then cannot be told from others.
        """
        return {}

    @abstractmethod
    def count(self) -> int | None:
        """How many rows there are, or a few more; None if that is not known."""

    @abstractmethod
    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """All keys after this position. Raises SourceError."""

    @abstractmethod
    def describe(self) -> str:
        """Where the keys come from, for messages."""

    def coming(self) -> abc.Set[Key]:
        """Keys on their way to the filter, which it need not have yet: those of an outbox."""
        return frozenset()

    def begin(self) -> None:  # noqa: B027
        """Called before a rebuild begins, but not before one is resumed."""

    def prepare(self, patience: float) -> None:  # noqa: B027
        """Waits until every writer that did not know of the coming chain has ended."""

    def settle(self, patience: float) -> None:  # noqa: B027
        """Waits until no snapshot shows rows that were gone when the batches were read."""


def require_own_source(store: Store, name: str, source: Source) -> None:
    """Refuses a source of raw keys for the filter of a guard, whose keys have a form of their own.

    Raises SourceError.
    """
    if has_guard(store.notes, name) and source.owner is None:
        raise SourceError(
            f"{name!r} is the filter of a guard, its keys are not those of {source.describe()}:"
            " name the database alone, and the guard knows its table"
        )
