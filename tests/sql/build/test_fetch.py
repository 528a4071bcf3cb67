"""Rows in parts, from a running statement and from a cursor: the same ones, whatever ends it."""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard
from bloomstore.sql.build import fetch
from bloomstore.sql.build.fetch import parts_of

ROWS = [(number, f"{number}%:x") for number in range(5000)]


@pytest.fixture
def table(engine: sa.Engine) -> Iterator[sa.Table]:
    metadata = sa.MetaData()
    made = sa.Table(
        "parted",
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(20)),
    )
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(made), [{"number": n, "name": name} for n, name in ROWS])
    yield made
    metadata.drop_all(engine)


@pytest.fixture
def connection(engine: sa.Engine, table: sa.Table) -> Iterator[sa.Connection]:
    """Closed before the table is dropped."""
    with engine.connect() as connection:
        yield connection


@pytest.mark.parametrize("size", [1, 1000, 1001, 4999, 5000, 5001])
def test_every_row_once_and_in_order(connection: sa.Connection, table: sa.Table, size: int) -> None:
    if size == 1:
        wanted = sa.select(table).where(table.c.number < 10).order_by(table.c.number)
        assert [row for part in parts_of(connection, wanted, 1) for row in part] == ROWS[:10]
        return
    both = list(parts_of(connection, sa.select(table).order_by(table.c.number), size))
    assert [row for part in both for row in part] == ROWS
    assert max(map(len, both)) <= size + 1
    one = parts_of(connection, sa.select(table.c.name).order_by(table.c.number), size)
    assert [value for part in one for value in part] == [name for _, name in ROWS]


def test_no_rows_are_no_parts(connection: sa.Connection, table: sa.Table) -> None:
    assert list(parts_of(connection, sa.select(table).where(sa.false()), 10)) == []


def test_percent_signs_and_colons_are_kept(connection: sa.Connection, table: sa.Table) -> None:
    asked = sa.text("SELECT name FROM parted WHERE name LIKE '%\\:x' AND number % 2 = 0")
    (part,) = parts_of(connection, asked, 10_000)
    assert sorted(part) == sorted(name for _, name in ROWS[::2])
    bound = sa.select(table.c.number).where(table.c.name == "7%:x")
    assert list(parts_of(connection, bound, 10)) == [[7]]


def test_leaving_early_leaves_the_connection_usable(
    connection: sa.Connection, table: sa.Table
) -> None:
    with contextlib.closing(parts_of(connection, sa.select(table.c.number), 10)) as some:
        assert len(next(some)) in (10, 11)
    connection.rollback()  # the statement was cancelled
    assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 5000


def test_leaving_a_long_statement_leaves_nothing_after_a_rollback(
    connection: sa.Connection, table: sa.Table
) -> None:
    if connection.dialect.name != "postgresql":
        pytest.skip("only psycopg streams")
    longer = sa.select(sa.func.generate_series(1, 5_000_000))
    with contextlib.closing(parts_of(connection, longer, 10)) as some:
        assert next(some) == list(range(1, 11))
    connection.rollback()
    assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 5000


def test_where_the_driver_cannot_stream_a_cursor_gives_the_same(
    connection: sa.Connection, table: sa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = sa.select(table).order_by(table.c.number)
    as_it_can = [row for part in parts_of(connection, asked, 700) for row in part]
    monkeypatch.setattr(fetch, "_can_stream", lambda _: False)
    assert [row for part in parts_of(connection, asked, 700) for row in part] == as_it_can


def test_an_error_of_the_database_is_raised(connection: sa.Connection, table: sa.Table) -> None:
    if connection.dialect.name != "postgresql":
        pytest.skip("division by zero is NULL")
    asked = sa.select(100 / (4000 - table.c.number)).order_by(table.c.number)
    with pytest.raises(Exception, match="division by zero"):
        list(parts_of(connection, asked, 1000))


class Prefixed(sa.types.TypeDecorator[str]):
    """What is stored is not what is read."""

    impl = sa.String(20)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else "enc:" + value

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else value.removeprefix("enc:")


PROCESSED = [
    (Prefixed(), ["abc", "def"]),
    (sa.DateTime(), [dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 2)]),
    (sa.Date(), [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
    (sa.Time(), [dt.time(12, 30), dt.time(1)]),
    (sa.Numeric(10, 2), [Decimal("1.25"), Decimal("2.5")]),
    (sa.Boolean(), [False, True]),
    (sa.Uuid(), [uuid.UUID(int=5), uuid.UUID(int=6)]),
    (sa.LargeBinary(20), [b"abc", b"def"]),
    (sa.Enum("red", "blue", name="colour"), ["red", "blue"]),
]


@pytest.mark.parametrize("is_rebuilt", [False, True])
@pytest.mark.parametrize(("type_", "values"), PROCESSED, ids=lambda each: type(each).__name__)
def test_builds_read_what_is_stored_from_the_first_row_on(
    store: bloomstore.Store, engine: sa.Engine, type_: Any, values: list[Any], is_rebuilt: bool
) -> None:
    guard = Guard(deterministic=True) if isinstance(type_, Prefixed) else Guard()
    kept = sa.Column("c", type_, info={"bloomstore": guard})
    made = sa.Table("processed", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), kept)
    made.metadata.create_all(engine)
    # Of some types PostgreSQL and MariaDB compare in ways that are not known: no build at all.
    is_sure = engine.dialect.name == "sqlite"
    unclear = contextlib.nullcontext() if is_sure else contextlib.suppress(BuildError)
    try:
        with engine.begin() as connection:
            connection.execute(sa.insert(made), [{"c": value} for value in values])
        plugin = BloomPlugin(store, made.metadata)
        plugin.listen(engine)
        with unclear:
            plugin.build(engine)
            if is_rebuilt:
                plugin.rebuild(engine, made.c.c)
        answers = [plugin.probe(made.c.c, value) for value in values]
        assert Answer.ABSENT not in answers
        assert not is_sure or answers == [Answer.MAYBE, Answer.MAYBE]
        plugin.unlisten()
    finally:
        made.metadata.drop_all(engine)
