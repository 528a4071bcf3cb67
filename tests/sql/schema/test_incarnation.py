"""Which database it is, is compared again before answers, and not only on new connections."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.sql import Answer, BloomPlugin, Guarded, GuardedSession
from bloomstore.sql.schema.incarnation import leave_token
from tests.sql.support import servers
from tests.sql.support.kinds import only_sqlite
from tests.sql.support.models import Base, User


def plugged(
    store: bloomstore.Store, engine: sa.Engine, identity_check: float
) -> tuple[BloomPlugin, sessionmaker[GuardedSession]]:
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata, identity_check=identity_check)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    return plugin, sessions


def with_a_row_less(plugin: BloomPlugin, engine: sa.Engine) -> Callable[[], None]:
    """An SQLite file without the row that its backup has, and how the backup is put back."""
    with Session(engine) as session, session.begin():
        session.add(User(id=777, email="old@x"))
    backup = sqlite3.connect(":memory:", check_same_thread=False)
    with sqlite3.connect(str(engine.url.database)) as source:
        source.backup(backup)
    with Session(engine) as session, session.begin():
        session.execute(sa.delete(User))
    plugin.rebuild(engine)

    def restore() -> None:
        with sqlite3.connect(str(engine.url.database)) as target:
            backup.backup(target)

    return restore


def ask_in(session: Session, how: str) -> bool:
    """Whether the session finds the row."""
    if how == "get":
        return session.get(User, 777) is not None
    asked = sa.select(User).where(User.email == "old@x").options(Guarded())
    return session.scalars(asked).first() is not None


@only_sqlite
@pytest.mark.parametrize("how", ["get", "Guarded"])
def test_a_restore_in_place_is_noticed_by_the_next_transaction(
    store: bloomstore.Store, engine: sa.Engine, how: str
) -> None:
    plugin, sessions = plugged(store, engine, 0)
    restore = with_a_row_less(plugin, engine)
    with sessions() as session:
        assert not ask_in(session, how)
    restore()
    with sessions() as session:
        assert ask_in(session, how)
    assert "restored" in plugin.probe(User.id, 1).reason
    plugin.unlisten()


@only_sqlite
@pytest.mark.parametrize("how", ["get", "Guarded"])
def test_a_restore_in_place_is_noticed_in_the_middle_of_a_transaction(
    store: bloomstore.Store, engine: sa.Engine, how: str
) -> None:
    plugin, sessions = plugged(store, engine, 0.05)
    restore = with_a_row_less(plugin, engine)
    with sessions() as session:
        session.connection()
        assert not ask_in(session, how)
        assert not ask_in(session, how)
        restore()
        ends = time.monotonic() + 30
        while not ask_in(session, how):
            assert time.monotonic() < ends, "it was never compared again"
            time.sleep(0.01)
    plugin.unlisten()


def test_a_transaction_older_than_a_build_makes_nobody_else_doubt(
    store: bloomstore.Store, engine: sa.Engine, kind: str
) -> None:
    if kind == "sqlite":
        pytest.skip("a reader keeps the build from leaving its token")
    plugin, sessions = plugged(store, engine, 0)
    with sessions() as old:
        old.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        old.execute(sa.select(sa.func.count()).select_from(User)).scalar_one()
        guard = plugin.guards["users.id"]  # the last steps of a build that took its time
        note = guard.record()
        note.token = leave_token(engine, guard.name)
        guard.write_record(note)
        assert old.get(User, 5) is None
        assert (
            "older than the last build"
            in plugin.probe(User.id, 5, connection=old.connection()).reason
        )
        assert plugin.probe(User.id, 1) is Answer.ABSENT
    with sessions() as session:
        assert session.get(User, 6) is None
    assert plugin.guards["users.id"].metrics.skipped_gets == 1
    plugin.unlisten()


def test_nothing_is_sent_while_it_is_the_same(
    store: bloomstore.Store, engine: sa.Engine, sent: Any
) -> None:
    plugin, sessions = plugged(store, engine, 0)
    sent()
    with sessions() as session:
        assert session.get(User, 1) is None
        assert session.get(User, 2) is None
    with sessions() as session:
        session.connection()
        assert session.get(User, 3) is None
        assert session.get(User, 4) is None
    assert plugin.probe(User.id, 5) is Answer.ABSENT
    assert sent() == 0
    plugin.unlisten()


@only_sqlite
def test_a_file_that_was_replaced_before_a_new_pool(
    store: bloomstore.Store, engine: sa.Engine, tmp_path: Path
) -> None:
    plugin, sessions = plugged(store, engine, 3600)
    other = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    Base.metadata.create_all(other)
    with Session(other) as session, session.begin():
        session.add(User(id=777, email="old@x"))
    other.dispose()
    Path(tmp_path / "other.db").replace(str(engine.url.database))
    engine.dispose()
    with sessions() as session:  # a skipped question would open no connection
        assert session.get(User, 777) is not None
    engine.dispose()
    assert plugin.probe(User.id, 777) is not Answer.ABSENT
    plugin.unlisten()


def test_a_database_that_was_made_anew(
    store: bloomstore.Store, url: sa.URL, kind: str, running: Any
) -> None:
    if kind == "sqlite":
        pytest.skip("a file is replaced, see above")
    server = sa.create_engine(running(kind), isolation_level="AUTOCOMMIT")

    def make_anew() -> sa.Engine:
        with server.connect() as connection:
            force = " WITH (FORCE)" if kind == "postgresql" else ""
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS anew{force}")
            connection.exec_driver_sql("CREATE DATABASE anew")
        engine = sa.create_engine(url.set(database="anew"))
        Base.metadata.create_all(engine)
        return engine

    engine = make_anew()
    plugin, sessions = plugged(store, engine, 3600)
    with sessions() as session:
        assert session.get(User, 777) is None
    other = make_anew()
    with other.begin() as connection:
        connection.execute(sa.insert(User).values(id=777, email="old@x"))
    other.dispose()
    engine.dispose()
    with sessions() as session:
        assert session.get(User, 777) is not None
    plugin.unlisten()
    engine.dispose()
    with server.connect() as connection:
        force = " WITH (FORCE)" if kind == "postgresql" else ""
        connection.exec_driver_sql(f"DROP DATABASE anew{force}")
    server.dispose()


def test_without_a_connection_nobody_knows(store: bloomstore.Store, url: sa.URL) -> None:
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=60)
    servers.empty(engine)
    Base.metadata.create_all(engine)
    plugin, _ = plugged(store, engine, 0)
    assert plugin.probe(User.id, 1) is Answer.ABSENT
    with engine.connect() as connection:  # the only one
        answer = plugin.probe(User.id, 1)
        assert answer == Answer.UNKNOWN
        assert "no connection" in answer.reason
        assert plugin.partition(User.id, [1, 2]) == ([], [1, 2])
        assert plugin.probe(User.id, 1, connection=connection) is Answer.ABSENT
    plugin.unlisten()
    engine.dispose()


@only_sqlite
def test_beside_an_async_engine_nobody_knows(store: bloomstore.Store, engine: sa.Engine) -> None:
    async def main() -> None:
        other = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"))
        plugin = BloomPlugin(store, Base.metadata, identity_check=0)
        plugin.listen(other)
        await plugin.build_async(other)
        assert "no connection" in plugin.probe(User.id, 1).reason
        async with other.connect() as connection:
            found = await connection.run_sync(
                lambda sync: plugin.probe(User.id, 1, connection=sync)
            )
        assert found is Answer.ABSENT
        plugin.unlisten()
        await other.dispose()

    asyncio.run(main())


def test_the_clock_ends_with_its_plugin(store: bloomstore.Store, engine: sa.Engine) -> None:
    plugin, sessions = plugged(store, engine, 0.02)
    with sessions() as session:
        session.connection()
        assert session.get(User, 1) is None
        assert any(thread.name == "bloomstore clock" for thread in threading.enumerate())
    plugin.unlisten()
    ends = time.monotonic() + 30
    while any(thread.name == "bloomstore clock" for thread in threading.enumerate()):
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_seconds_are_a_number(store: bloomstore.Store) -> None:
    for wrong in (-1, float("nan"), "2", None):
        with pytest.raises(SpecError, match="identity_check"):
            BloomPlugin(store, Base.metadata, identity_check=wrong)  # type: ignore[arg-type]
