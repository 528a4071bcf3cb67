"""The facts of an SQLite table: affinity decides what is stored, the collation what is equal.

The collation is in no pragma, so it is read from the text of CREATE TABLE. A table whose text
cannot be read (a view, a virtual table), or whose columns are not those of the pragma in their
order, is in doubt.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

from bloomstore.sql.databases import canonical
from bloomstore.sql.databases.contract import ColumnFacts, Cursor, TableFacts
from bloomstore.sql.databases.queries import mentions, quoted, rows

# In a word of SQLite every character beyond ASCII is a letter, also what Unicode calls a space.
_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]
    |[\w$\x80-\U0010ffff]+|[^\s\w]""",
    re.DOTALL | re.VERBOSE,
)
_CONSTRAINTS = frozenset("CONSTRAINT PRIMARY UNIQUE CHECK FOREIGN".split())
# How each built-in collation folds text; the names are compared without case.
FOLDS: dict[str, Callable[[str], str] | None] = {
    "binary": None,
    "nocase": canonical.fold_ascii,
    "rtrim": canonical.fold_blanks,
}
# The triggers that only this connection has. They may write to the tables of every file.
TEMPORARY_TRIGGERS = "SELECT name, sql FROM sqlite_temp_master WHERE type = 'trigger' ORDER BY name"


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
        column = _column(declared or "", definition, hidden)
        if name.lower() in columns:
            column = replace(column, canon=None, doubt="another column differs in case only")
        is_rowid = bool(key) and (declared or "").upper() == "INTEGER"
        columns[name.lower()] = replace(
            column, has_default=is_rowid or default is not None, blurred=_converter(declared or "")
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
    writers += tuple(name for name, sql in rows(cursor, TEMPORARY_TRIGGERS) if mentions(sql, table))
    return TableFacts(version, columns, writers, feeds, hazards)


def _column(declared: str, definition: list[str], hidden: int) -> ColumnFacts:
    if hidden:
        return ColumnFacts(declared, doubt="a generated or hidden column")
    collation = _collation(definition)
    if collation.lower() not in FOLDS:
        return ColumnFacts(declared, collation, doubt=f"collation {collation!r} is not built in")
    affinity = affinity_of(declared)
    fold = FOLDS[collation.lower()]
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
