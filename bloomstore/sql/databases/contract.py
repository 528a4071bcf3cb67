"""What was read of a live table: how its columns compare, and what could change keys unseen."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy.engine import URL, Connection
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from bloomstore.sql.databases.canonical import Canon


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
    has_default: bool = False  # the database may fill it in, whatever the application declares
    blurred: str = ""  # why the driver may read another value than the stored one; builds do not


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table: its columns by name, and by column what may change it without being seen."""

    version: str
    columns: dict[str, ColumnFacts] = field(default_factory=dict)
    triggers: tuple[str, ...] = ()  # and views through which the table can be written
    feeds: tuple[str, ...] = ()  # triggers of bloomstore that always run: they feed an outbox
    hazards: dict[str, str] = field(default_factory=dict)
    unfed: str = ""  # how rows may come in without running a trigger
    doubt: str = ""
    schema: str = ""  # where a name without a schema was found
    path: tuple[str, ...] = field(default=(), compare=False)  # where such names are looked for


class Database(Protocol):
    """The questions that one kind of database answers."""

    def identity(self, cursor: Cursor) -> dict[str, str]:
        """What tells this server, and this life of it, from every other."""

    def read_table(self, cursor: Cursor, schema: str | None, table: str) -> TableFacts:
        """The facts of a table; a missing table has a doubt."""

    def is_exact(self, cursor: Cursor) -> str:
        """Why this connection may store something else than it is sent; "" if it cannot."""

    def wait_for_writers(self, connection: Connection, patience: float) -> None:
        """Returns when every transaction that was open at the call has ended. StillOpen if not."""

    def wait_for_readers(self, connection: Connection, patience: float) -> None:
        """Returns when every snapshot that was open at the call has ended. StillOpen if not."""

    def mark(self, connection: Connection, schema: str | None, table: str) -> str:
        """What tells a table from one that has its name later, and its order from a later one."""

    def why_not_whole(
        self, connection: Connection, schema: str | None, table: str, columns: Sequence[str]
    ) -> str:
        """Why ORDER BY may compare only the beginning of these columns; "" if it never does."""

    def proof(self, url: URL) -> dict[str, Any]:
        """What has changed if this database is another one now, where nothing inside tells."""

    def why_behind(self, connection: Connection) -> str:
        """Why this server may lack what was committed on another; "" if it is the first to know."""

    def begin_snapshot(self, connection: Connection) -> None:
        """Makes the connection see one moment from now on, all rows of it or an error."""

    def why_hidden(self, error: Exception) -> str:
        """What to do if this error means that the role must not see all rows; "" if it does not."""


class StillOpen(Exception):
    """Transactions did not end within the patience; the text names them."""


def pause(seconds: float) -> None:
    """Waits a moment; under an async engine the event loop goes on meanwhile."""
    if in_greenlet():
        await_only(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


def rows(cursor: Cursor, sql: str) -> list[tuple[Any, ...]]:
    """All rows of one query."""
    cursor.execute(sql)
    return [tuple(row) for row in cursor.fetchall()]


def quoted(name: str) -> str:
    """A string literal of SQL. Names with a backslash are refused: servers differ there."""
    if "\\" in name or "\0" in name:
        raise ValueError(f"a name with a backslash or a NUL cannot be guarded: {name!r}")
    return "'" + name.replace("'", "''") + "'"


def mentions(text: str, table: str) -> bool:
    """Whether a text has the table's name as a word."""
    return re.search(rf"(?<!\w){re.escape(table)}(?!\w)", text, re.IGNORECASE) is not None
