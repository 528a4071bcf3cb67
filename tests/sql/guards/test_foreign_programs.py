"""Programs, stores and databases that a guard does not expect: a release, a copy, a backup."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore.errors import BloomStoreError, SpecError
from bloomstore.sql import Answer, BloomPlugin, Guard, GuardedSession
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.foreign_writes import WRITES, interrupted, reflected
from tests.sql.support.kinds import only_sqlite
from tests.sql.support.models import Base, User


@pytest.mark.parametrize("form", WRITES)
def test_a_program_that_does_not_declare_a_guard_fences_it(store, plugin, engine, form) -> None:
    """An older release, an admin's script, a migration: it listens and knows no guard."""
    other = sa.create_engine(engine.url)
    stranger = BloomPlugin(store)
    stranger.listen(other)
    with other.begin() as connection:
        WRITES[form](connection, reflected(engine))
    assert plugin.probe(User.id, 7).name == "UNKNOWN"
    assert plugin.probe(User.email, "x@y").name == "UNKNOWN"
    stranger.unlisten()
    other.dispose()
    plugin.build(engine)
    assert plugin.probe(User.id, 7) is Answer.MAYBE
    every_row_is_known(plugin, engine)


def test_a_program_that_was_there_before_the_guard_fences_it_too(store, engine) -> None:
    """A release that goes on running while the next one declares and builds its guards."""
    old_engine = sa.create_engine(engine.url)
    old = BloomPlugin(store)
    old.listen(old_engine)
    table = reflected(engine)
    with old_engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, email="1@y"))
    new = BloomPlugin(store, Base.metadata)
    new.listen(engine)
    new.build(engine)
    assert new.probe(User.id, 1) is Answer.MAYBE
    with old_engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=2, email="2@y"))
    assert new.probe(User.id, 2) is not Answer.ABSENT
    every_row_is_known(new, engine)
    old.unlisten()
    new.unlisten()
    old_engine.dispose()


def test_a_stranger_that_writes_other_columns_fences_nothing(store, plugin, engine) -> None:
    stranger = BloomPlugin(store)
    other = sa.create_engine(engine.url)
    stranger.listen(other)
    table = reflected(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=3, email="3@y"))
    with other.begin() as connection:
        connection.execute(sa.update(table).values(age=5))
        connection.execute(sa.delete(table).where(table.c.id == 3))
    assert plugin.probe(User.id, 8) is Answer.ABSENT
    stranger.unlisten()
    other.dispose()


@only_sqlite
def test_a_copied_store_is_not_believed(tmp_path: Path, engine) -> None:
    with bloomstore.open(tmp_path / "guards") as store:
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine)
        plugin.build(engine)
        plugin.unlisten()
    shutil.copytree(tmp_path / "guards", tmp_path / "copy")
    with bloomstore.open(tmp_path / "copy") as store:
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine)
        assert "copy" in plugin.probe(User.id, 1).reason
        plugin.build(engine)
        with engine.begin() as connection:
            connection.execute(sa.insert(User).values(id=1, email="copied@y"))
        plugin.unlisten()
    engine.dispose()
    with bloomstore.open(tmp_path / "guards") as store:  # it has not seen what the copy has
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine)
        assert "another store" in plugin.probe(User.id, 1).reason
        plugin.build(engine)
        assert plugin.probe(User.id, 1) is Answer.MAYBE
        assert plugin.probe(User.id, 2) is Answer.ABSENT
        plugin.unlisten()


@only_sqlite
def test_a_restored_database_is_not_believed(tmp_path: Path, store, engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="lost@y"))
    before = BloomPlugin(store, Base.metadata)
    before.listen(engine)
    before.build(engine)
    engine.dispose()
    backup = shutil.copy(engine.url.database, tmp_path / "backup.db")
    with engine.begin() as connection:
        connection.execute(sa.delete(User))
    before.rebuild(engine)
    assert before.probe(User.id, 1) is Answer.ABSENT
    before.unlisten()
    engine.dispose()
    shutil.copy(backup, engine.url.database)
    after = BloomPlugin(store, Base.metadata)
    after.listen(engine)
    assert "restored" in after.probe(User.id, 1).reason
    after.build(engine)
    assert after.probe(User.id, 1) is Answer.MAYBE
    assert after.probe(User.id, 2) is Answer.ABSENT
    after.unlisten()


def test_nothing_is_answered_after_unlisten(plugin, engine) -> None:
    plugin.unlisten()
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="unseen@y"))
    assert plugin.probe(User.id, 1).name == "UNKNOWN"
    assert plugin.partition(User.id, [1, 2]) == ([], [1, 2])
    plugin.listen(engine)
    plugin.build(engine, force=True)
    assert plugin.probe(User.id, 1) is Answer.MAYBE


def test_a_closed_store_answers_unknown_every_time(tmp_path: Path, engine) -> None:
    closed = bloomstore.open(tmp_path / "closed")
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(closed, Base.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    plugin.unlisten()
    plugin.listen(engine, sessions)
    closed.close()
    for _ in range(3):
        assert plugin.probe(User.id, 1).name == "UNKNOWN"
        assert plugin.partition(User.id, [1]) == ([], [1])
        with sessions() as session:
            assert session.get(User, 1) is None
    plugin.unlisten()


def test_reasons_do_not_pile_up(plugin) -> None:
    for number in range(300):
        plugin.probe(User.id, f"no number {number}")
    assert len(plugin.stats()["users.id"]["unknown"]) < 60


def test_a_guard_that_is_declared_anew_says_what_its_filter_has(store, engine) -> None:
    def table(error: float) -> sa.Table:
        guard = {"bloomstore": Guard(target_error=error)}
        return sa.Table("anew", sa.MetaData(), sa.Column("id", sa.Integer, info=guard))

    first = table(0.01)
    first.create(engine)
    plugin = BloomPlugin(store, first.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    plugin.unlisten()
    second = table(1e-5)
    plugin = BloomPlugin(store, second.metadata)
    plugin.listen(engine)
    assert plugin.stats()["anew.id"]["target_error"] == 0.01
    plugin.rebuild(engine)
    assert plugin.stats()["anew.id"]["target_error"] == 1e-5
    plugin.unlisten()
    first.drop(engine)


def test_declared_later_is_declared_all_the_same(store, engine) -> None:
    plugin = BloomPlugin(store)
    plugin.listen(engine)
    plugin.declare(Base.metadata)
    plugin.build(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="1@y"))
    assert plugin.probe(User.id, 1) is Answer.MAYBE
    assert plugin.probe(User.id, 2) is Answer.ABSENT
    plugin.unlisten()


@only_sqlite
def test_wrong_arguments_are_named(store, plugin, engine) -> None:
    wrong: list[tuple[str, Any]] = [
        ("the store", lambda: BloomPlugin("guards", Base.metadata)),  # type: ignore[arg-type]
        ("Base.metadata", lambda: BloomPlugin(store, Base)),  # type: ignore[arg-type]
        ("a session", lambda: plugin.bypass(engine).__enter__()),
        ("build_async", lambda: plugin.build("x")),
        ("session.connection", lambda: plugin.probe(User.id, 1, connection=engine)),
        ("once each", lambda: Guard("a", "a")),
        ("named once", lambda: Guard(5)),  # type: ignore[arg-type]
        ("durability", lambda: Guard(durability="never")),  # type: ignore[arg-type]
        ("name", lambda: Guard(name="")),
    ]
    for names, call in wrong:
        with pytest.raises(SpecError, match=names):
            call()


@pytest.mark.parametrize("form", WRITES)
def test_a_guard_that_is_built_between_a_statement_and_its_commit(store, engine, form) -> None:
    """The statement was looked at before there was a guard, and sent after it had been built."""
    other = sa.create_engine(engine.url)
    old = BloomPlugin(store)
    old.listen(other)
    table = reflected(engine)
    new = BloomPlugin(store)

    def declare() -> None:
        new.listen(engine)
        new.declare(Base.metadata)
        new.build(engine)

    interrupted(old, declare)
    with other.begin() as connection:
        WRITES[form](connection, table)
    assert new.guards
    assert new.probe(User.id, 7) is not Answer.ABSENT
    assert new.probe(User.email, "x@y") is not Answer.ABSENT
    old.unlisten()
    new.unlisten()
    other.dispose()


def test_one_name_for_two_columns_in_two_releases(store, engine) -> None:
    def release(column: str) -> tuple[sa.Table, BloomPlugin, sa.Engine]:
        columns = [
            sa.Column(
                name, sa.Integer, info={"bloomstore": Guard(name="k")} if name == column else {}
            )
            for name in ("a", "b")
        ]
        table = sa.Table("renamed", sa.MetaData(), *columns)
        own = sa.create_engine(engine.url)
        table.create(own, checkfirst=True)
        plugin = BloomPlugin(store, table.metadata)
        plugin.listen(own)
        return table, plugin, own

    before, old, old_engine = release("a")
    old.build(old_engine)
    after, new, new_engine = release("b")
    new.build(new_engine)
    assert new.probe(after.c.b, 7) is Answer.ABSENT
    with old_engine.begin() as connection:
        connection.execute(sa.insert(before).values(a=1, b=7))
    assert new.probe(after.c.b, 7) is not Answer.ABSENT
    new.build(new_engine)
    with old_engine.begin() as connection:
        connection.execute(sa.update(before).values(b=8))
    assert new.probe(after.c.b, 8) is not Answer.ABSENT
    for plugin, each in ((old, old_engine), (new, new_engine)):
        plugin.unlisten()
        each.dispose()
    before.drop(engine)


@only_sqlite
@pytest.mark.parametrize("moment", ["rebuild: position noted", "rebuild: switched"])
def test_a_database_that_is_restored_in_the_middle_of_a_rebuild(
    tmp_path: Path, store, engine, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come back with it were read by no attempt."""

    class Killed(BaseException):
        pass

    def point(name: str) -> None:
        if name == moment:
            raise Killed

    with engine.begin() as connection:
        connection.execute(
            sa.insert(User), [{"id": n, "email": f"{n:05}@y"} for n in range(1, 400)]
        )
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    engine.dispose()
    backup = shutil.copy(engine.url.database, tmp_path / "backup.db")
    with engine.begin() as connection:
        connection.execute(sa.delete(User).where(User.id == 5))
    monkeypatch.setattr("bloomstore.sql.build.table_source.BATCH_ROWS", 100)
    monkeypatch.setattr("bloomstore.rebuild.order.crash_point", point)
    with pytest.raises(Killed):
        plugin.rebuild(engine, User.id)
    monkeypatch.setattr("bloomstore.rebuild.order.crash_point", lambda name: None)
    plugin.unlisten()
    engine.dispose()
    shutil.copy(backup, engine.url.database)
    after = BloomPlugin(store, Base.metadata)
    after.listen(engine)
    assert after.probe(User.id, 5) is not Answer.ABSENT
    with contextlib.suppress(BloomStoreError):
        after.rebuild(engine, User.id)
    assert after.probe(User.id, 5) is not Answer.ABSENT
    after.rebuild(engine, User.id, restart=True)
    assert after.probe(User.id, 5) is Answer.MAYBE
    assert after.probe(User.id, 5000) is Answer.ABSENT
    after.unlisten()


@only_sqlite
def test_an_older_copy_beside_the_database_is_not_forgotten(tmp_path: Path, store, engine) -> None:
    before = BloomPlugin(store, Base.metadata)
    before.listen(engine)
    before.build(engine)
    engine.dispose()
    copy = sa.create_engine(f"sqlite:///{shutil.copy(engine.url.database, tmp_path / 'copy.db')}")
    before.build(engine, force=True)
    before.unlisten()
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, copy)
    assert plugin.probe(User.id, 1).name == "UNKNOWN"
    engine.dispose()
    with engine.connect():
        pass
    assert plugin.probe(User.id, 1).name == "UNKNOWN"
    plugin.unlisten()
    copy.dispose()
