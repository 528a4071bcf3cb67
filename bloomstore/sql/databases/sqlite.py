"""SQLite: one file, one writer; identity, waiting, collations, settings and outboxes.

Tables are read in sqlite_tables.py.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement
from sqlalchemy.engine import URL, Connection, Dialect
from sqlalchemy.exc import OperationalError
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.types import NullType

from bloomstore.sql.databases.contract import (
    Cursor,
    Place,
    SettingsRead,
    StillOpen,
    Traits,
)
from bloomstore.sql.databases.lock_holders import holders
from bloomstore.sql.databases.outbox_names import OutboxNames, first_id
from bloomstore.sql.databases.queries import pause, quoted, rows
from bloomstore.sql.databases.sqlite_tables import FOLDS, TEMPORARY_TRIGGERS
from bloomstore.sql.databases.sqlite_tables import read_table as read_table

TRAITS = Traits(
    snapshot_level=None,  # setting the one level that there is changes the driver's
    reads_lock_nothing=True,
    has_snapshots=True,
    can_redirect_names=False,  # names always lead to the one file
    has_rowid=True,
    outbox_has_types=False,
)
# A program may put collations of its own in the place of the built-in ones: every ASCII character
# is compared with every other one on each new connection, and these.
_PROBES = [chr(code) for code in range(128)] + [
    "", "  ", "a ", "A ", " a", "a  ", "ab", "aB", "AB", "ab ", "a\0b", "a\0c", "a\t", "a\n",
    "\u00e9", "\u00c9", "e\u0301", "\u00df", "ss", "\u1e9e", "\u212a", "\u0130", "\u0131",
    "\u017f", "\ufb01", "fi", "\uff21", "\u00a0", "\u3000", "\u03a3", "\u03c2", "\u03c3",
    "01", "10", "a1", "a01",
]  # fmt: skip


def _probe() -> str:
    """Asks which probes are equal by some built-in collation, and by which."""
    others = ", ".join(
        f"({place}, {'||'.join(f'char({ord(each)})' for each in probe) or quoted('')})"
        for place, probe in enumerate(_PROBES[128:], 128)
    )
    equal = [f"x.t = y.t COLLATE {name}" for name in FOLDS]
    return (
        "WITH RECURSIVE codes(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM codes WHERE i < 127),"
        f" probes(i, t) AS (SELECT i, char(i) FROM codes UNION ALL VALUES {others})"
        f" SELECT x.i, y.i, {', '.join(equal)} FROM probes x CROSS JOIN probes y"
        f" WHERE x.i < y.i AND ({' OR '.join(equal)})"
    )


_PROBE = _probe()  # 2 ms
# A quick look of 10 us, for connections that may have been changed since.
_GLANCE = "SELECT " + ", ".join(
    f"{one} = {other} COLLATE {name}"
    for name in FOLDS
    for one, other in (("'a'", "'A'"), ("'a'", "'a '"), ("'a'", "'a' || char(9)"), ("'é'", "'É'"))
)


def identity(cursor: Cursor) -> dict[str, str]:
    """The inode number of the file, which no copy shares; the incarnation row is copied along."""
    files = {name: file for _, name, file in rows(cursor, "PRAGMA database_list")}
    try:
        return {"kind": "sqlite", "file": str(Path(files["main"]).stat().st_ino)}
    except OSError:  # in memory, or removed since
        return {"kind": "sqlite", "file": "none"}


def is_exact(cursor: Cursor) -> str:
    """SQLite stores what the affinity says, and compares as its collations do, if they are its own.

    Text of UTF-16 is converted, and some characters do not survive that.
    """
    ((encoding,),) = rows(cursor, "PRAGMA encoding")
    if encoding != "UTF-8":
        return f"the database keeps text in {encoding}, not in UTF-8"
    for one, other, *equal in rows(cursor, _PROBE):
        for (name, fold), is_equal in zip(FOLDS.items(), equal, strict=True):
            if is_equal and (fold or str)(_PROBES[one]) != (fold or str)(_PROBES[other]):
                return f"the connection has a collation {name.upper()} that is not SQLite's own"
    return ""


def wait_for_writers(connection: Connection, patience: float) -> None:
    """There is one writer at a time: the holder of the write lock is the only one to wait for."""
    ends = time.monotonic() + patience
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except OperationalError as error:
            if not _is_busy(error):
                raise
            if time.monotonic() > ends:
                what = f"a transaction holds SQLite's write lock{_held_by(connection)}"
                raise StillOpen(what) from error
            pause(0.01)
        else:
            connection.exec_driver_sql("ROLLBACK")
            return


def wait_for_readers(connection: Connection, patience: float) -> None:
    """Readers of an older moment keep a WAL from being copied; without one there are none.

    (Without a WAL no commit ends while a transaction reads.) The busy timeout is 0 meanwhile,
    because waiting inside SQLite would keep writers out.
    """
    if connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
        return
    ends = time.monotonic() + patience
    before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    try:
        while not _is_copied(connection):
            if time.monotonic() > ends:
                raise StillOpen(f"a transaction reads an older moment{_held_by(connection)}")
            pause(0.01)
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {before}")


def _is_copied(connection: Connection) -> bool:
    """Whether the whole WAL could be copied into the file: all readers see the last moment."""
    try:
        busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(FULL)").one()[0]
    except OperationalError as error:
        if not _is_busy(error):
            raise
        return False
    return not busy


def _is_busy(error: OperationalError) -> bool:
    """Whether another connection has a lock; extended codes end with the plain one."""
    code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _held_by(connection: Connection) -> str:
    name = connection.engine.url.database or ""
    processes = holders(*(Path(f"{name}{end}") for end in ("", "-shm", "-journal")))
    return f": {processes}" if processes else ""


def mark(connection: Connection, schema: str | None, table: str) -> str:
    """Always "": a table has no mark, only the file has."""
    return ""


def why_not_whole(
    connection: Connection, schema: str | None, table: str, columns: Sequence[str]
) -> str:
    """Always "": ORDER BY compares whole values."""
    return ""


def proof(url: URL) -> dict[str, Any]:
    """The state of the file and its log: once changed, they may be those of a restored copy."""
    file = (url.database or "").removeprefix("file:").partition("?")[0]
    found: dict[str, Any] = {}
    for name in (file, f"{file}-wal"):
        with contextlib.suppress(OSError):
            status = Path(name).stat()
            times = [status.st_mtime_ns, status.st_ctime_ns]
            found[name] = [status.st_dev, status.st_ino, status.st_size, *times]
    return found or {"nobody knows": uuid4().hex}  # a database in memory is never the same


def why_behind(connection: Connection) -> str:
    """Always "": a file has no replicas."""
    return ""


def why_hidden(error: Exception) -> str:
    """Always "": a reader of the file sees every row."""
    return ""


def begin_snapshot(connection: Connection) -> None:
    """A read transaction sees the moment of its first read."""
    outside(connection).exec_driver_sql("BEGIN")


# Connections -----------------------------------------------------------------------


def why_missing(url: URL) -> str:
    """A file that is not there would be made, empty."""
    name = url.database or ""
    is_file = name not in ("", ":memory:") and not name.startswith("file:")
    return "there is no such file" if is_file and not Path(name).exists() else ""


def read_settings(cursor: Cursor, places: Iterable[Place]) -> SettingsRead:
    """Attached files, temporary tables and triggers, and a glance at the collations."""
    places = list(places)
    ((is_dirty,),) = rows(cursor, "PRAGMA read_uncommitted")
    schemas = {"main"} | {schema.lower() for schema, _ in places if schema is not None}
    files = {(name.lower(), file) for _, name, file in rows(cursor, "PRAGMA database_list")}
    names = {name.lower() for schema, name in places if schema is None}
    temporary = {name for (name,) in rows(cursor, "SELECT lower(name) FROM sqlite_temp_master")}
    return (
        "READ UNCOMMITTED" if is_dirty else "SERIALIZABLE",
        (
            *sorted(each for each in files if each[0] in schemas),
            *sorted(names & temporary),
            *rows(cursor, TEMPORARY_TRIGGERS),
            *rows(cursor, _GLANCE),  # collations may have been replaced
        ),
    )


def outside(connection: Connection) -> Connection:
    """Ends what a listener of `begin` has begun, as in SQLAlchemy's own recipe for this driver."""
    if not connection.in_transaction():
        connection.begin()
    raw: Any = connection.connection.dbapi_connection
    raw.rollback()
    return connection


def commit_to_disk(connection: Connection) -> None:
    """Nothing to do: commits reach the file in their order."""


def has_table(cursor: Cursor, name: str) -> bool:
    """Always True: a missing table raises an error that does not end the transaction."""
    return True


def snapshot_ids(connection: Connection) -> tuple[int, int]:
    """Zeros: transactions have no ids."""
    return 0, 0


def as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """+column: the driver converts columns by their declared type, and an expression has none."""
    return UnaryExpression(column, operator=operators.custom_op("+"), type_=NullType())


# Outboxes --------------------------------------------------------------------------


def outbox_schema(dialect: Dialect, schema: str | None) -> str | None:
    """The schema as declared."""
    return schema


def create_outbox(names: OutboxNames) -> Iterator[str]:
    """Statements for an outbox whose rows have an id that is never used again, in untyped columns.

    Such columns keep every value as the guarded one has stored it. In a trigger SQLite looks names
    up in the trigger's own schema, and allows no other way.
    """
    keys = ", ".join(names.keys)
    yield f"CREATE TABLE {names.full_outbox} (id INTEGER PRIMARY KEY AUTOINCREMENT, {keys})"
    yield (
        f"INSERT INTO {names.in_schema('sqlite_sequence')} (name, seq)"  # keeps the last id
        f" VALUES ({quoted(names.outbox)}, {first_id()})"
    )
    insert = f"{names.insert_into(names.quote(names.outbox))} VALUES ({names.new_values})"
    for name, event, when in names.events("NEW.{0} IS NOT OLD.{0}"):
        yield (
            f"CREATE TRIGGER {names.in_schema(name)} AFTER {event}"
            f" ON {names.quote(names.table)} WHEN {when} BEGIN {insert}; END"
        )


def drop_outbox(names: OutboxNames) -> Iterator[str]:
    """Drops the triggers, which are in the schema of their table, and the outbox."""
    for name in (names.inserts, names.updates):
        yield f"DROP TRIGGER IF EXISTS {names.in_schema(name)}"
    yield f"DROP TABLE IF EXISTS {names.full_outbox}"


def on_conflict(table: str, key: str, counter: str) -> str:
    """SQLite's form, which adds to the counter of the existing row."""
    return f"ON CONFLICT ({key}) DO UPDATE SET {counter} = {table}.{counter} + 1"
