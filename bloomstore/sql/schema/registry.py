"""The registry: one row in the database's table bloomstore_guards for each guard.

    epoch      raised by every change that makes older filters useless; see alembic.py
    outbox     the table that triggers write the guard's new keys to
    floor      PostgreSQL: keys of transactions below it may be gone from the outbox
    follower   elsewhere: the one store whose follower takes keys out of the outbox

Invariants
  1. An epoch only grows within one incarnation of the database: the downgrade that drops the
     table drops the incarnation too. So a filter that was built at an epoch may be believed
     as long as no greater one is seen; a process that has seen an older one is merely behind.
  2. A missing table is an empty one. A table that cannot be read is doubt.

Guards without an outbox that no migration has invalidated need no row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text

from bloomstore.sql.databases.contract import Cursor
from bloomstore.sql.databases.queries import rows

TABLE = Table(
    "bloomstore_guards",
    MetaData(),
    Column("name", String(255), primary_key=True),
    Column("schema_name", String(64)),
    Column("table_name", String(64), nullable=False),
    Column("column_names", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("outbox", String(64)),
    Column("floor", BigInteger),
    Column("follower", String(64)),
)
_NAMES = ", ".join(TABLE.columns.keys())
_READ = f"SELECT {_NAMES} FROM {TABLE.name}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Entry:
    """One row."""

    name: str
    schema: str | None
    table: str
    columns: tuple[str, ...]
    epoch: int
    outbox: str | None
    floor: int | None
    follower: str | None


class Unreadable(Exception):
    """The registry exists and cannot be read; the text says why."""


def read_registry(dbapi_connection: Any) -> dict[str, Entry]:
    """Every row by its guard's name, from a raw connection whose transaction it ends."""
    cursor: Cursor = dbapi_connection.cursor()
    try:
        read = rows(cursor, _READ)
    except Exception as error:
        if not _is_missing(error):
            raise Unreadable(f"the table {TABLE.name} cannot be read: {error}") from error
        read = []
    finally:
        dbapi_connection.rollback()
    return {name: _entry(name, *row) for name, *row in read}


def _entry(name: str, schema: Any, table: str, columns: str, *rest: Any) -> Entry:
    return Entry(name, schema, table, tuple(json.loads(columns)), *rest)


def _is_missing(error: Exception) -> bool:
    """Whether a driver says that there is no such table; each says it in its own way."""
    states = {getattr(error, name, None) for name in ("sqlstate", "pgcode")}
    return "42P01" in states or 1146 in error.args or "no such table" in str(error)
