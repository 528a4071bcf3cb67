"""The form of a guard's keys: the facts they depend on, read from the live database.

In: the declaration and the live table. Out: the canonical form of each column, or why it has none;
and the form as the record of a filter holds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Date, DateTime, Integer, Uuid
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import CompileError, SQLAlchemyError
from sqlalchemy.types import NullType

from bloomstore.sql.databases import ColumnFacts, canonical, traits_of
from bloomstore.sql.databases.canonical import Canon
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.guards.live_table import Live, read_live
from bloomstore.sql.schema.outbox_tables import trigger_names
from bloomstore.sql.sqlalchemy_private import affinity_of, dialect_type, result_processor_of


def doubt_of(declared: Declared, live: Live) -> str:
    """Why no filter can be trusted in front of these columns; "" if one can."""
    facts = live.table
    if live.inexact or facts.doubt:
        return live.inexact or facts.doubt
    hazards = facts.hazards
    if declared.guard.feed == "outbox":
        if doubt := _doubt_of_outbox(declared, live):
            return doubt
        if traits_of(live.dialect).cascades_run_triggers:
            hazards = {}
    elif facts.triggers and not declared.guard.ignore_triggers:
        return f"triggers or views may write to the table: {', '.join(facts.triggers)}"
    for column in declared.columns:
        name = column.name.lower()
        found = facts.columns.get(name, ColumnFacts("", doubt="there is no such column"))
        hazard = hazards.get(name, "")
        if hazard or (found.doubt and not _is_uuid_text(column.type, found)):
            return f"column {name}: {hazard or found.doubt}"
        if doubt := doubt_of_cast(column.type, live.dialect, found):
            return f"column {name}: {doubt}"
        if declared.guard.feed == "outbox" and (blurred := live.blurred or found.blurred):
            return f"column {name}: {blurred}, and so are the keys of its outbox"
    return ""


def _doubt_of_outbox(declared: Declared, live: Live) -> str:
    if live.outbox is None:
        return "it has no outbox: create_guard_outbox in a migration makes it"
    missing = [name for name in trigger_names(declared.name) if name not in live.table.feeds]
    if missing:
        return f"triggers of its outbox are missing or do not always run: {', '.join(missing)}"
    if live.table.unfed and not declared.guard.ignore_triggers:
        return f"{live.table.unfed}; Guard(ignore_triggers=True) vouches that this never happens"
    return ""


def canons_of(declared: Declared, live: Live) -> tuple[Canon, ...]:
    """The canonical form of each column. Call it only if `doubt_of` found no doubt."""
    return tuple(
        _canon_of(column.type, live.table.columns[column.name.lower()])
        for column in declared.columns
    )


def joined(parts: tuple[Canon, ...]) -> Canon:
    """The canonical form of the key that these columns make."""
    return parts[0] if len(parts) == 1 else canonical.composite(parts)


def form_of(declared: Declared, live: Live) -> dict[str, Any]:
    """The form of the keys, for the record: everything that they depend on."""
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


def why_another(declared: Declared, dialect: Dialect, raw: Any, expected: dict[str, Any]) -> str:
    """Why this connection would not read the expected form; "" if it does.

    A temporary table may stand before the real one, a search path may lead elsewhere.
    """
    (live,) = read_live(raw, dialect, [declared])
    if doubt := doubt_of(declared, live):
        return doubt
    form = form_of(declared, live)
    return "" if form == expected else f"the connection finds {form}, expected {expected}"


_INTEGERS = frozenset(("smallint", "integer", "bigint"))
_FLOATS = frozenset(("float", "double precision", *(f"float({bits})" for bits in range(25, 54))))
_TEXTS = frozenset(("varchar", "text", "character varying"))
# By live type, casts that change no value that has a key, besides a cast to the type itself.
_CASTS = {
    **dict.fromkeys(_INTEGERS, _INTEGERS),
    "numeric": _INTEGERS | {"numeric"},
    "double precision": _INTEGERS | _FLOATS,
    "real": _INTEGERS | _FLOATS | {f"float({bits})" for bits in range(1, 25)},
    "text": _TEXTS,
    "character varying": _TEXTS,
    "character": _TEXTS,
    "bpchar": _TEXTS,
    "timestamp without time zone": {"timestamp without time zone"},
    "timestamp with time zone": {"timestamp with time zone"},
}


def doubt_of_cast(type_: Any, dialect: Dialect, facts: ColumnFacts) -> str:
    """Why the live column gets another value than is sent as this type; "" if it gets the same.

    SQLAlchemy has PostgreSQL cast what it sends to the declared type: some drivers always, all of
    them when many rows are inserted in one statement.
    """
    if isinstance(type_, NullType) or not traits_of(dialect).casts_values:
        return ""
    maker: Any = dialect.statement_compiler(dialect, None)
    try:
        cast = maker.render_bind_cast(type_, dialect_type(type_, dialect), "")
    except CompileError:  # a type without a name causes no cast
        return ""
    cast = cast.removeprefix("::").lower().replace(", ", ",").replace('"', "")
    live, _, labels = facts.type.lower().replace('"', "").partition(" (")
    plain = re.sub(r"\(.*?\)", "", live)
    if cast == live or cast.replace("char(", "character(") == live or cast in _CASTS.get(plain, ()):
        return ""
    if plain == cast.partition("(")[0] == "numeric" and _scale(cast) == _scale(live):
        return ""
    if labels and cast.rpartition(".")[2] == live.rpartition(".")[2]:
        return ""
    return f"its type is {facts.type}, and values are sent as {cast}: declare the type that it has"


def _scale(numeric: str) -> str:
    """The scale of a numeric type: "2" for numeric(10,2), "any" for numeric."""
    return numeric.partition("(")[2].rstrip(")").partition(",")[2] or "any"


def is_read_raw(type_: Any, dialect: Dialect) -> bool:
    """Whether a value that the server has made, read as this type, is what the driver has read."""
    if isinstance(type_, Uuid):
        return True  # every spelling makes the same key
    try:
        return result_processor_of(type_, dialect) is None
    except SQLAlchemyError:  # it depends on the server's description of the column
        return False


def processor_of(type_: Any, dialect: Dialect) -> Callable[[Any], Any] | None:
    """The function that makes the sent value; it raises where a cast would change that value.

    Drivers of PostgreSQL ask for a cast to the declared type: that rounds 1.5 for an Integer, cuts
    the time off for a Date, and takes wall time for an instant by the session's time zone. Where
    the live column has another type, the result is stored.
    """
    processor: Callable[[Any], Any] | None = type_.dialect_impl(dialect).bind_processor(dialect)
    affinity = affinity_of(type_)
    if affinity not in (Integer, Date, DateTime) or not traits_of(dialect).casts_values:
        return processor
    is_aware = bool(getattr(type_, "timezone", False))

    def checked(value: Any) -> Any:
        sent = value if processor is None else processor(value)
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


def _canon_of(declared: object, facts: ColumnFacts) -> Canon:
    if _is_uuid_text(declared, facts):
        return Canon("uuid/1", canonical.uuid)
    assert facts.canon is not None
    return facts.canon


def _is_uuid_text(declared: object, facts: ColumnFacts) -> bool:
    """Whether SQLAlchemy keeps UUIDs as text in this column: then every spelling is parsed."""
    return isinstance(declared, Uuid) and is_text(facts)


def is_text(facts: ColumnFacts) -> bool:
    """Whether this is a column of characters, which may be declared as UUIDs."""
    return facts.type.lower().startswith(("char", "varchar", "character"))
