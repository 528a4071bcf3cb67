"""Connections that see every row of one moment, for builds and rebuilds to read.

A build that sees fewer rows than other readers makes a filter whose "no" is wrong, and counting the
rows it sees would not reveal that. So
  1. the server is the one where rows are committed: a replica may lack the newest rows;
  2. the settings of the connection, such as its search path, are unchanged, and the table is the
     one that other connections mean: a temporary table may hide it;
  3. rows that a policy hides from this role raise an error instead of being left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from bloomstore.sql.ask.session_facts import shares_connections
from bloomstore.sql.databases import database_of
from bloomstore.sql.guards.connection_settings import may_have_changed

_MOST_CHANGED = 20  # connections; a listener may change each new one


class NotWhole(Exception):
    """The connection may not show every row; the text says why and what to do."""


@contextmanager
def snapshot(
    engine: Engine, why_another: Callable[[Any], str] = lambda raw: ""
) -> Iterator[Connection]:
    """A connection that sees all rows of one moment. Raises NotWhole, and what the body raises.

    `why_another` may compare on the driver's connection what the name of a table means there.
    """
    database = database_of(engine.dialect)
    with _untouched(engine) as connection:
        if (level := database.TRAITS.snapshot_level) is not None:
            connection = connection.execution_options(isolation_level=level)
        if why := database.why_behind(connection):
            raise NotWhole(why)
        if why := why_another(connection.connection.dbapi_connection):
            raise NotWhole(why)
        connection.rollback()
        database.begin_snapshot(connection)
        try:
            yield connection
        except (SQLAlchemyError, engine.dialect.loaded_dbapi.Error) as error:
            if why := database.why_hidden(error):
                raise NotWhole(f"{_first_line(error)}; {why}") from error
            raise


def _untouched(engine: Engine) -> Connection:
    """A connection with unchanged settings; changed ones are replaced by new ones."""
    for _ in range(_MOST_CHANGED):
        connection = engine.connect()
        if not may_have_changed(connection):
            return connection
        if not shares_connections(engine):  # a shared connection may be the whole database
            connection.invalidate()
        connection.close()
    raise NotWhole(
        "the settings of every connection of the pool are changed by a listener or by text"
    )


@contextmanager
def outside(engine: Engine) -> Iterator[Connection]:
    """A connection outside any transaction, for waiting."""
    with engine.connect() as connection:
        yield database_of(engine.dialect).outside(connection)


def require_source(engine: Engine) -> None:
    """Raises NotWhole if this server may lack rows."""
    with engine.connect() as connection:
        if why := database_of(engine.dialect).why_behind(connection):
            raise NotWhole(why)


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
