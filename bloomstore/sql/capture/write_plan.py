"""Where the keys of a write are: a plan per compiled statement, made once.

In: a compiled INSERT, UPDATE or DELETE and the guards of its table. Out: for each guard the sources
of its columns' values: bind parameters by name, NULL, the server, or nowhere.

A plan never holds a value: compiled statements are cached and serve many values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import Column, Table
from sqlalchemy.sql import Delete, Insert, TableClause, Update, visitors
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import BindParameter, ClauseElement, ColumnClause, Null

from bloomstore.sql.databases import traits_of
from bloomstore.sql.databases.sql_text import Effect, Text
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import (
    conflict_clause_of,
    has_bind_expression,
    has_rows,
    inherits_own_rendering,
    is_column_value,
    prefixes_of,
    rows_of,
    values_of,
)

GuardsOf: TypeAlias = Callable[[TableClause], list[ActiveGuard]]


@dataclass(frozen=True, slots=True)
class Binds:
    """The value of row i is the parameter names[i], or names[0] of the i-th parameter set."""

    names: tuple[str, ...]
    type: Any = None  # of the bind: it decides which value is sent


@dataclass(frozen=True, slots=True)
class Server:
    """The server makes the value: of the primary key at this index, or a default it may return."""

    column: Column[Any]
    index: int | None


@dataclass(frozen=True, slots=True)
class Nowhere:
    """The value cannot be known, for this reason: the guard is fenced."""

    reason: str


NULL = Binds(())
Source: TypeAlias = Binds | Server | Nowhere


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The writes of one compiled statement to guarded tables."""

    written: tuple[tuple[ActiveGuard, tuple[Source, ...]], ...] = ()
    deleted_from: tuple[ActiveGuard, ...] = ()
    effects: Effect = Effect.NOTHING  # of the statement on the connection's settings
    # Parts of `written`: all values are sent, or some come from the server.
    sent: tuple[tuple[ActiveGuard, tuple[Source, ...]], ...] = field(init=False)
    made: tuple[tuple[ActiveGuard, tuple[Source, ...]], ...] = field(init=False)

    def __post_init__(self) -> None:
        is_made = [
            any(isinstance(source, Server) for source in sources) for _, sources in self.written
        ]
        pairs = list(zip(self.written, is_made, strict=True))
        object.__setattr__(self, "sent", tuple(each for each, made in pairs if not made))
        object.__setattr__(self, "made", tuple(each for each, made in pairs if made))


_ROWIDS = ("rowid", "oid", "_rowid_")
NOTHING = WritePlan()  # of statements that write, but to no guarded table
READS = WritePlan()  # of statements that never write
# Words that may stand behind the first word of a write. IGNORE has its effect on keys below.
_PREFIXES = frozenset("OR REPLACE IGNORE ABORT FAIL ROLLBACK LOW_PRIORITY HIGH_PRIORITY".split())


def plan_writes(compiled: SQLCompiler, guards_of: GuardsOf) -> WritePlan | None:
    """The plan of one compiled statement; None if it may do more than its structure says.

    Embedded text, prefixes, suffixes, hints and functions of @compiles may do anything, and
    options may bring a common table expression that writes. So the compiled text must be one
    statement, and have as many parts that write as the structure has.
    """
    statement = compiled.statement
    written: list[tuple[ActiveGuard, tuple[Source, ...]]] = []
    deleted: list[ActiveGuard] = []
    assert statement is not None
    text = Text(compiled.string, compiled.dialect.name)
    elements = [
        element
        for element in visitors.iterate(statement)
        if isinstance(element, (Insert, Update, Delete))
    ]
    if not elements:
        is_whole = not compiled.literal_execute_params  # their values are rendered later
        return READS if text.is_harmless and is_whole else None
    effects = text.effects & ~Effect.WRITES
    if not text.is_one or text.verbs != len(elements) or effects & ~Effect.SETS:
        return None
    if not all(map(_is_as_structured, elements)):
        return None
    for element in elements:
        for table, guard in _guards(element, guards_of):
            if isinstance(element, Delete):
                deleted.append(guard)
            elif element is not statement:
                written.append((guard, (Nowhere("written by a common table expression"),)))
            elif not isinstance(table, Table):
                if isinstance(element, Insert) or _names_set(element, compiled) & _names(guard):
                    written.append((guard, (Nowhere("written through sqlalchemy.table()"),)))
            elif _sets_rowid(element, compiled, table, guard):
                written.append((guard, (Nowhere("SQLite's rowid is set under another name"),)))
            elif isinstance(element, Insert):
                sources = tuple(
                    _inserted(element, compiled, column) for column in _columns(table, guard)
                )
                written.append((guard, _with_conflict(element, table, guard, sources)))
            else:
                sources = tuple(
                    source
                    for column in _columns(table, guard)
                    if (source := _updated(element, compiled, column)) is not None
                )
                if sources and len(sources) < len(guard.declared.columns):
                    sources = (Nowhere("a part of a composite key was updated"),)
                if sources:
                    written.append((guard, sources))
    if not (written or deleted or effects):
        return NOTHING
    return WritePlan(tuple(written), tuple(deleted), effects)


def _is_as_structured(element: Insert | Update | Delete) -> bool:
    """Whether the SQL of a write is SQLAlchemy's own, and its prefixes say nothing unknown."""
    return not inherits_own_rendering(type(element)) and _PREFIXES.issuperset(prefixes_of(element))


def _guards(
    element: Insert | Update | Delete, guards_of: GuardsOf
) -> Iterator[tuple[TableClause, ActiveGuard]]:
    """The guards of every table that the statement may change."""
    tables: list[Any] = [element.table]
    if isinstance(element, Update):  # UPDATE of several tables, as MySQL has it
        columns = [key for key in values_of(element) if isinstance(key, ColumnClause)]
        tables += [column.table for column in columns if column.table is not None]
    seen: set[TableClause] = set()
    for table in tables:
        for each in visitors.iterate(table):
            if isinstance(each, TableClause) and each not in seen:
                seen.add(each)
                for guard in guards_of(each):
                    yield each, guard


def _names(guard: ActiveGuard) -> set[str]:
    return {column.name.lower() for column in guard.declared.columns}


def _names_set(statement: Update, compiled: SQLCompiler) -> set[str]:
    """The names of the columns that an UPDATE sets, or may set."""
    keys = [*values_of(statement), *(compiled.column_keys or ())]
    return {str(getattr(key, "name", key)).lower() for key in keys}


def _sets_rowid(
    element: Insert | Update, compiled: SQLCompiler, table: Table, guard: ActiveGuard
) -> bool:
    """Whether the statement may set SQLite's rowid, which is the primary key by another name."""
    names = set(_ROWIDS) - guard.live_names  # a column of such a name is only that column
    if not names or not traits_of(compiled.dialect).has_rowid:
        return False
    keys: list[Any] = [*(compiled.column_keys or ()), *values_of(element)]
    keys += [key for row in rows_of(element) for key in row]
    clause: Any = conflict_clause_of(element) if isinstance(element, Insert) else None
    keys += [key for key, _ in _pairs(clause)]
    by_key = {column.key: column.name for column in table.columns}
    return any(str(getattr(key, "name", by_key.get(key, key))).lower() in names for key in keys)


def _pairs(clause: Any) -> list[tuple[Any, Any]]:
    """Columns and values that ON CONFLICT DO UPDATE or ON DUPLICATE KEY UPDATE sets."""
    changes = getattr(clause, "update_values_to_set", None) or getattr(clause, "update", None)
    return list(changes.items() if isinstance(changes, dict) else changes or ())


def _columns(table: Table, guard: ActiveGuard) -> list[Column[Any] | None]:
    """The guarded columns in this Table object, which may be another one than declared."""
    by_name = {column.name.lower(): column for column in table.columns}
    return [by_name.get(column.name.lower()) for column in guard.declared.columns]


def _inserted(statement: Insert, compiled: SQLCompiler, column: Column[Any] | None) -> Source:
    if column is None:
        return Nowhere("inserted through a table that does not name the column")
    if statement.select is not None:
        return Nowhere("INSERT ... SELECT")
    if has_rows(statement):
        return _inserted_in_one_go(statement, compiled, column)
    value = _given(values_of(statement), column)
    if value is not None:
        return _bound(value, compiled)
    if _is_parameter(column, compiled):
        return _sent_as(column.key, compiled)
    if _names_loosely(values_of(statement), column):
        return Nowhere("the statement names the column by another object")
    if column.primary_key:
        return Server(column, list(column.table.primary_key.columns).index(column))
    if column.server_default is not None or column.default is not None:
        return Server(column, None)
    return NULL


def _inserted_in_one_go(statement: Insert, compiled: SQLCompiler, column: Column[Any]) -> Source:
    """VALUES (...), (...): the parameters are numbered."""
    names: list[str] = []
    for row in rows_of(statement):
        value = _given(row, column) if isinstance(row, dict) else None
        name = f"{column.key}_m{len(names)}"
        if isinstance(value, Null):
            names.append("")
            continue
        is_plain = value is None or not isinstance(value, ClauseElement)
        if name not in compiled.binds or not is_plain:
            return Nowhere("several rows of VALUES with expressions or server defaults")
        names.append(name)
    return Binds(tuple(names), column.type)


def _updated(statement: Update, compiled: SQLCompiler, column: Column[Any] | None) -> Source | None:
    """None if the column is not updated."""
    if column is None:
        return Nowhere("updated through a table that does not name the column")
    if _ignores(statement):
        return Nowhere("UPDATE IGNORE may clip values")
    value = _given(values_of(statement), column)
    if value is not None:
        return _bound(value, compiled)
    if _is_parameter(column, compiled):
        return _sent_as(column.key, compiled)
    if _names_loosely(values_of(statement), column):
        return Nowhere("the statement names the column by another object")
    if column.key in (compiled.column_keys or ()):
        return Nowhere("a renamed parameter")
    if column.server_onupdate is not None or column.onupdate is not None:
        return Nowhere("an ON UPDATE default")
    return None


def _given(values: Any, column: Column[Any]) -> Any:
    """The value for this column in a mapping by column or by key."""
    for key, value in values.items():
        if key is column or key == column.key:
            return value
        if isinstance(key, Column) and key.name == column.name and key.table is column.table:
            return value
    return None


def _names_loosely(values: Any, column: Column[Any]) -> bool:
    """Whether an alias's column or a bare column() of this name is set."""
    return any(str(getattr(key, "name", key)).lower() == column.name.lower() for key in values)


def _bound(value: Any, compiled: SQLCompiler) -> Source:
    if isinstance(value, Null):
        return NULL
    if isinstance(value, BindParameter):  # compiled as a copy of the same key
        for bind, name in compiled.bind_names.items():
            if bind.key == value.key:
                return _sent_as(name, compiled, bind.type)
    return Nowhere("an SQL expression")


def _sent_as(name: str, compiled: SQLCompiler, type_: Any = None) -> Source:
    """The parameter of this name, with the type that processes its value."""
    type_ = compiled.binds[name].type if type_ is None else type_
    if has_bind_expression(type_):
        return Nowhere("an SQL expression around the value")
    return Binds((name,), type_)


def _is_parameter(column: Column[Any], compiled: SQLCompiler) -> bool:
    """Whether the value comes with the execution's parameters, or from a default made here."""
    bind = compiled.binds.get(column.key)
    return bind is not None and is_column_value(bind)


def _with_conflict(
    statement: Insert, table: Table, guard: ActiveGuard, sources: tuple[Source, ...]
) -> tuple[Source, ...]:
    """The sources, if ON CONFLICT or ON DUPLICATE KEY UPDATE cannot set another key instead."""
    if _ignores(statement):
        return (Nowhere("INSERT IGNORE may clip values"),)
    clause = conflict_clause_of(statement)
    if clause is None:
        return sources
    guarded = {column.name.lower() for column in guard.declared.columns}
    by_key = {column.key: column.name for column in table.columns}
    for key, value in _pairs(clause):
        name = str(getattr(key, "name", by_key.get(key, key))).lower()
        if name in guarded and not (
            isinstance(value, Column)
            and value.table is not table
            and value.name.lower() == name
            and len(guarded) == 1
        ):
            return (Nowhere("the key is changed on conflict"),)
    return sources


def _ignores(statement: Insert | Update) -> bool:
    """Whether a prefix says IGNORE, as MySQL has it."""
    return "IGNORE" in prefixes_of(statement)
