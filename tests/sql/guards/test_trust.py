"""When a guard may be believed: the form of its column, its database, its store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard
from bloomstore.sql.databases.sqlite_tables import affinity_of, column_definitions
from tests.sql.support import servers
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.models import Base, User


def fresh(store: bloomstore.Store, engine: sa.Engine, metadata: sa.MetaData) -> BloomPlugin:
    """What a new process would see."""
    plugin = BloomPlugin(store, metadata)
    plugin.listen(engine)
    return plugin


def test_nothing_is_believed_before_the_first_build(store, engine) -> None:
    plugin = fresh(store, engine, Base.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(email="early@x"))
    answer = plugin.probe(User.email, "nobody@x")
    assert answer == Answer.UNKNOWN
    assert answer.reason == "not built yet"
    (built,) = (done for done in plugin.build(engine) if done.name == "users.email")
    assert (built.rows, built.still) == (1, "")
    assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
    every_row_is_known(plugin, engine)


def test_a_build_that_is_cut_off_leaves_no_statement_behind(
    store, engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bloomstore.sql.build.build.CHUNK", 1000)
    with engine.begin() as connection:
        connection.execute(sa.insert(User), [{"email": f"{n}@x"} for n in range(20_000)])
    plugin = fresh(store, engine, Base.metadata)
    lost: list[object] = []
    sa.event.listen(engine, "invalidate", lambda *what: lost.append(what))

    def stop(name: str, rows: int) -> None:
        raise RuntimeError

    try:
        plugin.build(engine, User.email, progress=stop)
    except RuntimeError as error:  # its traceback keeps every frame alive
        kept = error
    assert kept.__traceback__ is not None
    assert lost == []
    assert [done.rows for done in plugin.build(engine, User.email)] == [20_000]
    assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
    every_row_is_known(plugin, engine)
    plugin.unlisten()


def test_a_guard_survives_a_restart(tmp_path: Path, engine) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        plugin = fresh(store, engine, Base.metadata)
        plugin.build(engine)
        plugin.unlisten()
    with bloomstore.open(tmp_path / "s") as store:
        plugin = fresh(store, engine, Base.metadata)
        assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
        plugin.unlisten()


def test_a_restored_copy_of_the_store_is_not_believed(tmp_path: Path, engine) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        plugin = fresh(store, engine, Base.metadata)
        plugin.build(engine)
        store.backup(tmp_path / "copy")
        with engine.begin() as connection:
            connection.execute(sa.insert(User).values(email="late@x"))
        plugin.unlisten()
    with bloomstore.open(tmp_path / "copy") as store:
        list(store.repair())
        plugin = fresh(store, engine, Base.metadata)
        assert plugin.probe(User.email, "late@x") == Answer.UNKNOWN
        plugin.build(engine)
        assert plugin.probe(User.email, "late@x") is Answer.MAYBE
        assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
        plugin.unlisten()


def test_a_filter_that_was_dropped_and_made_by_hand_is_not_believed(store, engine) -> None:
    plugin = fresh(store, engine, Base.metadata)
    plugin.build(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(email="known@x"))
    store.drop("users.email")
    store.create("users.email", bloomstore.Fixed(capacity=10, target_error=0.1))
    plugin.probe(User.email, "known@x")  # finds that its filter is gone
    other = fresh(store, engine, Base.metadata)
    for each in (plugin, other):
        answer = each.probe(User.email, "known@x")
        assert answer == Answer.UNKNOWN
        assert answer.reason == "its filter was dropped and created again since it was built"
    plugin.build(engine)
    for each in (plugin, other):
        assert each.probe(User.email, "known@x") is Answer.MAYBE
        assert each.probe(User.email, "nobody@x") is Answer.ABSENT
        assert isinstance(each.guards["users.email"].filter.spec, bloomstore.Scalable)
        each.unlisten()


def test_another_database_is_not_believed(tmp_path: Path) -> None:
    def filled(name: str, email: str) -> sa.Engine:
        engine = sa.create_engine(f"sqlite:///{tmp_path}/{name}.db")
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(sa.insert(User).values(email=email))
        return engine

    first, second = filled("first", "a@x"), filled("second", "b@x")
    with bloomstore.open(tmp_path / "s") as store:
        plugin = fresh(store, first, Base.metadata)
        plugin.build(first)
        assert plugin.probe(User.email, "b@x") is Answer.ABSENT
        plugin.unlisten()
        other = fresh(store, second, Base.metadata)
        answer = other.probe(User.email, "b@x")
        assert answer == Answer.UNKNOWN
        assert "another database" in answer.reason
        other.unlisten()
        first.dispose()
        shutil.copy(tmp_path / "second.db", tmp_path / "first.db")  # "restored" while running
        again = fresh(store, first, Base.metadata)
        assert again.probe(User.email, "b@x") == Answer.UNKNOWN
        again.unlisten()
    first.dispose()
    second.dispose()


def test_an_altered_column_is_not_believed_until_it_is_built(store, engine, kind) -> None:
    if kind == "sqlite":
        pytest.skip("SQLite cannot alter a column in place")
    plugin = fresh(store, engine, Base.metadata)
    plugin.build(engine)
    elsewhere = sa.create_engine(engine.url)  # nobody listens there
    alter = {
        "postgresql": "ALTER TABLE users ALTER email TYPE varchar(5)",
        "mariadb": "ALTER TABLE users MODIFY email varchar(60) COLLATE utf8mb4_general_ci",
    }[kind]
    with elsewhere.begin() as connection:
        connection.exec_driver_sql(alter)
    engine.dispose()
    with engine.connect():
        pass
    assert plugin.probe(User.email, "nobody@x") == Answer.UNKNOWN
    if kind == "postgresql":
        plugin.build(engine)
        assert plugin.probe(User.email, "nobod") is Answer.ABSENT
    else:
        with pytest.raises(BuildError, match="not binary"):
            plugin.build(engine)
    elsewhere.dispose()


def test_an_altering_statement_fences_at_once(plugin: BloomPlugin, engine, kind) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE users ADD COLUMN more integer")
    assert plugin.probe(User.email, "nobody@x") == Answer.UNKNOWN
    assert plugin.build(engine)
    assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT


def test_a_trigger_is_not_believed_unless_it_is_said_to_be_harmless(store, engine, kind) -> None:
    table = sa.Table("logged", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    for ignore in (False, True):
        table.c.id.info["bloomstore"] = Guard(ignore_triggers=ignore)
        if not ignore:
            table.create(engine)
            with engine.begin() as connection:
                for statement in _trigger(kind):
                    connection.exec_driver_sql(statement)
        plugin = fresh(store, engine, table.metadata)
        if ignore:
            plugin.build(engine)
            assert plugin.probe(table.c.id, 5) is Answer.ABSENT
        else:
            assert "triggers" in plugin.probe(table.c.id, 5).reason
        plugin.unlisten()


def _trigger(kind: str) -> list[str]:
    if kind == "sqlite":
        return ["CREATE TRIGGER t BEFORE INSERT ON logged BEGIN SELECT 1; END"]
    if kind == "mariadb":
        return ["CREATE TRIGGER t BEFORE INSERT ON logged FOR EACH ROW SET @seen = 1"]
    return [
        """CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN RETURN NEW; END'""",
        "CREATE TRIGGER t BEFORE INSERT ON logged FOR EACH ROW EXECUTE FUNCTION f()",
    ]


def test_guards_that_can_never_be_right_are_refused(store) -> None:
    class Shouting(sa.TypeDecorator[str]):
        impl = sa.String
        cache_ok = True

    def declared(*columns: sa.Column[object], **info: object) -> sa.MetaData:
        return sa.Table("t", sa.MetaData(), *columns, info=info).metadata

    wrong = {
        "deterministic": declared(sa.Column("a", Shouting(), info={"bloomstore": Guard()})),
        "expected a Guard": declared(sa.Column("a", sa.Integer, info={"bloomstore": 5})),
        "no column": declared(sa.Column("a", sa.Integer), bloomstore=[Guard("a", "b")]),
        "__bloomstore__": declared(sa.Column("a", sa.Integer, info={"bloomstore": Guard("x")})),
    }
    for message, metadata in wrong.items():
        with pytest.raises(SpecError, match=message):
            BloomPlugin(store, metadata)
    parent = sa.Table("p", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    key = sa.ForeignKey("p.id", onupdate="CASCADE")
    child = sa.Column("p_id", sa.Integer, key, info={"bloomstore": Guard()})
    sa.Table("c", parent.metadata, child)
    with pytest.raises(SpecError, match="ON UPDATE CASCADE"):
        BloomPlugin(store, parent.metadata)
    with pytest.raises(SpecError, match="policy"):
        BloomPlugin(store, policy=cast("Any", "sometimes"))


def test_a_full_plugin_life_with_two_engines(store, engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Thing(Own):
        __tablename__ = "own_things"
        id: Mapped[int] = mapped_column(primary_key=True, info={"bloomstore": Guard()})

    Own.metadata.create_all(engine)
    second = sa.create_engine(engine.url)
    plugin = BloomPlugin(store, Own.metadata)
    plugin.listen(engine, second, sessionmaker(engine))
    plugin.build(engine)
    with second.begin() as connection:
        connection.execute(sa.insert(Thing).values(id=3))
    assert plugin.probe(Thing.id, 3) is Answer.MAYBE
    assert plugin.probe(Thing.id, 4) is Answer.ABSENT
    plugin.unlisten()
    second.dispose()


def test_collations_are_read_from_create_table() -> None:
    create = """CREATE TABLE "t, (x" ( -- a comment, with a comma
        [a b] TEXT COLLATE NOCASE DEFAULT ('x, y'),
        "q""q" VARCHAR(5) /* , */ NOT NULL COLLATE "rtrim",
        `c` NUMERIC(10, 2), PRIMARY KEY ([a b], c))"""
    found = column_definitions(create, ["a b", 'q"q', "c"])
    assert found is not None
    assert "NOCASE" in found[0]
    assert '"rtrim"' in found[1]
    for others in (["a b", "c", 'q"q'], ["a b", 'q"q'], ["a b", 'q"q', "c", "d"]):
        assert column_definitions(create, others) is None
    assert [affinity_of(name) for name in ("BIGINT", "VARCHAR(5)", "", "DOUBLE", "DATETIME")] == [
        "INTEGER",
        "TEXT",
        "BLOB",
        "REAL",
        "NUMERIC",
    ]


@pytest.mark.skipif("BLOOMSTORE_TEST_PG_URL" in os.environ, reason="a server of its own is needed")
def test_a_standby_is_believed_until_it_is_promoted(store: bloomstore.Store) -> None:
    """Before, the filter is ahead of it; afterwards it is another line of time."""
    with servers.postgresql() as url:
        primary = sa.create_engine(url)
        Base.metadata.create_all(primary)
        writer = BloomPlugin(store, Base.metadata)
        writer.listen(primary)
        with primary.begin() as connection:
            connection.execute(sa.insert(User).values(id=1, email="before@x"))
        writer.build(primary)
        with servers.standby_of(url) as standby_url:
            standby = sa.create_engine(standby_url)
            reader = BloomPlugin(store, Base.metadata)
            reader.listen(standby)
            assert reader.probe(User.id, 1) is Answer.MAYBE
            assert reader.probe(User.id, 2) is Answer.ABSENT
            with primary.begin() as connection:
                connection.execute(sa.insert(User).values(id=2, email="after@x"))
            assert reader.probe(User.id, 2) is Answer.MAYBE
            writer.unlisten()
            primary.dispose()
            with standby.connect() as connection:
                assert connection.scalar(sa.text("SELECT pg_promote()"))
            standby.dispose()
            with standby.connect() as connection:
                assert not connection.scalar(sa.text("SELECT pg_is_in_recovery()"))
            assert reader.probe(User.id, 3).name == "UNKNOWN"
            assert "timeline" in reader.probe(User.id, 3).reason
            reader.build(standby)
            assert reader.probe(User.id, 3) is Answer.ABSENT
            with standby.begin() as connection:
                connection.execute(sa.insert(User).values(id=3, email="promoted@x"))
            assert reader.probe(User.id, 3) is Answer.MAYBE
            assert every_row_is_known(reader, standby) > 0
            reader.unlisten()
            standby.dispose()
