"""The questions that every kind of database answers, and the facts read from a live table.

`Traits` hold for every server of a kind; the methods of `Database` ask one server. Rooms above this
one never compare the name of a dialect: a difference between databases is a trait or a method here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import ColumnElement
from sqlalchemy.engine import URL, Connection, Dialect

from bloomstore.sql.databases.canonical import Canon
from bloomstore.sql.databases.outbox_names import OutboxNames

Place = tuple[str | None, str]  # of a table: schema and name
SettingsRead = tuple[str, tuple[Any, ...]]  # the isolation level, and the values to compare


class Cursor(Protocol):
    """A DBAPI cursor, or the adapted one of an async driver."""

    def execute(self, operation: str) -> Any:
        """Runs one statement without parameters."""

    def fetchall(self) -> Any:
        """All rows."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """How one column compares. Without a canon, `doubt` says why none is known."""

    type: str
    collation: str = ""
    canon: Canon | None = None
    doubt: str = ""
    has_default: bool = (
        False  # the database may fill it in, although the application declares no default
    )
    blurred: str = ""  # why the driver may read another value than is stored; builds avoid it


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table: its columns by name, and by column the hazards that may change it unseen."""

    version: str
    columns: dict[str, ColumnFacts] = field(default_factory=dict)
    triggers: tuple[str, ...] = ()  # and views through which the table can be written
    feeds: tuple[str, ...] = ()  # triggers of bloomstore that always run: they feed an outbox
    hazards: dict[str, str] = field(default_factory=dict)
    unfed: str = ""  # how rows may come in without running a trigger
    doubt: str = ""
    schema: str = ""  # where a name without a schema was found
    path: tuple[str, ...] = field(default=(), compare=False)  # where such names are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts that hold for every server of one kind of database."""

    # The level under which a transaction sees one moment; None if there is no other level.
    snapshot_level: str | None
    # A read takes no lock under SERIALIZABLE either, so one that is not sent changes nothing.
    reads_lock_nothing: bool = False
    # Every transaction keeps seeing the moment of its first statement.
    has_snapshots: bool = False
    # Settings of a connection may lead a name to another table: search_path, USE.
    can_redirect_names: bool = True
    # Settings of a connection may make the server clip values, and no query shows all of them.
    clips_values: bool = False
    # Foreign keys that change a row run the triggers of its table.
    cascades_run_triggers: bool = True
    # SQLAlchemy has the server cast values to the declared type.
    casts_values: bool = False
    # The primary key can be set by names that no column has: rowid.
    has_rowid: bool = False
    # Rows of an outbox name their transaction, and a snapshot says which transactions have ended.
    has_transaction_ids: bool = False
    # A crash may lose a commit that others have seen, unless a later one has waited for the disk.
    crash_loses_commits: bool = False
    # The key columns of an outbox have the types of the guarded columns.
    outbox_has_types: bool = True
    # SQL for the first transaction id whose keys an outbox created now will have.
    outbox_floor: str = "NULL"


class Database(Protocol):
    """The questions that one kind of database answers."""

    @property
    def TRAITS(self) -> Traits:  # noqa: N802  a constant of the kind's module
        """Facts that hold for every server of the kind."""

    def identity(self, cursor: Cursor) -> dict[str, str]:
        """Facts that no other server has, nor this one after it was restored elsewhere."""

    def read_table(self, cursor: Cursor, schema: str | None, table: str) -> TableFacts:
        """The facts of a table; a missing table has a doubt."""

    def is_exact(self, cursor: Cursor) -> str:
        """Why this connection may store another value than it is sent; "" if it cannot."""

    def wait_for_writers(self, connection: Connection, patience: float) -> None:
        """Returns when every transaction that was open at the call has ended. StillOpen if not."""

    def wait_for_readers(self, connection: Connection, patience: float) -> None:
        """Returns when every snapshot that was open at the call has ended. StillOpen if not."""

    def mark(self, connection: Connection, schema: str | None, table: str) -> str:
        """A text that differs for a later table of the same name, and for another order of rows."""

    def why_not_whole(
        self, connection: Connection, schema: str | None, table: str, columns: Sequence[str]
    ) -> str:
        """Why ORDER BY may compare only the beginning of these columns; "" if it never does."""

    def proof(self, url: URL) -> dict[str, Any]:
        """Facts outside the database that differ if it was replaced, where none inside differs."""

    def why_behind(self, connection: Connection) -> str:
        """Why this server may lack rows committed on another; "" if rows are committed here."""

    def begin_snapshot(self, connection: Connection) -> None:
        """Makes the connection see one moment from now on: all of its rows, or an error."""

    def why_hidden(self, error: Exception) -> str:
        """Advice if the error means that the role must not see all rows; "" if it does not."""

    # Connections -------------------------------------------------------------------

    def why_missing(self, url: URL) -> str:
        """Why there is no database behind this URL; "" if there may be one."""

    def read_settings(self, cursor: Cursor, places: Iterable[Place]) -> SettingsRead:
        """The connection's isolation level, and settings that decide what names and values mean."""

    def outside(self, connection: Connection) -> Connection:
        """The connection outside any transaction, for waiting."""

    def commit_to_disk(self, connection: Connection) -> None:
        """Makes the commit of this transaction wait for the disk, and so for all before it."""

    def has_table(self, cursor: Cursor, name: str) -> bool:
        """Whether a table exists. Always True where an error would not end the transaction."""

    def snapshot_ids(self, connection: Connection) -> tuple[int, int]:
        """Xmin and xmax of the transaction's snapshot; zeros without transaction ids."""

    def as_stored(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """The column as an expression that the driver does not convert by its declared type."""

    # Outboxes ----------------------------------------------------------------------

    def outbox_schema(self, dialect: Dialect, schema: str | None) -> str | None:
        """The schema to spell in front of the names of an outbox."""

    def create_outbox(self, names: OutboxNames) -> Iterator[str]:
        """The statements that make an outbox and its triggers."""

    def drop_outbox(self, names: OutboxNames) -> Iterator[str]:
        """The statements that drop an outbox and its triggers."""

    def on_conflict(self, table: str, key: str, counter: str) -> str:
        """The end of an INSERT that adds 1 to a counter where the key exists already."""


class StillOpen(Exception):
    """Transactions did not end within the patience; the text names them."""
