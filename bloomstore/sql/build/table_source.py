"""Tables and SELECTs as sources of keys, read raw from one snapshot of the database.

Columns are read in their own order, by an index that begins with them; a position is the value that
was read last, and an interrupted rebuild continues from it in a new snapshot. That loses
no key: a row that was there all the time has its place in that order whatever else of it changes,
and a row that got its value later was written by a writer that adds to the coming chain. (In the
order of the primary key this would not hold: an update of that key alone can move a row from what
is not read yet to what is, and no writer has a reason to add its guarded value again.) Ranges of an
integer column can be read side by side, each in a snapshot of its own: key_ranges.py says why.

Values are what the driver reads, without the result processing of any type (fetch.py). Rows with a
NULL have no key.
"""

from __future__ import annotations

import collections.abc as abc
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Enum,
    Integer,
    MetaData,
    String,
    Table,
    Uuid,
    and_,
    func,
    inspect,
    or_,
    select,
    text,
    type_coerce,
)
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError
from sqlalchemy.pool import SingletonThreadPool, StaticPool
from sqlalchemy.types import NullType

from bloomstore.errors import DatabaseError, Incomplete, SourceError
from bloomstore.keys import Key
from bloomstore.rebuild.read_ahead import together
from bloomstore.rebuild.source import BATCH_ROWS, Batch, Position, Source
from bloomstore.sql.build.fetch import count_rows, counted, parts_of, whole_rows
from bloomstore.sql.build.key_ranges import Range, bound, divided
from bloomstore.sql.build.snapshot import NotWhole, outside, require_source, snapshot
from bloomstore.sql.databases import KINDS, database_of, is_known
from bloomstore.sql.databases.contract import StillOpen
from bloomstore.sql.schema.connect import engine_of
from bloomstore.sql.schema.incarnation import read_identity


class DatabaseSource(Source):
    """The part that tables and SELECTs share: one database, its snapshots, waiting."""

    def __init__(self, engine: Engine) -> None:
        if not is_known(engine.dialect):
            raise SourceError(
                f"no rebuild knows how to wait for writers of {engine.dialect.name}: {KINDS}"
            )
        self.engine = engine
        self._database = database_of(engine.dialect)
        # Each thread would have a database of its own in memory, and an async engine has one only.
        is_in_memory = isinstance(engine.pool, SingletonThreadPool)
        self.reads_ahead = not (is_in_memory or engine.dialect.is_async)

    def identity(self) -> dict[str, Any]:
        """The database and its incarnation."""
        with self._errors(), self.engine.connect() as connection:
            found = read_identity(self._database, connection.connection.dbapi_connection)
        return {"database": self._shown, **found}

    def begin(self) -> None:
        """Refuses a replica before anything changes."""
        with self._errors():
            require_source(self.engine)

    @property
    def _shown(self) -> str:
        return self.engine.url.render_as_string(hide_password=True)

    def prepare(self, patience: float) -> None:
        """Waits for open transactions: they may have added keys before the coming chain began."""
        self._wait(partial(self._wait_outside, self._database.wait_for_writers), patience)

    def settle(self, patience: float) -> None:
        """Waits for older snapshots, which still see rows deleted before this one was taken."""
        self._wait(partial(self._wait_outside, self._database.wait_for_readers), patience)

    def _wait_outside(self, wait: abc.Callable[[Connection, float], None], patience: float) -> None:
        with outside(self.engine) as connection:
            wait(connection, patience)

    def _wait(self, wait: abc.Callable[[float], None], patience: float) -> None:
        try:
            with self._errors():
                wait(patience)
        except StillOpen as error:
            raise SourceError(
                f"{self._shown}: transactions are still open after {patience:g} s: {error};"
                " end them or allow more patience"
            ) from None

    @contextmanager
    def _snapshot(self) -> abc.Iterator[Connection]:
        with self._errors(), snapshot(self.engine, self._why_another) as connection:
            yield connection

    def _why_another(self, raw: Any) -> str:
        """Why the driver's connection would read another table than was seen before."""
        return ""

    @contextmanager
    def _errors(self) -> abc.Iterator[None]:
        """Turns errors of the database and of the driver into SourceError."""
        try:
            yield
        except NotWhole as why:
            raise SourceError(f"{self._shown}: {why}") from None
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            raise SourceError(f"{self._shown}: {str(error).splitlines()[0]}") from error

    @contextmanager
    def _named(self) -> abc.Iterator[None]:
        """Adds the name of the source to errors about missing rows."""
        try:
            yield
        except Incomplete as why:
            raise Incomplete(f"{self.describe()}: {why}") from None


class SelectSource(DatabaseSource):
    """The rows of a SELECT; several columns make tuples."""

    why_not_resumable = "a SELECT has no position to continue from"

    def __init__(self, engine: Engine, statement: str) -> None:
        super().__init__(engine)
        self._statement = statement.strip().removesuffix(";")

    def identity(self) -> dict[str, Any]:
        """The database and the statement."""
        return super().identity() | {"select": self._statement}

    def describe(self) -> str:
        """The statement."""
        return f"{self._shown}: {self._statement}"

    def count(self) -> int:
        """The number of rows, counted by the database."""
        with self._snapshot() as connection:
            return self._count(connection)

    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """All rows; those with a NULL have no key."""
        with self._snapshot() as connection:
            count = self._count(connection)
            parts = parts_of(connection, text(self._statement.replace(":", "\\:")), BATCH_ROWS)
            with self._named():
                for part in counted(parts, count):
                    yield Batch(list(filter(_is_key, part)), len(part), None)

    def _count(self, connection: Connection) -> int:
        counting = f"SELECT count(*) FROM ({self._statement}) AS bloomstore_rows"  # noqa: S608
        return int(connection.execute(text(counting.replace(":", "\\:"))).scalar_one())


class TableSource(DatabaseSource):
    """Columns of a table; several make tuples.

    `parallel`: this many connections read ranges of the column, which must be a single one of
    integers, with an index.
    """

    def __init__(
        self, engine: Engine, table: Table, columns: abc.Sequence[str], *, parallel: int = 1
    ) -> None:
        super().__init__(engine)
        missing = [name for name in columns if name not in table.columns]
        if missing or not columns:
            raise SourceError(
                f"{table.fullname} has no column {missing[0]!r}, it has"
                f" {', '.join(table.columns.keys())}"
                if missing
                else f"{table.fullname}: name the column of the keys"
            )
        self._table = table
        self._columns = [table.columns[name] for name in columns]
        self._raw = [type_coerce(column, NullType()) for column in self._columns]
        self.why_not_resumable = self._why_not_resumable()
        self._parallel = parallel
        if parallel != 1:
            if why_not := self._why_not_parallel():
                raise SourceError(f"{self.describe()} cannot be read in parallel: {why_not}")
            self.reads_ahead = False  # each range reads ahead by itself

    def identity(self) -> dict[str, Any]:
        """The database, the columns and how they are ordered."""
        version = self.engine.dialect.server_version_info or ()
        with self._errors(), self.engine.connect() as connection:
            mark = self._database.mark(connection, self._table.schema, self._table.name)
        return super().identity() | {
            "table": self._table.fullname,
            "mark": mark,
            "columns": [column.name for column in self._columns],
            "types": [
                f"{column.type!r} {getattr(column.type, 'collation', None) or ''}".strip()
                for column in self._columns
            ],
            "server": ".".join(map(str, version)),
            "parallel": self._parallel,
        }

    def proof(self) -> dict[str, Any]:
        """Facts outside the database: nothing inside tells a written SQLite file from another."""
        return self._database.proof(self.engine.url)

    def describe(self) -> str:
        """Database, table and columns."""
        names = ", ".join(column.name for column in self._columns)
        return f"{self._shown}: {self._table.fullname} ({names})"

    def count(self) -> int:
        """The number of rows, counted by the database."""
        with self._snapshot() as connection:
            return count_rows(connection, self._columns)

    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """All rows from this value on; rows with the same value come again."""
        if self._parallel != 1:
            yield from self._batches_of_ranges(position)
            return
        wanted = [] if position is None else [_from(self._raw, position)]
        for part in self._rows(wanted):
            position = _position(part[-1]) or position
            yield Batch(self._keys(part), len(part), position)

    def _batches_of_ranges(self, position: Position | None) -> abc.Generator[Batch]:
        """The position has all ranges, each with the value that was read last."""
        ranges = self._ranges() if position is None else [Range(*each) for each in position]
        rows = [self._rows(each.condition(self._raw[0])) for each in ranges]
        with closing(together(rows)) as parts:
            for place, part in parts:
                if last := _position(part[-1]):
                    ranges[place] = ranges[place]._replace(last=last[0])
                yield Batch(self._keys(part), len(part), list(map(list, ranges)))

    def _ranges(self) -> list[Range]:
        asked = select(func.min(self._raw[0]), func.max(self._raw[0]))
        with self._snapshot() as connection:
            least, most = tuple[Any, Any](connection.execute(asked).one())
        if least is None:
            return [Range(None, None)]
        if type(least) is not int or type(most) is not int:
            raise SourceError(
                f"{self.describe()} cannot be read in parallel: values from {least!r} to {most!r},"
                " expected integers"
            )
        return divided(least, most, self._parallel)

    def _rows(self, wanted: list[ColumnElement[bool]]) -> abc.Generator[list[Any]]:
        """Parts of the rows for which this holds, of one snapshot and proved by its count."""
        order = () if self.why_not_resumable else self._raw
        with self._snapshot() as connection, self._named():
            yield from whole_rows(
                connection, self._columns, BATCH_ROWS, wanted=wanted, order_by=order
            )

    def _keys(self, part: list[Any]) -> list[Key]:
        """The keys of rows, as `parts_of` gives them."""
        return part

    def _why_not_parallel(self) -> str:
        if self._parallel < 1:
            return f"expected 1 connection or more, got {self._parallel}"
        if not self.reads_ahead or isinstance(self.engine.pool, StaticPool):
            return "its engine has no connection for each thread"
        if len(self._columns) != 1 or not isinstance(self._columns[0].type, Integer):
            found = ", ".join(repr(column.type) for column in self._columns)
            return f"expected one column of integers, got {found}"
        return self.why_not_resumable  # no index

    def _why_not_resumable(self) -> str:
        for column in self._columns:
            # MySQL orders enums and sets by number and compares them as texts.
            is_numbered = isinstance(column.type, Enum) or column.type.__visit_name__ == "SET"
            if is_numbered or not isinstance(column.type, Integer | String | Uuid):
                return f"no position is kept in a column of type {column.type!r}"
        names = [column.name for column in self._columns]
        with self._errors():
            about = inspect(self.engine)
            where = (self._table.name, self._table.schema)
            orders: list[abc.Sequence[str | None]] = [
                about.get_pk_constraint(*where)["constrained_columns"]
            ]
            orders += [index["column_names"] for index in about.get_indexes(*where)]
            orders += [unique["column_names"] for unique in about.get_unique_constraints(*where)]
        if names not in [order[: len(names)] for order in orders]:
            return f"no index of {self._table.fullname} begins with {', '.join(names)}"
        with self._errors(), self.engine.connect() as connection:
            return self._database.why_not_whole(connection, where[1], where[0], names)


def connect(url: str) -> Engine:
    """An engine for this URL, whose database is there. Raises SourceError."""
    try:
        return engine_of(url)
    except (DatabaseError, ValueError) as error:
        raise SourceError(str(error)) from None


def reflect(engine: Engine, name: str, schema: str | None = None) -> Table:
    """A table as it is in the database; `schema.table` is understood. Raises SourceError."""
    if schema is None and "." in name:
        schema, _, name = name.rpartition(".")
    try:
        return Table(name, MetaData(), schema=schema, autoload_with=engine, resolve_fks=False)
    except NoSuchTableError:
        raise SourceError(
            f"{engine.url.render_as_string(hide_password=True)}: no table {name!r}"
        ) from None
    except SQLAlchemyError as error:
        shown = engine.url.render_as_string(hide_password=True)
        raise SourceError(f"{shown}: {str(error).splitlines()[0]}") from error


def _is_key(value: Any) -> bool:
    return None not in value if isinstance(value, tuple) else value is not None


def _position(row: Any) -> list[int | str] | None:
    """The values of a row as JSON; None if one of them cannot be written as JSON."""
    values = row if isinstance(row, tuple) else (row,)
    found = [str(value) if isinstance(value, UUID) else value for value in values]
    return found if all(type(value) in (int, str) for value in found) else None


def _from(columns: abc.Sequence[ColumnElement[Any]], values: list[Any]) -> ColumnElement[bool]:
    """Columns >= values, as rows are compared, spelled out: (a, b) >= (1, 2)."""
    column, value = columns[0], bound(values[0])
    if len(columns) == 1:
        return column >= value
    rest = _from(columns[1:], values[1:])
    return and_(column >= value, or_(column > value, rest))
