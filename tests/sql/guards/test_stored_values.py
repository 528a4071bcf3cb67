"""What is stored is not always what was sent: a value whose stored form is uncertain has no key."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

import bloomstore
from bloomstore import Fixed
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard, Guarded, GuardedSession
from tests.sql.support.models import Team


def table_of(type_: Any) -> sa.Table:
    return sa.Table(
        "stored",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("c", type_, info={"bloomstore": Guard()}),
    )


def live(engine: sa.Engine, type_: str, *values: Any) -> None:
    """A table whose column has this type, made by an engine to which nobody listens."""
    other = sa.create_engine(engine.url)
    with other.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS stored")
        connection.exec_driver_sql(f"CREATE TABLE stored (id INTEGER PRIMARY KEY, c {type_})")
        for number, value in enumerate(values, 1):
            connection.execute(
                sa.text("INSERT INTO stored VALUES (:n, :v)"), {"n": number, "v": value}
            )
    other.dispose()


@contextlib.contextmanager
def guarding(store: bloomstore.Store, engine: sa.Engine, table: sa.Table) -> Iterator[BloomPlugin]:
    """A plugin that listens, and a guard that is built if it can be."""
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(engine)
    try:
        with contextlib.suppress(BuildError):
            plugin.build(engine)
        yield plugin
    finally:
        plugin.unlisten()


def every_match_is_known(plugin: BloomPlugin, engine: sa.Engine, table: sa.Table) -> list[Any]:
    """Asserts that no stored value is ABSENT that the database finds; returns them."""
    with engine.connect() as connection:
        found = list(connection.scalars(select(table.c.c)))
        for value in found:
            if connection.scalar(select(sa.func.count()).where(table.c.c == value)):
                assert plugin.probe(table.c.c, value) is not Answer.ABSENT, value
    return found


def insert(engine: sa.Engine, table: sa.Table, *values: Any) -> None:
    for number, value in enumerate(values, 1):
        with engine.begin() as connection:
            connection.execute(sa.insert(table).values(id=number, c=value))


def only(kind: str, *kinds: str) -> None:
    if kind not in kinds:
        pytest.skip(f"it is about {', '.join(kinds)}")


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


# What a driver was taught ----------------------------------------------------------


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


# Casts and rounded floats ----------------------------------------------------------

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


def test_an_operator_of_somebody_else(store, engine, kind) -> None:
    only(kind, "postgresql")
    live(engine, "VARCHAR(30)", "Abc")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION alike(varchar, varchar) RETURNS boolean IMMUTABLE LANGUAGE sql"
            " AS 'SELECT lower($1)::text = lower($2)::text'"
        )
        connection.exec_driver_sql(
            "CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = alike)"
        )
    table = table_of(sa.String(30))
    with guarding(store, engine, table) as plugin:
        assert "operator" in plugin.probe(table.c.c, "abc").reason


# SQLite ----------------------------------------------------------------------------


def casefolded(one: str, other: str) -> int:
    return (one.casefold() > other.casefold()) - (one.casefold() < other.casefold())


@pytest.mark.parametrize("name", ["BINARY", "NOCASE", "RTRIM"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_collation_in_the_place_of_a_built_in_one(store, engine, kind, name, is_late) -> None:
    only(kind, "sqlite")
    live(engine, f"TEXT COLLATE {name}", "\xc9")
    other = sa.create_engine(engine.url)

    def replace(raw: Any, record: Any) -> None:
        raw.create_collation(name, casefolded)

    table = table_of(sa.String())
    if not is_late:
        sa.event.listen(other, "connect", replace)
    with guarding(store, other, table) as plugin:
        if is_late:
            sa.event.listen(other, "connect", replace)
            other.dispose()
        with other.connect() as connection:
            assert connection.scalar(select(table.c.id).where(table.c.c == "\xe9")) == 1
        assert "collation" in plugin.probe(table.c.c, "\xe9").reason
    other.dispose()


@pytest.mark.parametrize("name", ["BINARY", "NOCASE", "RTRIM"])
def test_a_collation_that_is_replaced_whenever_a_connection_is_lent(
    store, engine, kind, name
) -> None:
    only(kind, "sqlite")

    class Words(DeclarativeBase):
        pass

    class Word(Words):
        __table__ = table_of(sa.String()).to_metadata(Words.metadata)

    live(engine, f"TEXT COLLATE {name}", "\xc9")
    other = sa.create_engine(engine.url)
    sessions = sessionmaker(other, class_=GuardedSession)
    plugin = BloomPlugin(store, Words.metadata)
    plugin.listen(other, sessions)
    plugin.build(other)
    sa.event.listen(other, "checkout", lambda raw, *_: raw.create_collation(name, casefolded))
    query = select(Word.__table__.c.id).where(Word.__table__.c.c == "\xe9")
    for _ in range(2):
        with sessions() as session:
            assert session.scalars(query).all() == [1]
            assert session.scalars(query.options(Guarded())).all() == [1]
    plugin.unlisten()
    other.dispose()


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


# Errors that a skipped question would hide -----------------------------------------


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


@pytest.mark.parametrize(
    ("columns", "is_known"),
    [
        ("c$x TEXT, c TEXT COLLATE NOCASE", True),
        ("c\u20ac TEXT, c TEXT COLLATE NOCASE", True),
        ("c\xa0 TEXT, c TEXT COLLATE NOCASE", True),  # a letter for SQLite
        ("c TEXT \ufeffCOLLATE NOCASE", False),  # and this one a space, in some of its versions
        ("C\xc4 TEXT, c TEXT COLLATE NOCASE, CHECK (c <> ')')", True),
        ("c TEXT COLLATE NOCASE, d INTEGER, PRIMARY KEY (id), UNIQUE (d) CHECK (d > 0)", True),
    ],
)
def test_each_column_has_its_own_collation(store, engine, kind, columns, is_known) -> None:
    only(kind, "sqlite")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE stored (id INTEGER, {columns})")
        connection.exec_driver_sql("INSERT INTO stored (id, c) VALUES (1, 'abc')")
    table = table_of(sa.String())
    with guarding(store, engine, table) as plugin:
        with engine.connect() as connection:
            assert connection.scalar(select(table.c.id).where(table.c.c == "ABC")) == 1
        assert plugin.probe(table.c.c, "ABC") is not Answer.ABSENT
        assert (plugin.probe(table.c.c, "abd") is Answer.ABSENT) is is_known


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
