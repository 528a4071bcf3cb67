"""Columns, tables and databases for which a guard once said a wrong "no"."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore.errors import SpecError, StoreFailed
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard, GuardedSession
from bloomstore.sql.guards.guard import ActiveGuard
from tests.sql.support.kinds import only_mariadb, only_postgresql, only_sqlite
from tests.sql.support.models import Base, Team, User
from tests.sql.support.tables import built, run, table_of, text_type


class Color(str, enum.Enum):  # noqa: UP042  the older form, whose str() is its name
    RED = "red"


class Empty(sa.TypeDecorator[str]):
    """None is stored as an empty string."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return "" if value is None else value


def test_a_str_enum_may_be_written_in_any_way(store, engine, kind) -> None:
    table = table_of(text_type(kind))
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=Color.RED))
    assert plugin.probe(table.c.c, "red") is not Answer.ABSENT
    assert plugin.probe(table.c.c, Color.RED) is not Answer.ABSENT
    plugin.unlisten()


def test_none_may_be_sent_as_something(store, engine, kind) -> None:
    if kind == "mariadb":
        pytest.skip("a TypeDecorator cannot name a collation there")
    table = table_of(Empty(20), deterministic=True)
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=None))
    assert plugin.probe(table.c.c, "") is Answer.MAYBE
    plugin.unlisten()


def test_one_name_is_one_guard(store) -> None:
    metadata = sa.MetaData()
    for name in ("first", "second"):
        sa.Table(name, metadata, sa.Column("a", sa.Integer, info={"bloomstore": Guard(name="x")}))
    with pytest.raises(SpecError, match="two guards"):
        BloomPlugin(store, metadata)


@only_sqlite  # the form is then the same
def test_another_database_does_not_fence_the_filter(store, engine, tmp_path) -> None:
    """A program that is pointed at a test database must not put production's guard in doubt."""
    table = table_of(sa.Integer)
    built(store, engine, table.metadata).unlisten()
    other = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    table.metadata.create_all(other)
    elsewhere = BloomPlugin(store, table.metadata)
    elsewhere.listen(other)
    with other.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    elsewhere.unlisten()
    other.dispose()
    assert not store["trapped.c"].fences


def test_a_doubtful_guard_beside_a_sound_one(plugin, engine, store) -> None:
    """Both are written by one transaction: the fence of one is no part of the other's batch."""
    guard = plugin.guards["users.email"]
    note = guard.record()
    note.form = {**note.form, "canon": "another/1"}
    guard.write_record(note)
    guard._judge(guard._live)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=78, email="doubt@y"))
    assert plugin.probe(User.id, 78) is Answer.MAYBE
    assert plugin.probe(User.email, "doubt@y").name == "UNKNOWN"
    assert store["users.email"].fences


@only_sqlite
@pytest.mark.parametrize("when", ["each connection", "text", "text before a question"])
def test_temporary_triggers_are_seen(store, engine, when) -> None:
    """Those of SQLite belong to one connection, and are in no list of the file."""
    trigger = (
        "CREATE TEMP TRIGGER copies AFTER INSERT ON teams"
        " BEGIN INSERT INTO users (id) VALUES (new.id + 1000); END"
    )
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata)
    if when == "each connection":
        engine.dispose()
        sa.event.listen(engine, "connect", lambda raw, record: raw.execute(trigger) and None)
    plugin.listen(engine, sessions)
    with contextlib.suppress(bloomstore.sql.BuildError):
        plugin.build(engine)
    if when != "each connection":
        with engine.begin() as connection:
            connection.exec_driver_sql(trigger)
        if when == "text before a question":
            with sessions() as session:
                session.execute(select(User.id)).all()
                session.get(Team, 5)
        plugin.build(engine)
    with sessions.begin() as session:
        session.add(Team(id=777))
    with sessions() as session:
        written = session.scalar(select(sa.func.count()).where(User.id == 1777))
        assert bool(written) is (when == "each connection")  # the build has disposed of the other
        assert (session.get(User, 1777) is not None) is bool(written)
    plugin.unlisten()


def test_a_value_that_python_cannot_hold_is_unknown(store, engine) -> None:
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    assert plugin.probe(table.c.c, "1" * 5000) == Answer.UNKNOWN
    assert plugin.partition(table.c.c, ["1" * 5000]) == ([], ["1" * 5000])
    plugin.unlisten()


@only_postgresql
@pytest.mark.parametrize(
    ("live", "declared", "sent", "stored"),
    [
        ("timestamp", sa.Date(), datetime(2020, 1, 1, 12), datetime(2020, 1, 1)),
        ("float8", sa.Integer(), 1.5, 2.0),
        ("numeric", sa.Integer(), Decimal("1.5"), Decimal(2)),
        (
            "timestamptz",
            sa.DateTime(),
            datetime(2020, 10, 25, 0, 30, tzinfo=UTC),
            datetime(2020, 10, 25, 1, 30, tzinfo=UTC),
        ),
    ],
)
def test_a_value_that_is_cast_before_it_is_stored(
    store, engine, live, declared, sent, stored
) -> None:
    """The drivers ask for a cast to the declared type, and the column has another one."""
    run(engine, f"CREATE TABLE trapped (id integer PRIMARY KEY, c {live})")
    right = {datetime: sa.DateTime(live.endswith("tz")), float: sa.Float(), Decimal: sa.Numeric()}
    table, other = table_of(declared), table_of(right[type(stored)])
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(engine)
    with contextlib.suppress(BuildError):  # some casts are in doubt from the beginning
        plugin.build(engine)
    asks = BloomPlugin(store, other.metadata)
    second = sa.create_engine(engine.url)
    asks.listen(second)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL TimeZone = 'Europe/Berlin'")
        connection.execute(sa.insert(table).values(id=1, c=sent))
    with second.connect() as connection:
        assert connection.execute(select(other.c.c)).scalar() == stored
    assert asks.probe(other.c.c, stored) is not Answer.ABSENT
    assert plugin.probe(table.c.c, sent) is not Answer.ABSENT
    asks.unlisten()
    plugin.unlisten()
    second.dispose()


@only_postgresql
def test_columns_that_differ_in_case_only_are_in_doubt(store, engine) -> None:
    run(engine, 'CREATE TABLE trapped (id integer PRIMARY KEY, c integer, "C" integer)')
    table = table_of(sa.Integer)
    table.append_column(sa.Column("C", sa.Integer, key="other"))
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(engine)
    with pytest.raises(bloomstore.BloomStoreError, match="case"):
        plugin.build(engine)
    plugin.unlisten()


@only_postgresql
@pytest.mark.parametrize("by", ["engine", "stranger"])
def test_a_label_of_an_enum_that_is_renamed(store, engine, by) -> None:
    run(engine, "DROP TYPE IF EXISTS mood", "CREATE TYPE mood AS ENUM ('red')")
    run(engine, "CREATE TABLE trapped (id integer PRIMARY KEY, c mood)")
    table = table_of(sa.Enum("red", "crimson", name="mood"))
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c="red"))
    other = engine if by == "engine" else sa.create_engine(engine.url)
    run(other, "ALTER TYPE mood RENAME VALUE 'red' TO 'crimson'")
    if by == "stranger":
        engine.dispose()
        with engine.connect():
            pass
    assert plugin.probe(table.c.c, "crimson") is not Answer.ABSENT
    plugin.unlisten()
    other.dispose()
    run(engine, "DROP TABLE trapped", "DROP TYPE mood")


def test_triggers_may_write_by_routines(store, engine, kind) -> None:
    if kind == "sqlite":
        pytest.skip("it has no routines")
    table = table_of(sa.Integer)
    table.create(engine)
    run(engine, "CREATE TABLE others (n integer)")
    if kind == "mariadb":
        run(engine, "CREATE PROCEDURE adds(n integer) INSERT INTO trapped VALUES (n, n)")
        run(engine, "CREATE PROCEDURE calls(n integer) CALL adds(n)")
        run(engine, "CREATE TRIGGER tr AFTER INSERT ON others FOR EACH ROW CALL calls(NEW.n)")
    else:
        begin = "RETURNS {} LANGUAGE plpgsql AS $$ BEGIN {} END $$"
        body = begin.format("void", "INSERT INTO trapped VALUES (n, n);")
        run(engine, f"CREATE FUNCTION adds(n integer) {body}")
        body = begin.format("trigger", "PERFORM adds(NEW.n); RETURN NEW;")
        run(engine, f"CREATE FUNCTION calls() {body}")
        run(
            engine,
            "CREATE TRIGGER tr AFTER INSERT ON others FOR EACH ROW EXECUTE FUNCTION calls()",
        )
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(engine)
    with pytest.raises(bloomstore.BloomStoreError, match="triggers"):
        plugin.build(engine)
    plugin.unlisten()
    run(engine, "DROP TABLE others")
    kinds = ("PROCEDURE", "") if kind == "mariadb" else ("FUNCTION", "(integer)")
    run(engine, f"DROP {kinds[0]} calls", f"DROP {kinds[0]} adds{kinds[1]}")


@pytest.fixture
def far(engine: sa.Engine) -> Iterator[sa.Engine]:
    """Finds a table of the same name in another schema, and bloomstore's own in public."""
    run(engine, "DROP SCHEMA IF EXISTS far CASCADE", "CREATE SCHEMA far")
    path = {"options": "-csearch_path=far,public"}
    made = sa.create_engine(engine.url, connect_args=path)
    yield made
    made.dispose()
    run(engine, "DROP SCHEMA far CASCADE")


@only_postgresql
def test_two_schemas_are_two_tables(store, engine, far) -> None:
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    run(engine, "CREATE TABLE far.trapped (LIKE trapped INCLUDING ALL)")
    run(engine, "INSERT INTO far.trapped VALUES (5, 55)")
    plugin.build(engine)
    other = BloomPlugin(store, table.metadata)
    other.listen(far)
    assert other.probe(table.c.c, 55) == Answer.UNKNOWN
    other.unlisten()
    plugin.build(engine)
    both = BloomPlugin(store, table.metadata)
    both.listen(engine, far)
    assert both.probe(table.c.c, 55) == Answer.UNKNOWN
    both.unlisten()
    plugin.unlisten()


@only_postgresql
def test_a_table_that_is_found_behind_the_first_schema_is_named_with_its_own(
    store, engine, far
) -> None:
    table = table_of(sa.Integer)
    table.create(engine)
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(far)
    plugin.build(far)
    named = sa.Table(
        "trapped",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("c", sa.Integer),
        schema="public",
    )
    with far.begin() as connection:
        connection.execute(sa.insert(named).values(id=1, c=7))
    assert plugin.probe(table.c.c, 7) is not Answer.ABSENT
    plugin.unlisten()


@only_mariadb
def test_what_later_listeners_do_to_a_new_connection_is_seen(store, plugin, engine) -> None:
    other = sa.create_engine(engine.url)
    late = BloomPlugin(store, Base.metadata)
    late.listen(other)
    assert not other.pool.dispatch.checkout  # it would cost each connection something
    other.dispose()

    @sa.event.listens_for(other, "connect")
    def loosen(raw: Any, record: Any) -> None:
        raw.cursor().execute("SET SESSION sql_mode = ''")

    with other.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="x" * 70))
    assert plugin.probe(User.email, "x" * 60) is not Answer.ABSENT
    late.unlisten()
    other.dispose()


@only_postgresql
def test_a_note_that_cannot_be_read_makes_every_guard_doubt(plugin, engine, monkeypatch) -> None:
    def damaged(guard: Any) -> None:
        raise StoreFailed("damaged")

    with monkeypatch.context() as patched:
        patched.setattr(ActiveGuard, "record", damaged)
        engine.dispose()
        engine.connect().close()
    assert plugin.probe(User.id, 77) == Answer.UNKNOWN
    engine.dispose()
    engine.connect().close()
    assert plugin.probe(User.id, 77) is Answer.ABSENT


def test_a_guard_that_is_found_inside_a_batch_is_kept(store, engine) -> None:
    table = table_of(sa.Integer)
    table.metadata.create_all(engine)
    plugin = BloomPlugin(store)
    plugin.listen(engine)
    with store.batch(), engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=1))
    plugin.build(engine)
    assert plugin.probe(table.c.c, 1) is Answer.MAYBE
    assert plugin.probe(table.c.c, 2) is Answer.ABSENT
    plugin.unlisten()
