"""Reads the keys that one execution writes: from its parameters, or from what the server returned.

In: a guard, the sources of its values (write_plan.py) and SQLAlchemy's execution context. Out:
keys, or Unclear when one of them cannot be known.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Iterator
from typing import Any

from bloomstore.keys import Key
from bloomstore.sql.capture.write_plan import Binds, Nowhere, Server, Source
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.key_maker import Made


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
    for row in range(rows):
        values: list[object] = []
        for source in sources:
            if isinstance(source, Server):
                values.append(_from_server(source, row, made, defaults))
            elif isinstance(source, Binds):
                values.append(_from_parameters(source, row, sets, in_one_go))
        key = guard.key_to_store(values, types)
        if key is not None:
            yield key


def _from_parameters(source: Binds, row: int, sets: Any, in_one_go: bool) -> object:
    if not source.names:
        return None
    name = source.names[row if len(source.names) > 1 else 0]
    return sets[0 if in_one_go else row][name] if name else None


def _from_server(source: Server, row: int, made: Any, defaults: Any) -> object:
    value = None
    if source.index is not None and row < len(made) and made[row] is not None:
        value = made[row][source.index]
    elif row < len(defaults) and source.column in defaults[row]._mapping:
        value = defaults[row]._mapping[source.column]
        if value is None:
            return None
    if value is None:
        raise Unclear("a server-made key that did not come back")
    return value


def _has(sources: tuple[Source, ...], kind: type) -> bool:
    return any(isinstance(source, kind) for source in sources)
