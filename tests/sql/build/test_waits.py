"""What builds wait for, and whom they name when they have waited in vain."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore import Scalable
from bloomstore.rebuild import SourceError, rebuild
from bloomstore.rebuild.state import read_state
from bloomstore.sql import Answer, BloomPlugin, BuildError, GuardedSession
from bloomstore.sql.build.table_source import TableSource, reflect
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.kinds import only_mariadb, only_postgresql, only_sqlite
from tests.sql.support.models import Base, User


def by_the_recipe(url: sa.URL, begin: str) -> sa.Engine:
    """SQLAlchemy's own recipe for transactions that pysqlite does not begin itself."""
    engine = sa.create_engine(url)

    @sa.event.listens_for(engine, "connect")
    def connect(raw: Any, record: Any) -> None:
        raw.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begins(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


@only_sqlite
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_builds_work_with_the_recipe_for_pysqlite(
    store: bloomstore.Store, engine: sa.Engine, begin: str, mode: str
) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA journal_mode = {mode}")
    ours = by_the_recipe(engine.url, begin)
    sessions = sessionmaker(ours, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(ours, sessions)
    plugin.build(ours, patience=5)
    with sessions.begin() as session:
        session.add(User(id=1, email="a@x"))
        with session.begin_nested():
            session.add(User(id=2, email="b@x"))
    assert plugin.probe(User.id, 2) is Answer.MAYBE
    plugin.rebuild(ours, patience=5)
    plugin.build(ours, force=True, patience=5)
    assert every_row_is_known(plugin, ours) > 0
    assert plugin.probe(User.id, 3) is Answer.ABSENT
    with ours.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        assert raw.isolation_level is None, "the application's own way was changed"
    plugin.unlisten()
    ours.dispose()


@contextmanager
def another_database(url: sa.URL) -> Iterator[sa.Engine]:
    server = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS elsewhere WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE elsewhere")
    engine = sa.create_engine(url.set(database="elsewhere"))
    yield engine
    engine.dispose()
    with server.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE elsewhere WITH (FORCE)")
    server.dispose()


@only_postgresql
@pytest.mark.parametrize("role", ["postgres", "plain"])
def test_transactions_of_other_databases_are_not_waited_for(
    store: bloomstore.Store, engine: sa.Engine, url: sa.URL, role: str
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS plain")
        connection.exec_driver_sql("CREATE ROLE plain LOGIN")
        connection.exec_driver_sql("GRANT ALL ON SCHEMA public TO plain")
        connection.exec_driver_sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO plain")
    builder = sa.create_engine(url.set(username=role))
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(builder)
    with another_database(url) as other:
        with other.connect() as writing, other.connect() as preparing:
            writing.exec_driver_sql("CREATE TABLE x (i int)")
            preparing.exec_driver_sql("CREATE TABLE y (i int)")
            preparing.exec_driver_sql("PREPARE TRANSACTION 'elsewhere'")
            plugin.build(builder, patience=5)
            plugin.rebuild(builder, User.id, patience=5)
        with other.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ROLLBACK PREPARED 'elsewhere'")
    assert plugin.probe(User.id, 1) is Answer.ABSENT
    plugin.unlisten()
    builder.dispose()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP OWNED BY plain")
        connection.exec_driver_sql("DROP ROLE plain")


@only_postgresql
def test_a_transaction_of_this_database_is_waited_for_and_named(
    store: bloomstore.Store, engine: sa.Engine, url: sa.URL
) -> None:
    busy = sa.create_engine(url, connect_args={"application_name": "nightly import"})
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    with busy.connect() as connection:
        connection.execute(sa.insert(User).values(id=5, email="open@x"))
        process = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with pytest.raises(BuildError) as error:
            plugin.build(engine, User.id, patience=0.1)
        for part in (f"process {process} of postgres", "nightly import", "since 2", "idle in"):
            assert part in str(error.value)
        connection.commit()
    plugin.build(engine, User.id)
    assert plugin.probe(User.id, 5) is Answer.MAYBE
    plugin.unlisten()
    busy.dispose()


@only_mariadb
def test_a_transaction_of_mariadb_is_named(store: bloomstore.Store, engine: sa.Engine) -> None:
    store.create("plain", Scalable(target_error=1e-3, initial_capacity=100))
    source = TableSource(engine, reflect(engine, "users"), ["id"])
    with engine.connect() as connection:
        connection.execute(sa.insert(User).values(id=5, email="open@x"))
        thread = connection.exec_driver_sql("SELECT connection_id()").scalar_one()
        time.sleep(0.2)  # lists of transactions are read anew every tenth of a second
        with pytest.raises(SourceError) as error:
            rebuild(store, "plain", source, patience=0.1)
    for part in (f"connection {thread} of root@localhost", "since 2", "database bloom"):
        assert part in str(error.value)


@only_sqlite
def test_a_process_that_holds_the_lock_of_sqlite_is_named(
    store: bloomstore.Store, engine: sa.Engine
) -> None:
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(engine.url.database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        store.create("plain", Scalable(target_error=1e-3, initial_capacity=100))
        source = TableSource(engine, reflect(engine, "users"), ["id"])
        with pytest.raises(SourceError, match=f"process {process.pid} .*sqlite3"):
            rebuild(store, "plain", source, patience=0.1)
        process.communicate()


def test_a_writer_that_inserts_then_adds_then_commits_loses_nothing(
    store: bloomstore.Store, engine: sa.Engine
) -> None:
    plain = store.create("plain", Scalable(target_error=1e-3, initial_capacity=100))
    source = TableSource(engine, reflect(engine, "users"), ["email"])
    done: list[int] = []
    with engine.connect() as writer:
        writer.execute(sa.insert(User).values(id=1, email="new@x"))
        plain.add("new@x")
        thread = threading.Thread(
            target=lambda: done.append(rebuild(store, "plain", source, patience=60).rows)
        )
        thread.start()
        while thread.is_alive() and read_state(store, "plain") is None:
            time.sleep(0.01)
        writer.commit()
    thread.join(60)
    assert done == [1]
    assert "new@x" in plain
