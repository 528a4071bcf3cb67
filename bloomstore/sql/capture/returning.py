"""Adds RETURNING to bulk INSERTs of the ORM whose keys the server makes.

Without RETURNING the keys never reach the client, and every bulk INSERT would fence the guards of
its table. Not here: reading the keys that come back (written_keys.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Table, inspect
from sqlalchemy.orm import Session

from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import has_returning


def with_returning(
    session: Session,
    statement: Any,
    rows: list[Any],
    guards_of: Callable[[Table], list[ActiveGuard]],
) -> Any:
    """The INSERT with RETURNING for the guarded keys the server makes; None: send it as it is."""
    entity = statement.entity_description.get("entity")
    mapper = None if entity is None else inspect(entity, raiseerr=False)
    if mapper is None or has_returning(statement) or statement.select is not None or not rows:
        return None
    if len(mapper.tables) > 1:
        return None
    wanted = [
        column
        for column in mapper.primary_key
        if mapper.get_property_by_column(column).key not in rows[0]
        and column.default is None
        and any(
            column.name in [each.name for each in guard.declared.columns]
            for guard in guards_of(column.table)
        )
    ]
    if not wanted:
        return None
    dialect = session.get_bind(mapper).dialect
    if dialect.server_version_info is None:  # it learns at its first connection what it can do
        session.connection({"mapper": mapper})
    if not dialect.insert_executemany_returning:
        return None
    return statement.returning(*wanted)
