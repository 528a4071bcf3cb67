"""The form of a guard's keys: what they depend on, read from the live database.

In: what was declared and what was read of the live table. Out: the canonical form of each column,
or why there is none; and the form as it stands in the note of a filter that was built with it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Date, DateTime, Integer, Uuid
from sqlalchemy.engine import Dialect

from bloomstore.sql import canon
from bloomstore.sql.canon import Canon
from bloomstore.sql.databases import ColumnFacts
from bloomstore.sql.guard import Declared
from bloomstore.sql.live import Live
from bloomstore.sql.triggers import trigger_names


def doubt_of(declared: Declared, live: Live) -> str:
    """Why no filter can be trusted in front of these columns; "" if one can."""
    facts = live.table
    if live.inexact or facts.doubt:
        return live.inexact or facts.doubt
    hazards = facts.hazards
    if declared.guard.feed == "outbox":
        if doubt := _doubt_of_outbox(declared, live):
            return doubt
        if live.dialect.name not in ("mysql", "mariadb"):  # its cascades run no triggers
            hazards = {}
    elif facts.triggers and not declared.guard.ignore_triggers:
        return f"triggers or views may write to the table: {', '.join(facts.triggers)}"
    for column in declared.columns:
        name = column.name.lower()
        found = facts.columns.get(name, ColumnFacts("", doubt="there is no such column"))
        hazard = hazards.get(name, "")
        if hazard or (found.doubt and not _is_uuid_text(column.type, found)):
            return f"column {name}: {hazard or found.doubt}"
    return ""


def _doubt_of_outbox(declared: Declared, live: Live) -> str:
    if live.outbox is None:
        return "it has no outbox: create_guard_outbox in a migration makes it"
    missing = [name for name in trigger_names(declared.name) if name not in live.table.feeds]
    if missing:
        return f"triggers of its outbox are missing or do not always run: {', '.join(missing)}"
    return ""


def canons_of(declared: Declared, live: Live) -> tuple[Canon, ...]:
    """The canonical form of each column; there is no doubt of them."""
    return tuple(
        _canon_of(column.type, live.table.columns[column.name.lower()])
        for column in declared.columns
    )


def joined(parts: tuple[Canon, ...]) -> Canon:
    """The canonical form of the key that these columns make."""
    return parts[0] if len(parts) == 1 else canon.composite(parts)


def form_of(declared: Declared, live: Live) -> dict[str, Any]:
    """What the keys depend on, for a note."""
    facts = [live.table.columns[column.name.lower()] for column in declared.columns]
    place = {"schema": live.table.schema} if live.table.schema else {}
    return {
        **place,
        "dialect": live.dialect.name,
        "version": live.table.version,
        "types": [found.type for found in facts],
        "collations": [found.collation for found in facts],
        "canon": joined(canons_of(declared, live)).id,
    }


def processor_of(type_: Any, dialect: Dialect) -> Callable[[Any], Any] | None:
    """What makes of a value what is sent. It raises where the server would send another one on.

    Drivers of PostgreSQL ask for a cast to the declared type: that rounds 1.5 for an Integer, cuts
    the time off for a Date, and takes wall time for an instant by the session's time zone. Where
    the live column has another type, the result is stored.
    """
    made: Callable[[Any], Any] | None = type_.dialect_impl(dialect).bind_processor(dialect)
    affinity = type_._type_affinity
    if dialect.name != "postgresql" or affinity not in (Integer, Date, DateTime):
        return made
    is_aware = bool(getattr(type_, "timezone", False))

    def checked(value: Any) -> Any:
        sent = value if made is None else made(value)
        if sent is None:
            return None
        if affinity is Integer:
            is_kept = isinstance(sent, (int, str))
        elif affinity is Date:
            is_kept = not isinstance(sent, datetime)
        else:
            is_kept = isinstance(sent, datetime) and (sent.tzinfo is not None) is is_aware
        if not is_kept:
            raise ValueError(f"a cast to {type_!r} changes {sent!r}")
        return sent

    return checked


def _canon_of(declared: object, found: ColumnFacts) -> Canon:
    if _is_uuid_text(declared, found):
        return Canon("uuid/1", canon.uuid)
    assert found.canon is not None
    return found.canon


def _is_uuid_text(declared: object, found: ColumnFacts) -> bool:
    """Whether SQLAlchemy keeps UUIDs as text in this column: then every spelling is parsed."""
    return isinstance(declared, Uuid) and is_text(found)


def is_text(found: ColumnFacts) -> bool:
    """Whether this is a column of characters, which may be declared as UUIDs."""
    return found.type.lower().startswith(("char", "varchar", "character"))
