"""The live database and its guarded tables, as a new connection shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Dialect

from bloomstore.sql.databases import TableFacts, database_of, drivers
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.schema.incarnation import read_identity, read_tokens
from bloomstore.sql.schema.registry import Unreadable, read_registry


@dataclass(slots=True)
class Live:
    """One table, as far as one of its guards is concerned."""

    dialect: Dialect
    identity: dict[str, str]
    table: TableFacts
    inexact: str = ""
    epoch: int = 0
    outbox: str | None = None
    blurred: str = ""  # why text may be read differently from what is stored; builds avoid it
    token: str | None = field(default=None, compare=False)  # of the last build; None: not read


def read_live(raw: Any, dialect: Dialect, guards: Sequence[Declared]) -> list[Live]:
    """For each guard what a raw connection of the driver shows; ends its transaction."""
    blurred = "" if drivers.reads_text(raw, dialect) else "the connection has a text_factory"
    taught = drivers.doubt_of(raw, dialect)
    with drivers.plain_text(raw, dialect):
        return _read_live(raw, dialect, guards, blurred, taught)


def _read_live(
    raw: Any, dialect: Dialect, guards: Sequence[Declared], blurred: str, taught: str
) -> list[Live]:
    database = database_of(dialect)
    identity = read_identity(database, raw)
    tokens = read_tokens(raw, [guard.name for guard in guards])
    registry, unreadable = {}, ""
    try:
        registry = read_registry(raw)
    except Unreadable as error:
        unreadable = str(error)
    cursor = raw.cursor()
    try:
        inexact = unreadable or taught or database.is_exact(cursor)
        places = {(guard.table.schema, guard.table.name) for guard in guards}
        tables = {place: database.read_table(cursor, *place) for place in places}
    finally:
        cursor.close()
        raw.rollback()
    lives = []
    for guard in guards:
        entry = registry.get(guard.name)
        registered = (0, None) if entry is None else (entry.epoch, entry.outbox)
        table = tables[guard.table.schema, guard.table.name]
        lives.append(
            Live(dialect, identity, table, inexact, *registered, blurred, tokens[guard.name])
        )
    return lives
