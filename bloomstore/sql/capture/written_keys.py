"""Reads the keys that one execution writes: from its parameters, or from what the server returned.

In: a guard, the places of its values (write_plan.py) and SQLAlchemy's execution context. Out:
keys, or
Unclear when one of them cannot be known.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Iterator
from typing import Any

from sqlalchemy.engine.interfaces import ExecuteStyle

from bloomstore.keys import Key
from bloomstore.sql.capture.write_plan import Binds, Nowhere, Server, Source
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.databases.tokens import statements_of
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.key_maker import Made
from bloomstore.sql.sqlalchemy_private import bind_processors_of


def keys_of(
    guard: ActiveGuard, sources: tuple[Source, ...], context: Any
) -> collections.abc.Iterable[Key]:
    """Every key of one execution. Raises Unclear when one of them cannot be known."""
    sets = context.compiled_parameters
    first = sources[0]
    if len(sources) > 1 or type(first) is not Binds or len(first.names) != 1 or not first.names[0]:
        return _keys_of_rows(guard, sources, context)
    # The usual case: one column, one value in each set of parameters.
    name, type_ = first.names[0], first.type
    if len(sets) == 1 and guard.stores(value := sets[0][name], type_):
        return (value,)
    keys = (guard.key_to_store([each[name]], [type_]) for each in sets)
    return [key for key in keys if key is not None]


def _keys_of_rows(guard: ActiveGuard, sources: tuple[Source, ...], context: Any) -> Iterator[Key]:
    sets = context.compiled_parameters
    rows = len(sets)
    for source in sources:
        if isinstance(source, Nowhere):
            raise Unclear(source.reason)
        if isinstance(source, Binds) and len(source.names) > 1:  # VALUES (...), (...)
            rows = len(source.names)
    in_one_go = rows > len(sets)
    made = context.inserted_primary_key_rows if _has(sources, Server) else ()
    defaults = context.returned_default_rows or ()
    types = [
        Made(source.column.type) if isinstance(source, Server) else getattr(source, "type", None)
        for source in sources
    ]
    for place in range(rows):
        values: list[object] = []
        for source in sources:
            if isinstance(source, Server):
                values.append(_from_server(source, place, made, defaults))
            elif isinstance(source, Binds):
                values.append(_from_parameters(source, place, sets, in_one_go))
        key = guard.key_to_store(values, types)
        if key is not None:
            yield key


def _from_parameters(source: Binds, place: int, sets: Any, in_one_go: bool) -> object:
    if not source.names:
        return None
    name = source.names[place if len(source.names) > 1 else 0]
    return sets[0 if in_one_go else place][name] if name else None


def _from_server(source: Server, place: int, made: Any, defaults: Any) -> object:
    value = None
    if source.place is not None and place < len(made) and made[place] is not None:
        value = made[place][source.place]
    elif place < len(defaults) and source.column in defaults[place]._mapping:
        value = defaults[place]._mapping[source.column]
        if value is None:
            return None
    if value is None:
        raise Unclear("a server-made key that did not come back")
    return value


def _has(sources: tuple[Source, ...], kind: type) -> bool:
    return any(isinstance(source, kind) for source in sources)


def is_another(context: Any, statement: str) -> bool:
    """Whether what is sent is more than SQLAlchemy has made and comments."""
    if statement is context.statement:
        return False
    before, found, behind = statement.partition(context.statement)
    if not found:
        return True
    dialect = context.dialect.name
    first = statements_of(f"{before} SELECT", dialect)  # what stands in an open comment is missing
    return (
        first is None
        or [each.texts for each in first] != [["SELECT"]]
        or (statements_of(behind, dialect) != [])
    )


def is_replaced(context: Any, statement: str, sent: Any) -> bool:
    """Whether a statement is sent with other text, or other values, than SQLAlchemy has made.

    Comments may be added. Of many rows in one statement only the values are compared, wherever they
    stand.
    """
    made = [_values(context, parameters) for parameters in context.compiled_parameters]
    if context.execute_style is ExecuteStyle.INSERTMANYVALUES:
        known = {value for row in made for value in row.values() if _is_hashable(value)}
        given = sent.values() if isinstance(sent, dict) else sent
        found = statements_of(statement, context.dialect.name)
        return (
            found is None
            or len(found) != 1
            or any(_is_hashable(value) and value not in known for value in given)
        )
    if is_another(context, statement):
        return True
    names = context.compiled.escaped_bind_names or {}
    rows = sent if context.execute_style is ExecuteStyle.EXECUTEMANY else [sent]
    for row, values in zip(rows, made, strict=True):
        if isinstance(row, dict):
            expected: Any = {names.get(name, name): value for name, value in values.items()}
        else:
            row, expected = list(row), [values[name] for name in context.compiled.positiontup]
        if _differ(row, expected):
            return True
    return False


def _differ(row: Any, expected: Any) -> bool:
    try:
        return bool(row != expected)
    except Exception:  # noqa: BLE001  arrays have no truth, and others compare as they like
        return True


def _values(context: Any, parameters: Any) -> dict[str, Any]:
    processors = bind_processors_of(context.compiled)
    return {
        name: processors[name](value) if name in processors else value
        for name, value in parameters.items()
    }


def _is_hashable(value: object) -> bool:
    return getattr(type(value), "__hash__", None) is not None
