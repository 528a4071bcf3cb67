"""Drivers that write or read values in their own way: no key for such a value, or doubt."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard
from tests.sql.support.stored import every_match_is_known, guarding, insert, live, only, table_of


def test_an_adapter_of_sqlite3_for_all_text(store, engine, kind) -> None:
    only(kind, "sqlite")
    live(engine, "TEXT")
    table = table_of(sa.String())
    try:
        sqlite3.register_adapter(str, str.lower)
        with guarding(store, engine, table) as plugin:
            insert(engine, table, "ABC")
            assert every_match_is_known(plugin, engine, table) == ["abc"]
            assert "adapter" in plugin.probe(table.c.c, "x").reason
    finally:
        del sqlite3.adapters[str, sqlite3.PrepareProtocol]


def test_a_dumper_of_psycopg(store, engine, kind) -> None:
    only(kind, "postgresql")
    from psycopg.types.string import StrDumper

    class Shouting(StrDumper):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.upper())

    def teach(raw: Any, record: Any) -> None:
        raw.adapters.register_dumper(str, Shouting)

    live(engine, "TEXT")
    table = table_of(sa.Text())
    taught = sa.create_engine(engine.url)
    sa.event.listen(taught, "connect", teach)
    with guarding(store, taught, table) as plugin:
        insert(taught, table, "abc")
        assert "ABC" in every_match_is_known(plugin, taught, table)
    taught.dispose()


def test_encoders_and_decoders_of_pymysql(store, engine, kind) -> None:
    only(kind, "mariadb")
    from pymysql import converters

    live(engine, "INTEGER", 500)
    table = table_of(sa.Integer())
    encoding = converters.conversions | {int: lambda value, mapping=None: str(value * 100)}
    decoding = converters.conversions | {3: lambda text: int(text) * 100}
    for conversions in (encoding, decoding):
        taught = sa.create_engine(engine.url, connect_args={"conv": conversions})
        with guarding(store, taught, table) as plugin:
            assert "of its own" in plugin.probe(table.c.c, 500).reason
        taught.dispose()


def test_a_codec_of_asyncpg(store, engine, kind) -> None:
    only(kind, "postgresql")
    live(engine, "NUMERIC(10, 2)", Decimal("5.00"))
    table = table_of(sa.Numeric(10, 2))

    async def run() -> Answer:
        taught = create_async_engine(engine.url.set(drivername="postgresql+asyncpg"))

        def teach(raw: Any, record: Any) -> None:
            raw.run_async(
                lambda own: own.set_type_codec(
                    "numeric", schema="pg_catalog", encoder=str, decoder=lambda text: Decimal(0)
                )
            )

        sa.event.listen(taught.sync_engine, "connect", teach)
        plugin = BloomPlugin(store, table.metadata)
        plugin.listen(taught)
        with contextlib.suppress(BuildError):
            await plugin.build_async(taught)
        answer = plugin.probe(table.c.c, Decimal("5.00"))
        plugin.unlisten()
        await taught.dispose()
        return answer

    assert "codec" in asyncio.run(run()).reason


def lowered(values: Any) -> Any:
    """The parameters of an INSERT, or a row, in small letters."""
    if isinstance(values, dict):
        return {name: lowered(value) for name, value in values.items()}
    if isinstance(values, (tuple, list)):
        return tuple(map(lowered, values))
    return values.lower() if isinstance(values, str) else values


def lowering(cursor: type) -> type:
    """A cursor that changes what it is sent."""

    class Lowering(cursor):  # type: ignore[misc]
        def execute(self, query: Any, values: Any = None, **more: Any) -> Any:
            given = () if values is None else (lowered(values),)
            return super().execute(query, *given, **more)

    return Lowering


def test_cursors_of_ones_own_may_change_what_is_sent(store, engine, kind) -> None:
    if kind == "sqlite":

        class Lowering(sqlite3.Connection):
            def cursor(self, *given: Any) -> Any:
                return super().cursor(lowering(sqlite3.Cursor))

        given: dict[str, Any] = {"factory": Lowering}
    elif kind == "postgresql":
        import psycopg

        given = {"cursor_factory": lowering(psycopg.Cursor)}
    else:
        import pymysql

        given = {"cursorclass": lowering(pymysql.cursors.Cursor)}
    live(engine, "TEXT" if kind != "mariadb" else "VARCHAR(60) COLLATE utf8mb4_bin")
    table = table_of(sa.String(60))
    taught = sa.create_engine(engine.url, connect_args=given)
    with guarding(store, taught, table) as plugin:
        insert(taught, table, "ABC")
        assert every_match_is_known(plugin, taught, table) == ["abc"]
        assert "of its own" in plugin.probe(table.c.c, "x").reason
    taught.dispose()


@pytest.mark.parametrize("is_async", [False, True])
def test_rows_of_sqlite_may_be_made_in_a_way_of_ones_own(store, engine, kind, is_async) -> None:
    only(kind, "sqlite")
    live(engine, "TEXT", " ABC ")
    table = table_of(sa.String())
    name = f"sqlite+{'aiosqlite' if is_async else 'pysqlite'}"

    async def run(factory: Any) -> Answer:
        url = engine.url.set(drivername=name)
        other: Any = create_async_engine(url) if is_async else sa.create_engine(url)

        def teach(raw: Any, record: Any) -> None:
            getattr(raw, "driver_connection", raw).row_factory = factory

        sa.event.listen(other.sync_engine if is_async else other, "connect", teach)
        plugin = BloomPlugin(store, table.metadata)
        plugin.listen(other)
        with contextlib.suppress(BuildError):
            await plugin.build_async(other) if is_async else plugin.build(other)
        answer = plugin.probe(table.c.c, " ABC ")
        plugin.unlisten()
        await other.dispose() if is_async else other.dispose()
        return answer

    stripped = asyncio.run(run(lambda cursor, row: tuple(str(each).strip() for each in row)))
    assert "row factory" in stripped.reason
    assert asyncio.run(run(sqlite3.Row)) is Answer.MAYBE


def test_a_float_that_the_server_makes_and_a_driver_rounds(store, engine, kind) -> None:
    only(kind, "postgresql")
    live(engine, "FLOAT8 DEFAULT 0.1::float8 + 0.2::float8")
    table = sa.Table(
        "stored",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(
            "c", sa.Float(53), server_default=sa.FetchedValue(), info={"bloomstore": Guard()}
        ),
        implicit_returning=True,
    )
    rounding = sa.create_engine(engine.url, connect_args={"options": "-c extra_float_digits=0"})
    with guarding(store, rounding, table) as plugin:
        with rounding.begin() as connection:
            connection.execute(sa.insert(table).values(id=1).return_defaults(table.c.c))
        assert plugin.probe(table.c.c, 0.1 + 0.2) is not Answer.ABSENT
    rounding.dispose()


@pytest.mark.parametrize(
    "factory",
    [bytes, lambda raw: raw.decode().strip(), lambda raw: raw.decode("latin-1")],
    ids=["bytes", "strip", "latin"],
)
def test_a_build_reads_text_as_it_is_stored(store, engine, kind, factory) -> None:
    only(kind, "sqlite")
    live(engine, "TEXT", " \xe9 ")
    other = sa.create_engine(engine.url)
    sa.event.listen(other, "connect", lambda raw, _: setattr(raw, "text_factory", factory))
    table = table_of(sa.String())
    with guarding(store, other, table) as plugin:
        assert plugin.probe(table.c.c, " \xe9 ") is Answer.MAYBE
        assert plugin.probe(table.c.c, "e") is Answer.ABSENT
        if factory is not bytes:  # SQLAlchemy's own inspection fails with that
            plugin.rebuild(other)
        assert plugin.probe(table.c.c, " \xe9 ") is Answer.MAYBE
        with other.connect() as connection:  # as the program has asked for
            raw: Any = connection.connection.dbapi_connection
            assert raw.text_factory is factory
    other.dispose()


@pytest.mark.parametrize(
    ("word", "converter", "declared", "value"),
    [
        ("CENTS", lambda raw: float(raw) / 100, sa.Integer(), 500),
        ("LOWTEXT", lambda raw: raw.decode().lower(), sa.String(), "ABC"),
    ],
)
def test_a_build_reads_past_converters(
    store, engine, kind, word, converter, declared, value
) -> None:
    only(kind, "sqlite")
    live(engine, word, value)
    table = table_of(declared)
    other = sa.create_engine(
        engine.url,
        connect_args={"detect_types": sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES},
    )
    sqlite3.register_converter(word, converter)
    try:
        with guarding(store, other, table) as plugin:
            assert plugin.probe(table.c.c, value) is Answer.MAYBE
            plugin.rebuild(other)
            assert plugin.probe(table.c.c, value) is Answer.MAYBE
    finally:
        del sqlite3.converters[word]
        other.dispose()
