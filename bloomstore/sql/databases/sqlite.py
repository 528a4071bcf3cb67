"""SQLite: affinity decides what is stored, the collation of the column what is equal.

The collation is in no pragma, so it is read from the text of CREATE TABLE. A table whose text
cannot be read (a view, a virtual table), or whose columns are not those of the pragma in their
order, is in doubt.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import OperationalError

from bloomstore.sql.databases import canonical
from bloomstore.sql.databases.contract import (
    ColumnFacts,
    Cursor,
    StillOpen,
    TableFacts,
    mentions,
    pause,
    quoted,
    rows,
)
from bloomstore.sql.databases.lock_holders import holders

# In a word of SQLite every character beyond ASCII is a letter, also what Unicode calls a space.
_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]
    |[\w$\x80-\U0010ffff]+|[^\s\w]""",
    re.DOTALL | re.VERBOSE,
)
_CONSTRAINTS = frozenset("CONSTRAINT PRIMARY UNIQUE CHECK FOREIGN".split())
# How each built-in collation folds text; the names are compared without case.
_FOLDS: dict[str, Callable[[str], str] | None] = {
    "binary": None,
    "nocase": canonical.fold_ascii,
    "rtrim": canonical.fold_blanks,
}
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
    equal = [f"x.t = y.t COLLATE {name}" for name in _FOLDS]
    return (
        "WITH RECURSIVE codes(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM codes WHERE i < 127),"
        f" probes(i, t) AS (SELECT i, char(i) FROM codes UNION ALL VALUES {others})"
        f" SELECT x.i, y.i, {', '.join(equal)} FROM probes x CROSS JOIN probes y"
        f" WHERE x.i < y.i AND ({' OR '.join(equal)})"
    )


_PROBE = _probe()  # 2 ms
# In 10 us, for connections that others may have changed meanwhile.
GLANCE = "SELECT " + ", ".join(
    f"{one} = {other} COLLATE {name}"
    for name in _FOLDS
    for one, other in (("'a'", "'A'"), ("'a'", "'a '"), ("'a'", "'a' || char(9)"), ("'é'", "'É'"))
)
# The triggers that only this connection has. They may write to the tables of every file.
TEMPORARY = "SELECT name, sql FROM sqlite_temp_master WHERE type = 'trigger' ORDER BY name"


def identity(cursor: Cursor) -> dict[str, str]:
    """The inode number of the file, which no copy shares; the incarnation row is copied along."""
    files = {name: file for _, name, file in rows(cursor, "PRAGMA database_list")}
    try:
        return {"kind": "sqlite", "file": str(Path(files["main"]).stat().st_ino)}
    except OSError:  # in memory, or removed meanwhile
        return {"kind": "sqlite", "file": "none"}


def is_exact(cursor: Cursor) -> str:
    """SQLite stores what the affinity says, and compares as its collations do, if they are its own.

    Text of UTF-16 is converted, and some characters do not survive that.
    """
    ((encoding,),) = rows(cursor, "PRAGMA encoding")
    if encoding != "UTF-8":
        return f"the database keeps text in {encoding}, not in UTF-8"
    for one, other, *equal in rows(cursor, _PROBE):
        for (name, fold), is_equal in zip(_FOLDS.items(), equal, strict=True):
            if is_equal and (fold or str)(_PROBES[one]) != (fold or str)(_PROBES[other]):
                return f"the connection has a collation {name.upper()} that is not SQLite's own"
    return ""


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """Types by PRAGMA, collations from the text of CREATE TABLE."""
    version = ".".join(sqlite3.sqlite_version.split(".")[:2])
    prefix = "" if schema is None else _identifier(schema) + "."
    catalog = f"{prefix}sqlite_master"
    tables = rows(
        cursor,
        f"SELECT +sql FROM {catalog} WHERE type = 'table' AND lower(name) = lower({quoted(table)})",
    )
    if not tables or not tables[0][0]:
        return TableFacts(version, doubt=f"there is no table {table!r}")
    shadow = f"SELECT name FROM sqlite_temp_master WHERE lower(name) = lower({quoted(table)})"
    if schema is None and rows(cursor, shadow):
        return TableFacts(version, doubt=f"a temporary table stands before {table!r}")
    described = rows(cursor, f"PRAGMA {prefix}table_xinfo({quoted(table)})")
    definitions = column_definitions(tables[0][0], [name for _, name, *_ in described])
    if definitions is None:
        return TableFacts(version, doubt=f"the text that created {table!r} cannot be read")
    columns = {}
    for (_, name, declared, _, default, key, hidden), definition in zip(
        described, definitions, strict=True
    ):
        found = _column(declared or "", definition, hidden)
        if name.lower() in columns:
            found = replace(found, canon=None, doubt="another column differs in case only")
        is_rowid = bool(key) and (declared or "").upper() == "INTEGER"
        columns[name.lower()] = replace(
            found, has_default=is_rowid or default is not None, blurred=_converter(declared or "")
        )
    triggers = rows(
        cursor,
        f"SELECT name, sql, lower(tbl_name) FROM {catalog} WHERE type = 'trigger'",
    )
    hazards = {}
    for row in rows(cursor, f"PRAGMA {prefix}foreign_key_list({quoted(table)})"):
        source, on_update, on_delete = row[3].lower(), row[5].upper(), row[6].upper()
        if on_update in ("CASCADE", "SET DEFAULT") or on_delete == "SET DEFAULT":
            hazards[source] = f"a foreign key changes it: ON UPDATE {on_update}"
    feeds = tuple(
        name for name, _, on in triggers if name.startswith("bloomstore_") and on == table.lower()
    )
    writers = tuple(name for name, sql, _ in triggers if mentions(sql, table) and name not in feeds)
    writers += tuple(name for name, sql in rows(cursor, TEMPORARY) if mentions(sql, table))
    return TableFacts(version, columns, writers, feeds, hazards)


def _column(declared: str, definition: list[str], hidden: int) -> ColumnFacts:
    if hidden:
        return ColumnFacts(declared, doubt="a generated or hidden column")
    collation = _collation(definition)
    if collation.lower() not in _FOLDS:
        return ColumnFacts(declared, collation, doubt=f"collation {collation!r} is not built in")
    affinity = affinity_of(declared)
    fold = _FOLDS[collation.lower()]
    own: type | None = {"INTEGER": int, "NUMERIC": int, "TEXT": str, "BLOB": None}.get(affinity)
    if affinity == "TEXT" and fold is not None:
        own = None
    room: Container[Any] = canonical.Texts() if own is str else canonical.integers(64)
    name = f"sqlite {affinity.lower()} {collation.lower()}/1"
    form = canonical.Canon(name, canonical.sqlite(affinity, fold), own, room=room)
    return ColumnFacts(declared, collation, form)


def _converter(declared: str) -> str:
    """Why the driver may read something else than is stored: by the first word of the type."""
    word = re.split(r"[\s(]", declared, maxsplit=1)[0].upper()
    found = sqlite3.converters.get(word)
    is_foreign = found is not None and found.__module__ != "sqlite3.dbapi2"
    return f"sqlite3 has a converter for {word}" if is_foreign else ""


def _collation(definition: list[str]) -> str:
    """The last COLLATE outside parentheses: one inside belongs to a CHECK or a DEFAULT."""
    found, depth = "binary", 0
    for place, token in enumerate(definition):
        depth += (token == "(") - (token == ")")
        if not depth and token.lower() == "collate":
            found = _bare(definition[place + 1])
    return found


def affinity_of(declared: str) -> str:
    """The affinity of a declared type, by the five rules of SQLite's documentation, in order."""
    declared = declared.upper()
    if "INT" in declared:
        return "INTEGER"
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in declared or not declared:
        return "BLOB"
    if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "NUMERIC"


def column_definitions(create: str, names: Sequence[str]) -> list[list[str]] | None:
    """The tokens of the definition of each of these columns; None if the text has others.

    Constraints of the table come behind the columns.
    """
    if "\ufeff" in create:  # a space where a token begins, a letter elsewhere
        return None
    found: list[list[str]] = []
    depth = 0
    definition: list[str] = []
    for token in _TOKEN.findall(create):
        if token.startswith(("--", "/*")):
            continue
        if token == ")":
            depth -= 1
        if depth >= 1 and not (depth == 1 and token == ","):
            definition.append(token)
        if (depth == 0 or (depth == 1 and token == ",")) and definition:
            found.append(definition)
            definition = []
        if token == "(":
            depth += 1
    columns, constraints = found[: len(names)], found[len(names) :]
    are_these = [_bare(first) for first, *_ in columns] == list(names)
    are_all = {first.upper() for first, *_ in constraints} <= _CONSTRAINTS
    return columns if are_these and are_all else None


def _bare(token: str) -> str:
    """A name without its quotes."""
    if token[0] in "\"'`":
        return token[1:-1].replace(token[0] * 2, token[0])
    return token[1:-1] if token[0] == "[" else token


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def wait_for_writers(connection: Connection, patience: float) -> None:
    """There is one writer at a time: whoever holds the write lock is the only one before."""
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

    (Without a WAL nobody can commit while somebody reads.) The busy timeout is 0 meanwhile: waiting
    inside of SQLite would keep writers out.
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
    """Whether somebody else has a lock; extended codes have the plain one in their last byte."""
    code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _held_by(connection: Connection) -> str:
    name = connection.engine.url.database or ""
    found = holders(*(Path(f"{name}{end}") for end in ("", "-shm", "-journal")))
    return f": {found}" if found else ""


def mark(connection: Connection, schema: str | None, table: str) -> str:
    """A table has none; the file has."""
    return ""


def why_not_whole(
    connection: Connection, schema: str | None, table: str, columns: Sequence[str]
) -> str:
    """Everything is compared whole."""
    return ""


def proof(url: URL) -> dict[str, Any]:
    """The file and its log: nothing but their being untouched tells them from a restored copy."""
    file = (url.database or "").removeprefix("file:").partition("?")[0]
    found: dict[str, Any] = {}
    for name in (file, f"{file}-wal"):
        with contextlib.suppress(OSError):
            status = Path(name).stat()
            times = [status.st_mtime_ns, status.st_ctime_ns]
            found[name] = [status.st_dev, status.st_ino, status.st_size, *times]
    return found or {"nobody knows": uuid4().hex}  # what is in memory is never the same


def why_behind(connection: Connection) -> str:
    """A file has no replicas."""
    return ""


def why_hidden(error: Exception) -> str:
    """Nothing is hidden from anybody who may read the file."""
    return ""


def begin_snapshot(connection: Connection) -> None:
    """A read transaction sees the moment of its first read."""
    leave_transaction(connection)
    connection.exec_driver_sql("BEGIN")


def leave_transaction(connection: Connection) -> None:
    """Ends what a listener of `begin` has begun, as in SQLAlchemy's own recipe for this driver."""
    if not connection.in_transaction():
        connection.begin()
    raw: Any = connection.connection.dbapi_connection
    raw.rollback()
