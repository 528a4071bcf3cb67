"""SQLite: affinity decides what is stored, the collation of the column what is equal.

The collation is in no pragma, so it is read from the text of CREATE TABLE. A table whose text
cannot be read (a view, a virtual table) is in doubt.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from bloomstore.sql import canon
from bloomstore.sql.databases.facts import (
    ColumnFacts,
    Cursor,
    StillOpen,
    TableFacts,
    mentions,
    pause,
    quoted,
    rows,
)

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|\w+|[^\s\w]""",
    re.DOTALL,
)
# How each built-in collation folds text; the names are compared without case.
_FOLDS: dict[str, Callable[[str], str] | None] = {
    "binary": None,
    "nocase": canon.fold_ascii,
    "rtrim": lambda value: value.rstrip(" "),
}


def identity(cursor: Cursor) -> dict[str, str]:
    """A file has no identity of its own: the incarnation row is all there is."""
    return {"kind": "sqlite"}


def is_exact(cursor: Cursor) -> str:
    """SQLite stores what the affinity says, on every connection."""
    return ""


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """Types by PRAGMA, collations from the text of CREATE TABLE."""
    version = ".".join(sqlite3.sqlite_version.split(".")[:2])
    prefix = "" if schema is None else _identifier(schema) + "."
    catalog = f"{prefix}sqlite_master"
    tables = rows(
        cursor,
        f"SELECT sql FROM {catalog} WHERE type = 'table' AND lower(name) = lower({quoted(table)})",
    )
    if not tables or not tables[0][0]:
        return TableFacts(version, doubt=f"there is no table {table!r}")
    shadow = f"SELECT name FROM sqlite_temp_master WHERE lower(name) = lower({quoted(table)})"
    if schema is None and rows(cursor, shadow):
        return TableFacts(version, doubt=f"a temporary table stands before {table!r}")
    definitions = column_definitions(tables[0][0])
    columns = {}
    for _, name, declared, _, default, key, hidden in rows(
        cursor, f"PRAGMA {prefix}table_xinfo({quoted(table)})"
    ):
        found = _column(declared or "", definitions.get(name.lower()), hidden)
        is_rowid = bool(key) and (declared or "").upper() == "INTEGER"
        columns[name.lower()] = replace(found, has_default=is_rowid or default is not None)
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
    return TableFacts(version, columns, writers, feeds, hazards)


def _column(declared: str, definition: list[str] | None, hidden: int) -> ColumnFacts:
    if definition is None:
        return ColumnFacts(declared, doubt="its definition cannot be read")
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
    name = f"sqlite {affinity.lower()} {collation.lower()}/1"
    return ColumnFacts(declared, collation, canon.Canon(name, canon.sqlite(affinity, fold), own))


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


def column_definitions(create: str) -> dict[str, list[str]]:
    """Column name in lower case -> the tokens of its definition."""
    tokens = [token for token in _TOKEN.findall(create) if not token.startswith(("--", "/*"))]
    found: dict[str, list[str]] = {}
    depth = 0
    definition: list[str] = []
    for token in tokens:
        if token == ")":
            depth -= 1
        if depth >= 1 and not (depth == 1 and token == ","):
            definition.append(token)
        if (depth == 0 or (depth == 1 and token == ",")) and definition:
            found.setdefault(_bare(definition[0]).lower(), definition)
            definition = []
        if token == "(":
            depth += 1
    return found


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
            if time.monotonic() > ends:
                raise StillOpen("a transaction holds SQLite's write lock") from error
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
                raise StillOpen("a transaction that reads an older moment")
            pause(0.01)
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {before}")


def _is_copied(connection: Connection) -> bool:
    """Whether the whole WAL could be copied into the file: all readers see the last moment."""
    try:
        busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(FULL)").one()[0]
    except OperationalError:
        return False
    return not busy


def begin_snapshot(connection: Connection) -> None:
    """A read transaction sees the moment of its first read."""
    connection.exec_driver_sql("BEGIN")
