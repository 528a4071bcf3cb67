"""What is stored is not always what was sent: a value whose stored form is uncertain has no key."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from bloomstore import Fixed
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard, Guarded, GuardedSession
from tests.sql.support.models import Team
from tests.sql.support.stored import every_match_is_known, guarding, insert, live, only, table_of


@pytest.mark.parametrize(
    ("type_", "sent"),
    [
        ("VARCHAR(5) COLLATE utf8mb4_bin", ["abcde\t", "abcdf\r\n", "abcdg \v"]),
        ("VARCHAR(5) COLLATE utf8mb4_nopad_bin", ["abcde\n", "abcdf \t", "abc       "]),
        ("CHAR(5) COLLATE utf8mb4_bin", ["abcde\f", "abcdf\t "]),
        ("VARCHAR(5) COLLATE latin1_bin", ["abcde\t", "\xe9bcde\n"]),
        ("TINYTEXT COLLATE utf8mb4_nopad_bin", ["x" * 250 + " " * 10, "\xe9" * 125 + " " * 10]),
        ("VARCHAR(5) COLLATE cp932_bin", ["\u6659", "\u6661"]),
    ],
)
def test_text_that_is_cut_or_converted_has_no_key(store, engine, kind, type_, sent) -> None:
    only(kind, "mariadb")
    live(engine, type_)
    table = table_of(sa.String())
    for value in sent:
        with guarding(store, engine, table) as plugin:
            plugin.build(engine)
            insert(engine, table, value)
            assert every_match_is_known(plugin, engine, table)
            for other in ("\u6659", "\u6661"):
                assert plugin.probe(table.c.c, other) is not Answer.ABSENT or "cp932" not in type_
        live(engine, type_)


def test_a_text_of_latin_letters_is_useful_as_long_as_it_is_ascii(store, engine, kind) -> None:
    only(kind, "mariadb")
    live(engine, "VARCHAR(9) COLLATE latin1_bin", "abc", "\xe9t\xe9")
    table = table_of(sa.String(9))
    with guarding(store, engine, table) as plugin:
        assert plugin.probe(table.c.c, "abc ") is Answer.MAYBE
        assert plugin.probe(table.c.c, "abd") is Answer.ABSENT
        assert plugin.probe(table.c.c, "\xe9t\xe9").name == "UNKNOWN"


@pytest.mark.parametrize("characters", ["latin1", "utf8", "cp932"])
def test_a_connection_that_converts_text_is_in_doubt(store, engine, kind, characters) -> None:
    only(kind, "mariadb")
    live(engine, "VARCHAR(9) COLLATE utf8mb4_bin", "????")
    table = table_of(sa.String(9))
    other = sa.create_engine(engine.url.update_query_dict({"charset": characters}))
    with guarding(store, other, table) as plugin:
        answer = plugin.probe(table.c.c, "\U0001f600")
        assert answer is not Answer.ABSENT
        assert "character sets" in answer.reason
    other.dispose()


def test_bytes_are_not_compared_with_numbers(store, engine, kind) -> None:
    only(kind, "mariadb")
    live(engine, "VARBINARY(9)", "abc")
    table = table_of(mysql.VARBINARY(9))
    with guarding(store, engine, table) as plugin, engine.connect() as connection:
        for value in (0, False, 1):
            found = connection.execute(select(table.c.id).where(table.c.c == value)).all()
            assert plugin.probe(table.c.c, value) is not Answer.ABSENT, found
        assert plugin.probe(table.c.c, b"abd") is Answer.ABSENT


class Moment(dt.datetime):
    """As pandas has one: it is equal to no datetime with whole microseconds."""

    nanosecond = 789


class Low(str):
    __slots__ = ()


class Cents(int):
    pass


@pytest.mark.parametrize(
    ("type_", "value"),
    [(sa.DateTime(), Moment(2024, 1, 1)), (sa.Integer(), Cents(5)), (sa.Float(53), float("nan"))],
)
def test_no_transaction_is_lost_for_want_of_a_key(store, engine, kind, type_, value) -> None:
    if kind == "mariadb" and isinstance(value, float):
        pytest.skip("MariaDB has no NaN")
    table = table_of(type_)
    table.metadata.create_all(engine)
    with guarding(store, engine, table) as plugin:
        insert(engine, table, value)
        with engine.connect() as connection:
            assert connection.scalar(select(sa.func.count()).select_from(table)) == 1
        every_match_is_known(plugin, engine, table)


def test_a_filter_that_is_full_costs_answers_and_not_rows(plugin, engine, sessions) -> None:
    plugin.rebuild(engine, Team.id, spec=Fixed(capacity=1, target_error=1e-3))
    with sessions.begin() as session:
        session.add_all([Team(id=number) for number in range(50)])
    with engine.connect() as connection:
        assert connection.scalar(select(sa.func.count()).select_from(Team)) == 50
    assert plugin.probe(Team.id, 49) is not Answer.ABSENT


def test_a_subclass_is_written_in_a_way_of_its_own(store, engine, kind) -> None:
    only(kind, "sqlite")
    sqlite3.register_adapter(Low, str.lower)
    sqlite3.register_adapter(Cents, lambda value: int(value) * 100)
    for type_, value in ((sa.String(), Low("ABC")), (sa.Integer(), Cents(5))):
        table = table_of(type_)
        table.metadata.create_all(engine)
        with guarding(store, engine, table) as plugin:
            insert(engine, table, value)
            assert every_match_is_known(plugin, engine, table)[0] != value
        table.metadata.drop_all(engine)


CASTS = [
    ("NUMERIC(12, 4)", sa.Numeric(10, 2), Decimal("1.2345")),
    ("NUMERIC", sa.Numeric(10, 2), Decimal("1.2345")),
    ("FLOAT8", sa.Numeric(10, 2), Decimal("1.2345")),
    ("FLOAT8", sa.Float(24), 0.1),
    ("TEXT", sa.CHAR(), "abc"),
    ("TEXT", postgresql.BIT(3), "101"),
]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize(("type_", "declared", "sent"), CASTS)
def test_a_cast_to_the_declared_type_makes_doubt(
    store, engine, kind, driver, type_, declared, sent
) -> None:
    only(kind, "postgresql")
    if isinstance(declared, postgresql.BIT) and sa.__version__.startswith("2.0."):
        pytest.skip("SQLAlchemy 2.0 cannot send bits by asyncpg")
    live(engine, type_)
    table = table_of(declared)

    async def run() -> None:
        other = create_async_engine(engine.url.set(drivername=f"postgresql+{driver}"))
        plugin = BloomPlugin(store, table.metadata)
        plugin.listen(other)
        with contextlib.suppress(BuildError):
            await plugin.build_async(other)
        rows = [{"c": sent}, {"c": sent}]  # psycopg casts if there are several
        async with other.begin() as connection:
            await connection.execute(
                sa.insert(table).returning(table.c.id, sort_by_parameter_order=True), rows
            )
        async with other.connect() as connection:
            found = (await connection.exec_driver_sql("SELECT c FROM stored")).scalars().first()
        assert plugin.probe(table.c.c, found) is not Answer.ABSENT
        assert plugin.probe(table.c.c, sent) is not Answer.ABSENT
        plugin.unlisten()
        await other.dispose()

    live(engine, type_)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE stored ALTER id ADD GENERATED BY DEFAULT AS IDENTITY"
        )
    asyncio.run(run())


@pytest.mark.parametrize(
    ("type_", "declared", "value"),
    [("FLOAT8", sa.Float(53), 0.1 + 0.2), ("FLOAT4", sa.REAL(), 0.12345679104328156)],
)
def test_a_build_reads_floats_to_the_last_digit(
    store, engine, kind, type_, declared, value
) -> None:
    only(kind, "postgresql")
    live(engine, type_, value)
    table = table_of(declared)
    rounding = sa.create_engine(engine.url, connect_args={"options": "-c extra_float_digits=0"})
    with guarding(store, rounding, table) as plugin:
        plugin.build(rounding)
        assert plugin.probe(table.c.c, value) is Answer.MAYBE
        assert plugin.probe(table.c.c, 7.25) is Answer.ABSENT
        plugin.rebuild(rounding)
        assert plugin.probe(table.c.c, value) is Answer.MAYBE
    rounding.dispose()


@pytest.mark.parametrize("name", ["rowid", "oid", "_rowid_"])
def test_the_primary_key_by_its_other_names(store, engine, kind, name) -> None:
    only(kind, "sqlite")
    table = sa.Table(
        "numbered",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, info={"bloomstore": Guard()}),
        sa.Column("c", sa.String),
    )
    table.metadata.create_all(engine)
    table.append_column(sa.Column(name, sa.Integer, key="number", system=True))
    for write in (
        sa.update(table).where(table.c.id == 1).values(number=777),
        sa.update(table).where(table.c.id == 1).values({table.c.number: 777}),
        sa.insert(table).values(c="y", number=777),
    ):
        with guarding(store, engine, table) as plugin:
            plugin.build(engine)
            with engine.begin() as connection:
                connection.execute(sa.insert(table).values(id=1, c="x"))
                connection.execute(write)
            assert plugin.probe(table.c.id, 777) is not Answer.ABSENT
            with engine.begin() as connection:
                connection.execute(sa.delete(table))


def test_a_column_may_have_one_of_these_names_itself(store, engine, kind) -> None:
    only(kind, "sqlite")
    table = sa.Table(
        "numbered",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, info={"bloomstore": Guard()}),
        sa.Column("oid", sa.String),
    )
    table.metadata.create_all(engine)
    with guarding(store, engine, table) as plugin:
        with engine.begin() as connection:
            connection.execute(sa.insert(table).values(id=1, oid="1.3.6"))
        assert plugin.probe(table.c.id, 1) is Answer.MAYBE
        assert plugin.probe(table.c.id, 2) is Answer.ABSENT


def test_a_database_of_utf_16_is_in_doubt(store, kind, tmp_path: Path) -> None:
    only(kind, "sqlite")
    path = tmp_path / "wide.db"
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA encoding = 'UTF-16'")
        raw.execute("CREATE TABLE stored (id INTEGER PRIMARY KEY, c TEXT)")
        raw.commit()
    engine = sa.create_engine(f"sqlite:///{path}")
    table = table_of(sa.String())
    with guarding(store, engine, table) as plugin:
        insert(engine, table, "a\uffff")
        assert every_match_is_known(plugin, engine, table) == ["a\ufffd"]
        assert "UTF-16" in plugin.probe(table.c.c, "x").reason
    engine.dispose()


class Model(DeclarativeBase):
    pass


class Short(Model):
    __tablename__ = "short"
    id: Mapped[int] = mapped_column(
        sa.SmallInteger, primary_key=True, autoincrement=False, info={"bloomstore": Guard()}
    )
    size: Mapped[Decimal] = mapped_column(sa.Numeric(4, 2), info={"bloomstore": Guard()})
    letter: Mapped[str] = mapped_column(
        sa.Enum("a", "b", name="letters"), info={"bloomstore": Guard()}
    )
    word: Mapped[str] = mapped_column(sa.Text, info={"bloomstore": Guard()})


def outcome(ask: Callable[[Any], Any], session: Any) -> Any:
    """What comes of it: rows, or the kind of an error."""
    try:
        return ask(session)
    except Exception as error:  # noqa: BLE001  of the database, the driver or SQLAlchemy
        return type(error)


def test_a_value_that_does_not_fit_is_sent(store, engine, kind) -> None:
    only(kind, "sqlite", "postgresql")
    Model.metadata.drop_all(engine)
    Model.metadata.create_all(engine)
    guarded, plain = sessionmaker(engine, class_=GuardedSession), sessionmaker(engine)
    plugin = BloomPlugin(store, Model.metadata)
    plugin.listen(engine, guarded)
    plugin.build(engine)
    with guarded() as session:
        assert session.get(Short, 5) is None  # from here on it is answered quickly
    asked: list[Any] = []
    for value in (2**15, -(2**15) - 1, 2**40, 2**70, "1", "abc", 1.5, None):
        asked.append(lambda session, value=value: session.get(Short, value))
        one = select(Short).where(Short.id == sa.bindparam("v", value, sa.SmallInteger()))
        many = select(Short).where(Short.id.in_([1, 2, value]))
        asked += [
            lambda session, query=query: session.scalars(query.options(Guarded())).all()
            for query in (one, many)
        ]
    pairs: list[tuple[Any, Any]] = [
        (Short.size, Decimal("123.45")),
        (Short.letter, "c"),
        (Short.word, "a\0b"),
        (Short.word, "\ud800"),
    ]
    for column, value in pairs:
        for condition in (column == value, column.in_(["a", value] if value != 5 else [value])):
            query = select(Short).where(condition).options(Guarded())
            asked.append(lambda session, query=query: session.scalars(query).all())
    for ask in asked:
        with guarded() as session:
            session.get(Short, 5)
            found = outcome(ask, session)
        with plain() as other:
            assert found == outcome(ask, other)
    with guarded() as session:
        for good in (2**15 - 1, -(2**15)):
            assert session.get(Short, good) is None
    assert plugin.guards["short.id"].metrics.skipped_gets > 2
    plugin.unlisten()
    Model.metadata.drop_all(engine)


def test_columns_that_differ_in_case_only_are_in_doubt(store, engine, kind) -> None:
    """SQLite knows the case of ASCII only."""
    only(kind, "sqlite")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE stored (\xc4 TEXT, \xe4 TEXT COLLATE NOCASE)")
        connection.exec_driver_sql("INSERT INTO stored VALUES ('x', 'abc')")
    table = sa.Table(
        "stored", sa.MetaData(), sa.Column("\xe4", sa.String, info={"bloomstore": Guard()})
    )
    with guarding(store, engine, table) as plugin:
        assert plugin.probe(table.c["\xe4"], "ABC").name == "UNKNOWN"
