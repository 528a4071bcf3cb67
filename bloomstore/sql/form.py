"""The form of a guard's keys: what they depend on, read from the live database.

In: what was declared and what was read of the live table. Out: the canonical form of each column,
or why there is none; and the form as it stands in the note of a filter that was built with it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Uuid

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
    return {
        "dialect": live.dialect.name,
        "version": live.table.version,
        "types": [found.type for found in facts],
        "collations": [found.collation for found in facts],
        "canon": joined(canons_of(declared, live)).id,
    }


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
