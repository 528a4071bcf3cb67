"""The rows of a statement in parts, as the driver has them and as fast as it gives them.

SQLAlchemy's own rows would take two thirds of the time, so they are fetched from the driver: by a
server-side cursor, or, where psycopg can, from one running statement. A cursor and its server wait
for each other in turn; the rows of a running statement arrive while earlier ones are processed:
3.7 to 4.5 s instead of 5.8 to 8.4 for 10^7 texts (tools/bench_rebuild.py).
"""

from __future__ import annotations

import collections.abc as abc
import importlib
from contextlib import closing
from itertools import islice
from typing import Any

from sqlalchemy import Column, ColumnElement, func, select, type_coerce
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.sql import Executable
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.types import NullType

from bloomstore.errors import Incomplete
from bloomstore.sql.databases import database_of
from bloomstore.sql.databases.drivers import plain_text

# psycopg makes rows of so many at a time: with ten times as many they no longer fit the buffer of
# the connection, and both sides wait again.
_CHUNK_ROWS = 1000


def as_stored(column: ColumnElement[Any], dialect: Dialect) -> ColumnElement[Any]:
    """The column in a SELECT whose rows have the stored values, without processing by any type.

    SQLAlchemy takes the type of a result from the column inside a bare unary expression, and
    from the expression itself inside type_coerce.
    """
    return type_coerce(database_of(dialect).as_stored(column), NullType())


def count_rows(
    connection: Connection,
    columns: abc.Sequence[Column[Any]],
    wanted: abc.Sequence[ColumnElement[bool]] = (),
) -> int:
    """The rows that have a key, as the database counts them: no column of it is NULL."""
    present = [column.is_not(None) for column in columns]
    counting = select(func.count()).select_from(columns[0].table).where(*present, *wanted)
    return int(connection.execute(counting).scalar_one())


def whole_rows(
    connection: Connection,
    columns: abc.Sequence[Column[Any]],
    size: int,
    *,
    wanted: abc.Sequence[ColumnElement[bool]] = (),
    order_by: abc.Sequence[ColumnElement[Any]] = (),
) -> abc.Generator[list[Any]]:
    """The columns of every row that has a key, in parts; as they are stored.

    Raises Incomplete at the end if the database counts another number of them.
    """
    present = [column.is_not(None) for column in columns]
    stored = [as_stored(column, connection.dialect) for column in columns]
    statement = select(*stored).where(*present, *wanted).order_by(*order_by)
    count = count_rows(connection, columns, wanted)
    yield from counted(parts_of(connection, statement, size), count)


def counted(parts: abc.Iterable[list[Any]], count: int) -> abc.Generator[list[Any]]:
    """The parts; raises Incomplete at the end if they have another number of rows."""
    rows = 0
    for part in parts:
        rows += len(part)
        yield part
    if rows != count:
        raise Incomplete(f"read {rows} rows of {count}")


def parts_of(connection: Connection, statement: Executable, size: int) -> abc.Generator[list[Any]]:
    """All rows, `size` at a time: values if there is one column, tuples if several.

    A caller that stops early may have to roll the transaction back: the statement is cancelled.
    """
    if _can_stream(connection):
        return _streamed(connection, statement, size)
    return _fetched(connection, statement, size)


def _can_stream(connection: Connection) -> bool:
    """Whether this is psycopg 3.2 or later with libpq 17, not async, without translated schemas."""
    if connection.dialect.driver != "psycopg" or connection.dialect.is_async:
        return False
    if "schema_translate_map" in connection.get_execution_options():
        return False
    capabilities = getattr(connection.dialect.loaded_dbapi, "capabilities", None)
    has = getattr(capabilities, "has_stream_chunked", None)
    return has is not None and has()


def _streamed(connection: Connection, statement: Executable, size: int) -> abc.Generator[list[Any]]:
    assert isinstance(statement, ClauseElement)
    compiled = statement.compile(dialect=connection.dialect)
    if not connection.in_transaction():
        connection.begin()  # the driver begins one: SQLAlchemy must know, or it does not roll back
    raw: Any = connection.connection.dbapi_connection
    with (
        raw.cursor(row_factory=_row_factory) as cursor,
        closing(cursor.stream(str(compiled), compiled.params, size=_CHUNK_ROWS)) as rows,
    ):
        while part := list(islice(rows, size)):
            yield part


def _row_factory(cursor: Any) -> Any:
    """Unpacks single values from their tuples, which the garbage collector would visit too."""
    rows: Any = importlib.import_module("psycopg.rows")
    is_single = cursor.description is not None and len(cursor.description) == 1
    return (rows.scalar_row if is_single else rows.tuple_row)(cursor)


def _fetched(connection: Connection, statement: Executable, size: int) -> abc.Generator[list[Any]]:
    with plain_text(connection.connection.dbapi_connection, connection.dialect):
        yield from _fetched_as_is(connection, statement, size)


def _fetched_as_is(
    connection: Connection, statement: Executable, size: int
) -> abc.Generator[list[Any]]:
    result = connection.execution_options(stream_results=True).execute(statement)
    cursor: Any = result.cursor
    is_single = len(cursor.description) == 1
    try:
        # SQLAlchemy has fetched one row already; if it were more, the count would differ.
        first = [row[0] if is_single else tuple(row) for row in result.fetchmany(1)]
        more = bool(first)
        while more:
            rows = cursor.fetchmany(size)
            more = bool(rows)
            part = [value for (value,) in rows] if is_single else list(map(tuple, rows))
            if first or part:
                yield first + part
                first = []
    finally:
        result.close()
